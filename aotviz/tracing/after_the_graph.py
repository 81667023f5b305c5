"""Graphs from Dynamo that could not answer as eager, because of what the code after them does with their tensors.

What Dynamo knows of that code is in `torch_private/what_follows.py`. These graphs are refused, so they run in eager.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aotviz.ir.forms import TracedCall
from aotviz.ir.refusals import Refused
from aotviz.ir.view_and_mutation import OutputType, Ref
from aotviz.torch_private.what_follows import Follows
from aotviz.tracing import functional
from aotviz.tracing.forward import Run


def refuse_data(
    follows: Follows, forward: Run, nodes: Sequence[Any], written: Mapping[int, Any], names: Sequence[Any]
) -> None:
    """Refuse a graph whose backward reads a tensor of which `.data` is assigned or written later. `nodes` are those of
    the autograd graph, `names` those of the graph inputs, of which some are `written`."""
    if not follows.data:
        return
    with forward.open.active("is_forward"):
        saved = [tensor for node in nodes for tensor in functional.saved_tensors_of(node)]
        # What a node saves of its own result is another tensor over the old memory.
        if follows.data == "assigned" and any(one is result for one in saved for result in forward.outputs):
            raise Refused("data is assigned", "an intermediate")
        found = _saved_as_written(saved, written)
    if found:
        raise Refused("data is written after the graph", ", ".join(repr(str(names[i])) for i in sorted(found)))


def _saved_as_written(saved: Sequence[Any], written: Mapping[int, Any]) -> set[int]:
    """Which of the `written` inputs autograd may have saved after the last write. Eager's backward reads the memory of
    such an input, and a compiled one reads the value that the graph computed: they differ if `.data` of the input is
    written later. Of an input that was written through a view it cannot be seen: CopySlices hides the view's node."""
    places = {functional.storage(tensor): i for i, tensor in written.items() if functional.is_plain(tensor)}
    kept = map(functional.storage, filter(functional.is_plain, saved))
    through_views = {i for i, tensor in written.items() if functional.is_copy_slices(functional.grad_fn(tensor))}
    return {places[place] for place in kept if place in places} | through_views


def refuse_differentiated(follows: Follows, refs: Sequence[Ref], call: TracedCall) -> None:
    """Refuse a graph that ends before the gradient of one of these tensors is asked for; other results were computed
    from them."""
    names, results = call.graph_inputs, (call.meta.output_info[i] for i in follows.differentiated)
    of_inputs = follows.is_input_differentiated or any(r.output_type is OutputType.is_input for r in results)
    for ref in refs:
        if ref.kind == "output" and ref.index in follows.differentiated:
            raise Refused("gradient of a result", f"output[{ref.index}]")
        if ref.kind in ("input", "member") and of_inputs:
            name = str(names[ref.index]) if ref.kind == "input" else "an input that is a view"
            raise Refused("gradient of a result", name)
