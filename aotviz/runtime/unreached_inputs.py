"""Inputs that no gradient reaches in a backward, though one would reach them from another result.

Note [Hooks without a gradient]
An input that no gradient reaches gets None from our node, and the engine continues with that: it calls the hooks on the
input, and on all that it was computed from, with None. Eager never gets there. So these hooks are suspended until the
backward has ended: those on the inputs, on their bases, and on leaves. Hooks on an input that the call writes, or on
its base, stay with the earlier `grad_fn`, and hooks outlive a tensor that is freed. So the hooks that exist at the call
are recorded then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aotviz.ir import absent, autograd_graph, graphs
from aotviz.ir.forms import Split
from aotviz.runtime import gradient_hooks

MANY_NODES = 1000  # nodes of the autograd graph in which leaves with hooks are searched


def partly_reached(call: Split) -> dict[int, int]:
    """The inputs that gradients of some results reach, but not those of others, with the position of each one's
    gradient among the results of the backward graph: of its first part, if the input is a subclass."""
    graph = call.backward_module.graph
    tangents = [node for node in graphs.placeholders(graph) if absent.is_tangent(node)]
    reached, outputs = graphs.dependencies(graph, tangents), graphs.outputs(graph)
    by = [
        (i, parts[0], set().union(*(reached(outputs[k]) for k in parts))) for i, parts in enumerate(call.gradient_parts)
    ]
    return {i: first for i, first, sources in by if outputs[first] is not None and len(sources) < len(tangents)}


@dataclass(frozen=True)
class UnreachedInputs:
    """Keeps hooks from being called with None, for the backwards of one program.

    `partly` has for each input of `partly_reached`: its position, that among the tensors, and that of its gradient.
    """

    partly: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, call: Split) -> UnreachedInputs:
        infos = call.outer.meta.input_info
        tensors = [i for i, info in enumerate(infos) if info.is_tensor]
        return cls(tuple((i, tensors.index(i), position) for i, position in partly_reached(call).items()))

    def after_a_part(self, ctx: Any, results: Sequence[Any]) -> None:
        """Called with the results of a backward graph. See Note [Hooks without a gradient]."""
        self._spare_hooks(ctx, [place for _, place, position in self.partly if results[position] is None])

    def after_a_second(self, ctx: Any, gradients: Sequence[Any]) -> None:
        """Called with the gradients of a second derivative, one per input."""
        self._spare_hooks(ctx, [place for i, place, _ in self.partly if gradients[i] is None])

    def _spare_hooks(self, ctx: Any, unreached: Sequence[int]) -> None:
        if not unreached:
            return
        following = ctx.next_functions
        tensors = autograd_graph.leaves_behind([following[place][0] for place in unreached], MANY_NODES)
        tensors += [tensor for reference in getattr(ctx, "partly", ()) if (tensor := reference()) is not None]
        gradient_hooks.spare_hooks(tensors, getattr(ctx, "hooks", ()))
