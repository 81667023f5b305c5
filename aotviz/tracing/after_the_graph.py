"""Graphs from Dynamo that could not answer as eager, because of what the code after them does with their tensors.

What Dynamo knows of that code is in `torch_private/what_follows.py`. These graphs are refused, so they run in eager.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotviz.ir.forms import TracedCall
from aotviz.ir.refusals import Names
from aotviz.ir.view_and_mutation import OutputType, Ref
from aotviz.tracing import functional


@dataclass(frozen=True, eq=False)
class GraphAndRest:
    """A call, before its backward is traced."""

    call: TracedCall
    history: Sequence[Any]  # the nodes of its autograd graph
    written: Mapping[int, Any]  # the graph inputs that it writes
    passed: Sequence[Ref]  # results, and others, through which gradients of other results pass

    def saved(self) -> list[Any]:
        return [tensor for node in self.history for tensor in functional.saved_tensors_of(node)]


def assigns_saved_data(one: GraphAndRest) -> Iterator[Names]:
    """The backward reads a result of which `.data` is assigned later. What a node saves of its own result is another
    tensor over the old memory."""
    forward = one.call.forward
    if one.call.follows.data == "assigned":
        with forward.open.active("is_forward"):
            if any(tensor is result for tensor in one.saved() for result in forward.outputs):
                yield "an intermediate"


def writes_saved_data(one: GraphAndRest) -> Iterator[Names]:
    """The backward reads an input whose `.data` is written later. Eager's backward reads the memory of an input that
    autograd saved after its last write; a compiled one reads the value that the graph computed."""
    if one.call.follows.data:
        # Of an input that was written through a view it cannot be seen: CopySlices hides the view's node.
        with one.call.forward.open.active("is_forward"):
            kept = set(map(functional.storage, filter(functional.is_plain, one.saved())))
            found = {i for i, t in one.written.items() if functional.is_plain(t) and functional.storage(t) in kept}
            found |= {i for i, t in one.written.items() if functional.is_copy_slices(functional.grad_fn(t))}
        if found:
            yield ", ".join(repr(str(one.call.graph_inputs[i])) for i in sorted(found))


def is_differentiated_later(one: GraphAndRest) -> Iterator[Names]:
    """The graph ends before the gradient of one of these tensors is asked for; other results were computed from it."""
    call, follows = one.call, one.call.follows
    results = (call.meta.output_info[i] for i in follows.differentiated)
    of_inputs = follows.is_input_differentiated or any(r.output_type is OutputType.is_input for r in results)
    for ref in one.passed:
        if ref.kind == "output" and ref.index in follows.differentiated:
            yield f"output[{ref.index}]"
        if ref.kind in ("input", "member") and of_inputs:
            yield str(call.graph_inputs[ref.index]) if ref.kind == "input" else "an input that is a view"
