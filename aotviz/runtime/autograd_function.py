"""The lines of the generated `autograd.Function` (SYSTEM.md E3).

Its forward runs the compiled forward and keeps what the backward needs; its backward brings the incoming gradients
into the layout that the backward was compiled for, and runs it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.forms import LoweredSplit, Slot, Tangent
from aotviz.ir.metadata import OutputType, TensorAlias
from aotviz.runtime import aliases
from aotviz.runtime.codegen import Source
from aotviz.torch_private import operators, runtime
from aotviz.torch_private.fakes import all_concrete


def write(source: Source, call: LoweredSplit, label: str) -> str:
    """Write the class; returns the name of its `apply`."""
    return _Writer(source, call, label).write()


class _Writer:
    def __init__(self, source: Source, call: LoweredSplit, label: str) -> None:
        self.source, self.call, self.label = source, call, label
        self.count = len(call.slots)
        self.tensors = call.saved_tensor_count
        self.symbols = len(call.saved) - self.tensors
        layouts = [(*t.size, *t.stride) for t in call.tangents]
        self.static_tangents = all(all_concrete(one) for one in layouts)

    def write(self) -> str:
        source = self.source
        name = source.fresh(f"{self.label}_autograd")
        function = source.bind("Function", torch.autograd.Function)
        source.line(f"class {name}({function}):")
        source.indent()
        if runtime.HAS_BOXED_GRADIENTS:
            source.line("boxed_grads_call = True  # `gradients` is a list that may be emptied")
            source.blank()
        source.line("@staticmethod")
        source.line("def forward(ctx, *inputs):")
        source.indent()
        self._forward()
        source.dedent()
        source.blank()
        source.line("@staticmethod")
        arguments = "gradients" if runtime.HAS_BOXED_GRADIENTS else "*gradients"
        source.line(f"def backward(ctx, {arguments}):")
        source.indent()
        self._backward()
        source.dedent()
        source.dedent()
        source.blank()
        source.blank()
        apply = source.fresh("apply")
        source.line(f"{apply} = {source.bind('raw_apply', runtime.raw_apply)}({name})")
        source.blank()
        source.blank()
        return apply

    def _forward(self) -> None:
        source, call = self.source, self.call
        source.line(f"out = {source.bind('compiled_forward', call.compiled_forward)}([*inputs])")
        aliases.versions(source, call)
        self._save()
        results = [self._result(i, slot) for i, slot in enumerate(call.slots)]
        constant = [f"out[{i}]" for i, slot in enumerate(call.slots) if self._non_differentiable(slot)]
        if constant:
            source.line(f"ctx.mark_non_differentiable({', '.join(constant)})", "these outputs do not require grad")
        if runtime.HAS_BOXED_GRADIENTS:
            source.line("ctx._materialize_non_diff_grads = False", "")
        if self.static_tangents:
            source.line("ctx.set_materialize_grads(False)", "an output that nobody uses sends None, not zeros")
        source.line(f"return ({', '.join(results)},)" if results else "return ()")

    def _save(self) -> None:
        source = self.source
        first, last = self.count, self.count + self.tensors
        views = [first + i for i, saved in enumerate(self.call.saved[: self.tensors]) if saved.is_view]
        if not self.tensors:
            pass
        elif views:
            fact = "saving a view would keep its base alive, and with it a reference cycle"
            source.line(f"saved = [*out[{first}:{last}]]", fact)
            positions = ", ".join(str(i - first) for i in views)
            source.line(f"for i in ({positions},):", fact)
            source.line("    if saved[i]._is_view(): saved[i] = saved[i].detach()", fact)
            source.line("ctx.save_for_backward(*saved)", "the backward needs these")
        else:
            source.line(f"ctx.save_for_backward(*out[{first}:{last}])", "the backward needs these")
        if self.symbols:
            source.line(f"ctx.symbols = out[{last}:]", "the backward needs these sizes")

    def _non_differentiable(self, slot: Slot) -> bool:
        if slot.hidden or slot.differentiable:
            return False
        if slot.kind == "output":
            return self.call.meta.output_info[slot.index].layout is not None
        return True

    def _result(self, position: int, slot: Slot) -> str:
        value = f"out[{position}]"
        if slot.hidden:
            return f"{self.source.bind('TensorAlias', TensorAlias)}({value})"
        if slot.differentiable and slot.kind != "mutation" and self._is_view(position, slot):
            return f"{self.source.bind('unsafe_view', runtime.unsafe_view)}({value}, {value}.size())"
        return value

    def _is_view(self, position: int, slot: Slot) -> bool:
        """Whether the graph returns a view; autograd would take it for one and forbid its mutation."""
        if slot.kind == "output":
            kind = self.call.meta.output_info[slot.index].output_type
            if kind in (OutputType.unsafe_view_alias, OutputType.custom_function_view):
                return kind is OutputType.unsafe_view_alias
        node = graphs.outputs(self.call.forward_module.graph)[position]
        return isinstance(node, fx.Node) and operators.is_view(node.target)

    def _backward(self) -> None:
        source, call = self.source, self.call
        names = self._tangents()
        if runtime.HAS_BOXED_GRADIENTS:
            source.line("gradients.clear()", "free each gradient as soon as the backward has used it")
        absent = self._absent(names)
        self._lay_out(names)
        arguments = self._arguments(names)
        source.line(f"args = [{', '.join(arguments)}]")
        grad = source.bind("is_grad_enabled", torch.is_grad_enabled)
        tracked = source.bind("history_of", runtime.history_of)
        history = source.fresh("history")
        fact = "with create_graph=True, a second differentiation must find its way here to be refused"
        source.line(f"{history} = {tracked}(args) if {grad}() else None", fact)
        held = [*names, *(["saved"] if self.tensors else [])]
        if held:
            source.line(f"del {', '.join(held)}")
        if runtime.HAS_BOXED_GRADIENTS:
            source.line("ctx.maybe_clear_saved_tensors()", "the list now holds the last references")
        backward = source.bind("backward_of", call.backward)
        if call.backward.donates:
            keeps = source.bind("keeps_graph", runtime.keeps_graph)
            fact = "with retain_graph=True, the saved tensors must survive this backward"
            source.line(f"if {keeps}(): run = {backward}.keeping or {backward}(True)", fact)
            source.line(f"else: run = {backward}.discarding or {backward}(False)", fact)
        else:
            source.line(f"run = {backward}.keeping or {backward}(True)")
        self._run(absent, history)

    def _run(self, absent: dict[str, list[int]], history: str) -> None:
        source = self.source
        call = "run(args)"
        if self.call.meta.autocast:
            fact = "autocast was on at compile time; the graph has its casts in it"
            source.line(f"with {source.bind('AutocastDisabled', runtime.AutocastDisabled)}():", fact)
            source.indent()
            source.line(f"result = [*{call}]")
            source.dedent()
        else:
            source.line(f"result = [*{call}]")
        for flag, positions in absent.items():
            fact = "no gradient came in for what these inputs led to, so eager sends None"
            listed = ", ".join(map(str, positions))
            source.line(f"if {flag}:", fact)
            source.line(f"    for i in ({listed},): result[i] = None", fact)
        delayed = source.bind("delayed_error", runtime.delayed_error)
        again = f"{delayed}(result, {history}, {self.label!r})"
        source.line(f"if {history} is not None: return {again}", "create_graph=True")
        source.line("return tuple(result)")

    def _tangents(self) -> list[str]:
        names = []
        for tangent in self.call.tangents:
            name = self.source.fresh(f"grad_{self.call.slots[tangent.slot].descriptor}".replace("output", "out"))
            self.source.line(f"{name} = gradients[{tangent.slot}]")
            names.append(name)
        return names

    def _absent(self, names: list[str]) -> dict[str, list[int]]:
        """Flags for inputs whose gradient is None when certain tangents are: flag -> input positions."""
        if not self.static_tangents:
            return {}
        graph = self.call.backward_module.graph
        tangents = [node for node in graphs.placeholders(graph) if node.name.startswith("tangents_")]
        numbers = [int(node.name.removeprefix("tangents_")) - 1 for node in tangents]
        depends = graphs.dependencies(graph, tangents)
        by_set: dict[tuple[int, ...], list[int]] = {}
        for position, gradient in enumerate(graphs.outputs(graph)):
            on = tuple(sorted(numbers[i] for i in depends(gradient)))
            if gradient is not None and on and len(on) < len(names):
                by_set.setdefault(on, []).append(position)
        flags: dict[str, list[int]] = {}
        for on, positions in by_set.items():
            flag = self.source.fresh("no_" + "_".join(names[i] for i in on[:2]))
            condition = " and ".join(f"{names[i]} is None" for i in on)
            self.source.line(f"{flag} = {condition}")
            flags[flag] = positions
        return flags

    def _lay_out(self, names: list[str]) -> None:
        source = self.source
        fact = "the backward was compiled for gradients of this layout"
        for name, tangent in zip(names, self.call.tangents, strict=True):
            if not self.static_tangents:
                self._lay_out_dynamic(name, tangent, fact)
                continue
            zeros = source.bind("zeros", torch.zeros)
            dtype = source.bind(str(tangent.dtype).removeprefix("torch."), tangent.dtype)
            device = source.bind(str(tangent.device).replace(":", ""), tangent.device)
            subject = str(self.call.slots[tangent.slot].descriptor)
            shape = f"{tangent.size}, dtype={dtype}, device={device}"
            source.line(f"if {name} is None: {name} = {zeros}({shape})", fact, subject)
            if tangent.size:
                restrided = source.bind("restrided", runtime.restrided)
                again = f"{name} = {restrided}({name}, {tangent.size}, {tangent.stride})"
                source.line(f"elif {name}.stride() != {tangent.stride}: {again}", fact, subject)

    def _lay_out_dynamic(self, name: str, tangent: Tangent, fact: str) -> None:
        order, subject = tangent.order, str(self.call.slots[tangent.slot].descriptor)
        if not tangent.size:
            return
        if not order:
            restrided = self.source.bind("restrided", runtime.restrided)
            again = f"{name} = {restrided}({name}, {tangent.size}, {tangent.stride})"
            self.source.line(f"if {name}.stride() != {tangent.stride}: {again}", fact, subject)
        elif order == tuple(range(len(order))):
            self.source.line(f"{name} = {name}.contiguous()", fact, subject)
        else:
            back = tuple(order.index(i) for i in range(len(order)))
            self.source.line(f"{name} = {name}.permute({order}).contiguous().permute({back})", fact, subject)

    def _arguments(self, names: list[str]) -> list[str]:
        """The backward's inputs in its own order, found by name; runs of saved tensors become one slice."""
        place = {saved.name: i for i, saved in enumerate(self.call.saved)}
        arguments: list[str] = []
        if self.tensors:
            self.source.line("saved = ctx.saved_tensors")
        wanted: list[Any] = []
        nodes = graphs.placeholders(self.call.backward_module.graph)
        taken = {node.name for node in nodes}
        renamed = iter([i for i, saved in enumerate(self.call.saved) if saved.name not in taken])
        for node in nodes:
            if node.name in place:
                wanted.append(place[node.name])
            elif node.name.startswith("tangents_"):
                wanted.append(names[int(node.name.removeprefix("tangents_")) - 1])
            else:  # the state of a random generator, which partitioners name anew in the backward
                wanted.append(next(renamed))
        run: list[int] = []

        def flush() -> None:
            if not run:
                return
            where, shift = ("saved", 0) if run[0] < self.tensors else ("ctx.symbols", self.tensors)
            low, high = run[0] - shift, run[-1] - shift + 1
            whole = low == 0 and high == (self.tensors if where == "saved" else self.symbols)
            arguments.append(f"*{where}" if whole else f"*{where}[{low}:{high}]")
            run.clear()

        for item in wanted:
            if isinstance(item, int):
                if run and (item != run[-1] + 1 or item == self.tensors):
                    flush()
                run.append(item)
            else:
                flush()
                arguments.append(item)
        flush()
        return arguments
