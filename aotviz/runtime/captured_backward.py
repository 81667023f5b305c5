"""The backward of a compiled call, as torch's compiled autograd captures it into its graph of the whole backward.

It runs the backward graph operator by operator, so that the compiler of the whole backward can fuse these with their
surroundings. As usual, nothing is computed from missing gradients (`partial_backward.py`). A backward that cannot be
part of another graph runs as compiled, between two graphs, and Dynamo reports the reason for the graph break.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import torch

from aotviz.ir import effects, graphs
from aotviz.ir.forms import Split
from aotviz.ir.refusals import Refused
from aotviz.runtime import gradient_hooks
from aotviz.runtime.capturable import Inlined, Run, Taken, as_compiled
from aotviz.runtime.generators import Generators
from aotviz.runtime.lowered import LoweredSplit
from aotviz.runtime.partial_backward import Pattern, is_dynamic
from aotviz.torch_private import runtime
from aotviz.torch_private.context import autocast_enabled

_ONE_NODE = "compiled autograd sees the whole call as one node, and hooks run before it"


class CapturedBackward:
    """The captured backward of one program."""

    def __init__(self, lowered: LoweredSplit) -> None:
        call = lowered.call
        self.name, self._why_beside = call.name, _why_beside(call, lowered.generators)
        self._checks = "it first checks what was written since" if call.kept_and_written or call.reshaped else ""
        self._may_be_random = not call.meta.deterministic and call.options.backend != "eager"
        self._partial, self._autocast = lowered.partial, call.meta.autocast
        self._is_wrapping = call.wrapping is not None
        self._heard = [(one.slots, call.called(one.ref)) for one in call.hooked_results]
        self._cut_at = tuple(lowered.cut.order) if lowered.cut is not None else ()
        self._inputs, self._together = len(call.outer.graph_inputs), call.outer.together
        self._tensors = [i for i, info in enumerate(call.outer.meta.input_info) if info.is_tensor]
        self._slots = [tangent.slot for tangent in call.outer.tangents]
        self._symbols = len(call.saved) - call.saved_tensor_count
        self.varies = any(saved.varying_dims for saved in call.saved)
        self._modules: dict[Pattern, Any] = {}

    def sizes(self, node: Any) -> Sequence[int]:
        """The saved sizes, followed by the shapes of results if they vary."""
        if self._why_beside:
            return ()
        shapes = getattr(node, "shapes", ())
        return [int(n) for n in (*getattr(node, "symbols", ()), *(n for shape in shapes for n in shape))]

    def refuse_parts(self, node: Any, came: Sequence[bool]) -> None:
        """Refuse a hook on a result, or `torch.autograd.grad` of one, that would get only a part of its gradient."""
        asked = gradient_hooks.asked_for()
        listening = getattr(node, "hooked_results", ())
        for (slots, name), there in zip(self._heard, listening, strict=True):
            if any(came[slot] for slot in slots):
                if there.hears():
                    raise Refused("hook on a result", name, _ONE_NODE)
                if there.is_among(asked):
                    raise Refused("gradient of a result", name)

    def only_looks(self, node: Any, position: int) -> bool:
        """Whether the only hooks on a result are those by which a compiled call looks for the user's."""
        hooks = getattr(node, "hooks_of_results", ())
        return position in self._cut_at and bool(hooks) and not hooks[self._cut_at.index(position)].users()

    def taken(self, node: Any, came: Sequence[bool]) -> Taken:
        """How the backward of one call is captured."""
        pattern = tuple(came[slot] for slot in self._slots)
        why = self._why_beside
        why = why or self.why_as_it_is(node) or self._why_mixed(pattern)
        reached = [True] * self._inputs
        if not self._is_wrapping:
            reached = [result is not None for result in graphs.outputs(self._partial.part(pattern).module.graph)]
        return Taken(as_compiled if why else self.inside, reached, why)

    def why_as_it_is(self, node: Any) -> str:
        """Why this run of the backward cannot be part of a larger graph; "" if nothing speaks against it."""
        if torch.is_grad_enabled():
            return "its gradients are differentiated again (create_graph=True)"
        if autocast_enabled():
            return "it runs under autocast, and its casts are already in its graph"
        if self._may_be_random and torch.are_deterministic_algorithms_enabled():
            return "it was compiled without deterministic algorithms"
        listening = zip(self._heard, getattr(node, "hooked_results", ()), strict=False)
        if any(slots and there.hears() for (slots, _), there in listening):
            return "a result of it, from which another result was computed, has a hook"
        return ""

    def _why_mixed(self, pattern: Pattern) -> str:
        if any(0 < sum(pattern[i] for i in group) < len(group) for group in self._together):
            return "a custom autograd.Function receives gradients for only some of its results"
        return ""

    def inlined(self, node: Any, came: Sequence[bool]) -> Inlined | str:
        """The graph, to be copied into a larger one, or why the backward must run as it is."""
        pattern = tuple(came[slot] for slot in self._slots)
        why = self._why_beside or self._checks or self.why_as_it_is(node) or self._why_mixed(pattern)
        if why:
            return why
        if not any(pattern):
            return "no gradient comes in"
        return Inlined(
            self.name,
            self._module(pattern),
            self._partial.part(pattern).sources,
            self._symbols,
            self._partial.tangents,
            self._tensors,
            None if all(pattern) else functools.partial(self._partial.hold, pattern),
        )

    @functools.cached_property
    def inside(self) -> Run:
        """The function that is a node of the graph."""
        partial, symbols = self._partial, self._symbols

        def backward(saved: Sequence[Any], sizes: Sequence[Any], gradients: Sequence[Any]) -> tuple[Any, ...]:
            tangents = [gradients[tangent.slot] for tangent in partial.tangents]
            pattern = tuple(tangent is not None for tangent in tangents)
            part = partial.part(pattern)
            rest = iter(sizes[symbols:])
            shapes = [[next(rest) for _ in tangent.size] for tangent in partial.tangents if is_dynamic(tangent)]
            given = {
                "saved": [*saved, *sizes[:symbols]],
                "tangent": partial.laid_out(shapes, part, tangents),
            }
            with runtime.AutocastDisabled() if self._autocast else contextlib.nullcontext():
                return tuple(self._module(pattern)(*(given[kind][position] for kind, position in part.sources)))

        return backward

    def _module(self, pattern: Pattern) -> Any:
        """The graph for some of the gradients. Saved tensors may have other strides than in the trace, so views are
        reshapes."""
        module = self._modules.get(pattern)
        if module is None:
            module = self._modules[pattern] = graphs.copy(self._partial.part(pattern).module)
            for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
                node.target = torch.ops.aten.reshape.default
            module.recompile()
        return module


def _why_beside(call: Split, generators: Generators | None) -> str:
    """Why the backward of a program cannot be part of a larger graph; "" if it can."""
    nodes = call.backward_module.graph.nodes
    if call.wrapping is not None:
        return "it works on tensor subclasses"
    if generators is not None:
        return "it recomputes random numbers of the forward"
    if any(effects.has_effects(node.target) for node in nodes):
        return "it has side effects"
    if any(map(graphs.is_input_mutation, nodes)):
        return "it writes to an incoming gradient or an input"
    if not all(isinstance(saved.value, (int, torch.SymInt)) for saved in call.saved[call.saved_tensor_count :]):
        return "it reads a value that is neither a tensor nor a size"
    return ""
