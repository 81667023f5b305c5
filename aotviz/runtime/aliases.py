"""The lines that give the caller what eager would: inputs written back, outputs that are views again.

Everything known at compile time is decided here, once; the lines that come out have no branches for it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.forms import GraphCall, Member, Split
from aotviz.ir.metadata import InputAliasInfo, Layout, MutationType, OutputAliasInfo, OutputType, ViewStep
from aotviz.runtime.codegen import Source
from aotviz.torch_private import functional, runtime

# Views whose operator is also a method of the same name and arguments.
_METHODS = frozenset(
    "view select t transpose permute expand unsqueeze squeeze diagonal unbind split split_with_sizes detach "
    "as_strided unfold".split()
)


def versions(source: Source, call: GraphCall) -> None:
    """Write the line that lets fresh results count writes as eager's do, where the graph's own count differs.

    A functional graph writes nothing in place, but a factory called as an operator counts one write.
    """
    module = call.forward_module if isinstance(call, Split) else call.graph_module
    nodes = graphs.outputs(module.graph)
    shared = {functional.storage(v) for v in _tensors(graphs.placeholders(module.graph))}
    wanted: list[tuple[int, int]] = []
    for position, (slot, node) in enumerate(zip(call.slots, nodes, strict=False)):
        value = node.meta.get("val") if isinstance(node, fx.Node) else None
        if slot.version is None or not isinstance(value, torch.Tensor) or functional.storage(value) in shared:
            continue
        made_here = not node.all_input_nodes
        if slot.version or made_here:
            wanted.append((position, slot.version))
    if wanted:
        setter = source.bind("set_versions", runtime.set_versions)
        tensors = "".join(f"out[{position}], " for position, _ in wanted)
        counts = "".join(f"{count}, " for _, count in wanted)
        source.line(f"{setter}(({tensors}), ({counts}))", "eager counts so many writes to these results")


def _tensors(nodes: list[fx.Node]) -> list[torch.Tensor]:
    return [value for value in graphs.values(nodes) if isinstance(value, torch.Tensor)]


class Epilogue:
    """Writes what follows the compiled graph. `inputs` are the graph inputs' variables, `results` the slots'."""

    def __init__(self, source: Source, call: GraphCall, inputs: list[str], results: dict[tuple[str, int], str]) -> None:
        self.source, self.call, self.inputs, self.results = source, call, inputs, results
        self.training = any(slot.differentiable for slot in call.slots)
        self._made: dict[int, str] = {}
        self._shared: dict[tuple[str, tuple[ViewStep, ...]], str] = {}
        self._handed_out: set[str] = set()

    def inputs_needed(self) -> set[int]:
        """Positions of the graph inputs that the lines below speak of."""
        infos = enumerate(self.call.meta.input_info)
        needed = {i for i, info in infos if info.mutated or info.version_bumps}
        for fact in self.call.meta.output_info:
            if fact.output_type in (OutputType.is_input, OutputType.alias_of_input) and fact.base_index is not None:
                needed.add(fact.base_index)
        return needed

    def announce(self) -> None:
        """Versions of inputs that nothing will write after the graph, before it saves what shares their counters."""
        for i, info in enumerate(self.call.meta.input_info):
            if info.mutation_type is MutationType.NOT_MUTATED and info.version_bumps:
                self._bump(i, info.version_bumps, "eager counts writes to {} that leave it as it was")
        for i in self.call.meta.in_graph_mutated_indices:
            counted = 1 if self.call.options.graph_counts_writes else 0
            missing = self.call.meta.input_info[i].version_bumps - counted
            if missing > 0:
                self._bump(i, missing, "the graph writes {}, which autograd must be told")

    def write_back(self) -> None:
        """Mutations, input by input: metadata first, since new data has the new shape."""
        for i, info in enumerate(self.call.meta.input_info):
            if info.mutation_type is MutationType.MUTATED_OUT_GRAPH:
                self._write_back(i, info)

    def _write_back(self, i: int, info: InputAliasInfo) -> None:
        variable, name = self.inputs[i], str(self.call.graph_inputs[i])
        new = self.results.get(("mutation", i), "")
        bumps = 0
        if info.mutates_storage_metadata:
            no_grad = self.source.bind("no_grad", torch.no_grad)
            self.source.line(f"with {no_grad}(): {variable}.set_({new})", f"{name} is given another storage", name)
            bumps += 1
        elif info.mutates_metadata:
            where = self._layout(info.layout_after, new)
            text = f"{variable}.as_strided_({where})"
            if info.mutations_hidden_from_autograd and info.requires_grad:
                text = f"with {self.source.bind('no_grad', torch.no_grad)}(): {text}"
            self.source.line(text, f"{name} changes its shape or strides", name)
            bumps += 1
        if info.mutates_data:
            bumps += self._copy(variable, name, new, info)
        if info.version_bumps > bumps:
            self._bump(i, info.version_bumps - bumps, f"eager writes {{}} {info.version_bumps} times")

    def _copy(self, variable: str, name: str, new: str, info: InputAliasInfo) -> int:
        hidden, quiet = info.mutations_hidden_from_autograd, info.mutations_under_no_grad_or_inference_mode
        unseen = hidden or quiet
        if info.version_bumps == 0 and hidden and not quiet:
            self.source.line(f"{variable}.data.copy_({new})", f"{name} is written through .data", name)
            return 0
        if unseen and (info.requires_grad or info.requires_grad_after):
            how = "through a detached alias" if hidden else "under no_grad"
            self.source.line(f"{variable}.detach().copy_({new})", f"{name} is written {how}", name)
        else:
            self.source.line(f"{variable}.copy_({new})", f"{name} is written", name)
        return 1

    def _bump(self, i: int, count: int, fact: str) -> None:
        variable, name = self.inputs[i], str(self.call.graph_inputs[i])
        bump = self.source.bind("increment_version", torch.autograd.graph.increment_version)
        self.source.line(f"{bump}(({', '.join([variable] * count)},))", fact.format(name), name)

    def outputs(self) -> list[str]:
        """One expression per user output."""
        return [self._output(index) for index in range(len(self.call.meta.output_info))]

    def _output(self, index: int) -> str:
        """An output may be made from a later one, so each is made once, when it is first needed."""
        if index not in self._made:
            self._made[index] = self._make(index, self.call.meta.output_info[index])
        return self._made[index]

    def _make(self, index: int, fact: OutputAliasInfo) -> str:
        name = str(self.call.outputs[index])
        if fact.is_constant:
            return self._constant(fact.constant)
        if fact.same_object_as is not None:
            return self._output(fact.same_object_as)
        if fact.output_type is OutputType.is_input:
            return self._input(fact)
        own = self.results.get(("output", index))
        if fact.output_type is OutputType.alias_of_input:
            return self._view(fact, self._input(fact), name, own, self._input_requires_grad(fact))
        if fact.output_type is OutputType.alias_of_intermediate_base_is_user_output:
            base_index = self._base_index(fact)
            return self._view(
                fact, self._output(base_index), name, own, self.call.meta.output_info[base_index].requires_grad
            )
        if ("base", fact.base_index) in self.results and fact.base_index is not None:
            return self._view(fact, self.results[("base", fact.base_index)], name, own, True)
        if own is None:
            raise AssertionError(f"{name} is {fact.output_type.name}, and the graph does not return it")
        if fact.dynamic_dims:
            mark = self.source.bind("mark_dynamic", runtime.mark_dynamic)
            self.source.line(f"{mark}({own}, {sorted(fact.dynamic_dims)})", f"{name} has dynamic sizes", name)
        return own

    @staticmethod
    def _base_index(fact: OutputAliasInfo) -> int:
        assert fact.base_index is not None
        return fact.base_index

    def _input(self, fact: OutputAliasInfo) -> str:
        if isinstance(fact.constant, Member):
            return self.source.members[fact.constant.index]
        return self.inputs[self._base_index(fact)]

    def _input_requires_grad(self, fact: OutputAliasInfo) -> bool:
        if isinstance(fact.constant, Member) and fact.constant.detached:
            return False
        return self.call.meta.input_info[self._base_index(fact)].requires_grad_after

    def _constant(self, value: Any) -> str:
        if value is None or type(value) in (bool, int, str):  # an enum is an int whose `repr` is no Python
            return repr(value)
        return self.source.bind("constant", value)

    def _view(self, fact: OutputAliasInfo, base: str, name: str, own: str | None, base_requires_grad: bool) -> str:
        why = f"{name} is {fact.output_type.value}"
        variable = self.source.fresh(name.replace("output", "out"))
        if fact.viewed_under_no_grad:
            self.source.line(f"with {self.source.bind('no_grad', torch.no_grad)}():", why, name)
            self.source.indent()
        steps = fact.view_chain
        if fact.requires_grad and not fact.viewed_under_no_grad and steps:
            base, steps = self._without_history(base, steps, why, name)
        text = self._chain(base, steps, why, name)
        if text is None:
            text = f"{base}.as_strided({self._layout(fact.layout, own or '')})"
        detached = base_requires_grad and not fact.requires_grad
        if detached and not any(step.target.overloadpacket.__name__ == "detach" for step in fact.view_chain or ()):
            text += ".detach()"
        elif fact.requires_grad and not base_requires_grad:
            text += ".requires_grad_()"
        self.source.line(f"{variable} = {text}", why, name)
        if fact.viewed_under_no_grad:
            self.source.dedent()
            self._shared.clear()
        return variable

    def _without_history(
        self, base: str, steps: tuple[ViewStep, ...], why: str, name: str
    ) -> tuple[str, tuple[ViewStep, ...]]:
        """Views of a view that was made under no_grad: no gradient passes that one, here as in eager."""
        last = max((k for k, step in enumerate(steps, 1) if step.under_no_grad), default=0)
        if last in (0, len(steps)):
            return base, steps
        variable = self.source.fresh("quiet")
        text = self._chain(base, steps[:last], why, name)
        no_grad = self.source.bind("no_grad", torch.no_grad)
        self.source.line(f"with {no_grad}(): {variable} = {text}", f"{name} is a view of one made under no_grad", name)
        return variable, steps[last:]

    def _chain(self, base: str, steps: tuple[ViewStep, ...] | None, why: str, name: str) -> str | None:
        if steps is None:
            return None
        if not steps:
            return f"{base}.view({base}.size())"
        text = base
        for position, step in enumerate(steps):
            text = self._step(text, step)
            if step.item is None:
                continue
            key = (base, (*steps[:position], ViewStep(step.target, step.args)))
            pieces = self._shared.get(key)
            if pieces is None or f"{pieces}[{step.item}]" in self._handed_out:  # two outputs are two objects
                pieces = self._shared[key] = self.source.fresh("pieces")
                self.source.line(f"{pieces} = {text}", why, name)
            text = f"{pieces}[{step.item}]"
            self._handed_out.add(text)
        return text

    def _step(self, base: str, step: ViewStep) -> str:
        name = step.target.overloadpacket.__name__
        arguments = ", ".join(map(self._argument, step.args))
        if name in _METHODS:
            return f"{base}.{name}({arguments})"
        op = self.source.bind(name + "_op", step.target)
        return f"{op}({base}, {arguments})" if arguments else f"{op}({base})"

    def _argument(self, value: Any) -> str:
        if isinstance(value, torch.dtype):
            return self.source.bind(str(value).removeprefix("torch."), value)
        return repr(list(value) if isinstance(value, tuple) else value)

    def _layout(self, where: Layout | None, own: str) -> str:
        if where is not None and where.concrete:
            return f"{where.size}, {where.stride}, {where.offset}"
        return f"{own}.size(), {own}.stride(), {own}.storage_offset()"
