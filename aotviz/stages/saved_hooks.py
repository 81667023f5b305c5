"""Saved-tensor hooks that are graphs become a part of the program's graphs (docs/design/system.md D5).

`torch.autograd.graph.saved_tensors_hooks(pack, unpack)` lets a user store less, or elsewhere, than what autograd
saves. Where both hooks are `fx.GraphModule`s a compiler can fuse them: `pack` goes to the end of the forward, once
for each saved tensor, and `unpack` to the beginning of the backward. What `pack` returns is saved in the tensor's
place: tensors, symbolic numbers, and constants, which are written into the backward. Hooks that are not graphs are
left to autograd, which calls them at each run as in eager.

Which saved tensors are packed is torch's setting: "donated" (those that nothing else holds, so that packing frees
memory), "no_static" (all but parameters and other static inputs) or "all".
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.descriptors import SavedInput, SavedOutput
from aotviz.ir.forms import Reason, SavedTensor, Split
from aotviz.ir.refusals import Refused
from aotviz.ir.symbolic_sizes import SYMBOLIC
from aotviz.ir.wrapper_subclasses import is_subclass
from aotviz.torch_private import operators, pytree, saved_tensor_hooks
from aotviz.tracing import functional
from aotviz.tracing.open_trace import OpenTrace
from aotviz.tracing.saved_values import deaths


@dataclass(frozen=True)
class SavedHookContext:
    """What a saved tensor hook can ask about its surroundings while it is traced."""

    name: str  # of the saved tensor's node, in the forward graph
    forward: fx.Graph
    backward: fx.Graph


_context: contextvars.ContextVar[SavedHookContext | None] = contextvars.ContextVar("saved_hook", default=None)


def saved_hook_context() -> SavedHookContext | None:
    """Called by a saved tensor hook while it is traced: returns which tensor it is for, or None outside a trace.

    >>> saved_hook_context() is None
    True
    """
    return _context.get()


def run(call: Split) -> Split:
    hooks = saved_tensor_hooks.inlineable()
    if hooks is None:
        return replace(call, evidence=())
    chosen, evidence = _chosen(call, saved_tensor_hooks.filtering_mode())
    if not any(chosen):
        return replace(call, evidence=tuple(evidence))
    return _Inliner(call, *hooks).run(chosen, evidence)


def _chosen(call: Split, mode: str) -> tuple[list[bool], list[Reason]]:
    """For each saved value, whether the hooks apply to it, and why."""
    if mode not in ("donated", "no_static", "all"):
        raise ValueError(
            f"torch's saved_tensors_hooks_filtering_mode is {mode!r}; it can be 'donated', 'no_static' or 'all'"
        )
    inputs = [node.name for node in graphs.placeholders(call.forward_module.graph)]
    static = {inputs[i] for i in call.meta.static_input_indices}
    chosen, reasons = [], []
    for saved, (dies, why) in zip(call.saved, deaths(call), strict=True):
        why_not = ""
        if saved.is_symbol:
            why_not = "hooks are for tensors"
        elif not saved.checked:
            why_not = (
                "a custom autograd.Function stores it as an attribute of ctx, and eager does not pack such tensors"
            )
        elif mode == "donated" and not dies:
            why_not = f"{why}, so packing would free nothing"
        elif mode == "no_static" and saved.name in static:
            why_not = "it is a static input, which stays in memory"
        chosen.append(not why_not)
        text = f"not packed: {why_not}" if why_not else f"packed by the saved tensor hooks (mode {mode!r})"
        reasons.append(Reason(saved.name, text))
    return chosen, reasons


class _Inliner:
    """Inserts the hooks into copies of both halves."""

    def __init__(self, call: Split, pack: fx.GraphModule, unpack: fx.GraphModule) -> None:
        self.call, self.pack, self.unpack = call, pack, unpack
        self.forward = graphs.copy(call.forward_module)
        self.forward_nodes = {node.name: node for node in self.forward.graph.nodes}
        self.kept: dict[str, tuple[SavedTensor, fx.Node]] = {}  # by name: what is saved, as a node of the forward
        self.unpacked: dict[str, tuple[fx.GraphModule, list[str]]] = {}  # by saved name: the hook, what it takes

    def run(self, chosen: list[bool], evidence: list[Reason]) -> Split:
        call = self.call
        for saved, apply in zip(call.saved, chosen, strict=True):
            if apply:
                evidence += self._pack(saved)
            else:
                self.kept.setdefault(saved.name, (saved, self.forward_nodes[saved.name]))
        kept = sorted((one for one, _ in self.kept.values()), key=lambda one: one.is_symbol)
        count = len(call.slots)
        slots, described = graphs.outputs(self.forward.graph), graphs.output_node(self.forward.graph).meta["desc"]
        results = (*slots[:count], *(self.kept[one.name][1] for one in kept))
        names = (*described[:count], *(SavedOutput(one.name) for one in kept))
        graphs.set_outputs(self.forward.graph, results, names)
        self.forward.graph.eliminate_dead_code()
        self.forward.recompile()
        return replace(
            call,
            forward_module=self.forward,
            backward_module=self._backward(kept),
            saved=tuple(kept),
            unpacked=self.unpacked,
            evidence=tuple(evidence),
        )

    def _pack(self, saved: SavedTensor) -> list[Reason]:
        """Pack one saved tensor at the end of the forward."""
        pack, packed = self._traced("pack", self.pack, saved.value, saved.name)
        made = self.forward.graph
        with made.inserting_before(graphs.output_node(made)):
            results = graphs.inlined(pack, self.forward, made, [self.forward_nodes[saved.name]], "is_forward")
        pairs = zip(results, pytree.tree_leaves(packed), strict=True)
        kept = [(result, value) for result, value in pairs if isinstance(result, fx.Node)]
        for result, value in kept:
            one = replace(
                saved,
                name=result.name,
                is_symbol=isinstance(value, (*SYMBOLIC, int, float, bool)),
                value=value,
                producer=str(result.target),
                why=f"{saved.why}; packed by a saved tensor hook",
                is_view=result.op == "placeholder" or operators.is_view(result.target),
                hook=f"packed from {saved.name}",
            )
            self.kept.setdefault(one.name, (one, result))
        unpack, unpacked = self._traced("unpack", self.unpack, packed, saved.name)
        _refuse_another_tensor(saved, pytree.tree_leaves(unpacked))
        self.unpacked[saved.name] = (unpack, [result.name for result, _ in kept])
        # the unpack hook was traced with the constants among the results
        what = (result.name if isinstance(result, fx.Node) else repr(result) for result in results)
        return [Reason(saved.name, f"saved as {', '.join(what)}")]

    def _traced(self, kind: str, hook: fx.GraphModule, argument: Any, name: str) -> tuple[fx.GraphModule, Any]:
        """Trace `hook(argument)` for the saved tensor `name`; `argument` is any pytree, its tensors fake. Returns the
        graph, (what the hook takes that is not a constant) -> (results), and its result with fake tensors.

        Raises:
            Refused: the hook takes or returns a tensor subclass, or writes its argument.
        """
        call = self.call
        about = f"the {kind} hook of the saved tensor {name!r}"
        context = SavedHookContext(name, call.forward_module.graph, call.backward_module.graph)
        trace = OpenTrace(call.fake_mode, call.options.decompositions, keeps_stacks=False)
        leaves, spec = pytree.tree_flatten(argument)
        _refuse_subclasses(about, leaves)
        with torch.no_grad(), trace.active("is_forward"), contextlib.ExitStack() as stack:
            stack.callback(_context.reset, _context.set(context))
            traced = [(i, leaf) for i, leaf in enumerate(leaves) if isinstance(leaf, (torch.Tensor, *SYMBOLIC))]
            for i, leaf in traced:
                trace.placeholder(f"packed_{i}", leaf)
            given = [functional.wrapped(leaf) for leaf in leaves]
            result = hook(pytree.tree_unflatten(given, spec))
            for value in filter(functional.is_functional, given):
                if functional.data_mutated(value) or functional.metadata_mutated(value):
                    raise Refused("saved tensor hook writes", about)
            found, found_spec = pytree.tree_flatten(result)
            _refuse_subclasses(about, found)
            values = [functional.inner(value) if functional.is_functional(value) else value for value in found]
            results = [trace.node_of(value) for value in values]
            values = [v if isinstance(r, fx.Node) else r for v, r in zip(values, results, strict=True)]
        trace.graph.output(tuple(results))
        return trace.graph_module(trace.graph), pytree.tree_unflatten(values, found_spec)

    def _backward(self, kept: Sequence[SavedTensor]) -> fx.GraphModule:
        """The backward with other inputs: symbols, then tensors, then the same tangents."""
        old = self.call.backward_module.graph
        made = operators.empty_copy(old)
        module = fx.GraphModule(self.call.backward_module, made)
        copied: dict[fx.Node, fx.Node] = {}
        inputs: dict[str, fx.Node] = {}
        known = {saved.name for saved in self.call.saved}
        placeholders = graphs.placeholders(old)
        for saved in sorted(kept, key=lambda one: not one.is_symbol):
            node = inputs[saved.name] = made.placeholder(saved.name)
            if node.name != saved.name:
                raise AssertionError(f"the backward already has a node {saved.name}")
            node.meta = {"val": saved.value, "desc": SavedInput(saved.name)}
        for node in placeholders:
            if node.name not in known:
                copied[node] = made.node_copy(node)
            elif node.name in inputs:
                inputs[node.name].meta = dict(node.meta)
                copied[node] = inputs[node.name]
        output = made.output(())
        with made.inserting_before(output):
            for node in placeholders:
                if node.name in self.unpacked:
                    hook, names = self.unpacked[node.name]
                    taken = [inputs[name] for name in names]
                    (copied[node],) = graphs.inlined(hook, module, made, taken, "is_backward")
            for node in old.nodes:
                if node.op not in ("placeholder", "output"):
                    copied[node] = made.node_copy(node, copied.__getitem__)
        source = graphs.output_node(old)
        output.args = fx.map_arg(source.args, copied.__getitem__)
        output.meta = dict(source.meta)
        made.eliminate_dead_code()
        module.recompile()
        return module


def _refuse_another_tensor(saved: SavedTensor, unpacked: Sequence[Any]) -> None:
    value = unpacked[0] if len(unpacked) == 1 else None
    alike = isinstance(value, torch.Tensor) and value.shape == saved.value.shape and value.dtype == saved.value.dtype
    if not alike:
        found = f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
        raise ValueError(
            f"the unpack hook must return what the pack hook was given: for the saved tensor {saved.name!r}, "
            f"{saved.value.dtype} of shape {tuple(saved.value.shape)}; it returned {found}"
        )


def _refuse_subclasses(about: str, leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if is_subclass(leaf):
            raise Refused("saved tensor hook of a subclass", about, type(leaf).__name__)
