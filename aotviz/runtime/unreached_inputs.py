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
from typing import Any

from aotviz.ir import absent, autograd_graph, graphs
from aotviz.ir.forms import Split
from aotviz.runtime import gradient_hooks

MANY_NODES = 1000  # nodes of the autograd graph in which leaves with hooks are searched


def partly_reached(call: Split) -> list[int]:
    """The inputs that gradients of some results reach, but not those of others."""
    graph = call.backward_module.graph
    tangents = [node for node in graphs.placeholders(graph) if absent.is_tangent(node)]
    reached = graphs.dependencies(graph, tangents)
    gradients = enumerate(graphs.outputs(graph)) if call.wrapping is None else ()
    return [i for i, gradient in gradients if gradient is not None and len(reached(gradient)) < len(tangents)]


class UnreachedInputs:
    """Keeps hooks from being called with None, for the backwards of one program."""

    def __init__(self, call: Split) -> None:
        tensors = [i for i, info in enumerate(call.meta.input_info) if info.is_tensor]
        self._partly = {i: tensors.index(i) for i in partly_reached(call)}

    def spare_hooks(self, ctx: Any, result: Sequence[Any]) -> None:
        """See Note [Hooks without a gradient]."""
        unreached = [place for i, place in self._partly.items() if result[i] is None]
        if not unreached:
            return
        following = ctx.next_functions
        tensors = autograd_graph.leaves_behind([following[place][0] for place in unreached], MANY_NODES)
        tensors += [tensor for reference in getattr(ctx, "partly", ()) if (tensor := reference()) is not None]
        gradient_hooks.spare_hooks(tensors, getattr(ctx, "hooks", ()))
