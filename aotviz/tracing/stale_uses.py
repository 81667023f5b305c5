"""Whether a function uses a view of one input after writing another, where the view was taken before the write.

Two inputs may share a version counter: both are views of one tensor, or one is a `.detach()` of the other. Then a write
to one makes autograd regenerate the `grad_fn` of each view of the other. If that other input is a leaf that is itself a
view, nothing is left to regenerate from: see tracing/rootless.py. A trace, in which each input is a separate tensor,
does not show that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from aotviz.tracing.ledger import Ledger, Moved, Viewed, Wrote


def found(ledger: Ledger, graph: Any, leaf: Any, others: Sequence[Any]) -> bool:
    """Whether a view of `leaf` is taken, one of the `others` written, and the view then used, in this order.

    Recreating the view in the wrapper after the call is not a use: autograd then looks at the user's tensors.
    """
    writes = list(_writes(ledger, others))
    if not writes:
        return False
    place = {node: k for k, node in enumerate(graph.nodes)}
    views = {event.node for event in ledger.events if isinstance(event, Viewed)}
    for event, born in _views(ledger, leaf):
        written = next((write for k, write in writes if k > born), None)
        if written is None:
            continue
        if event.node is None or written.node is None:
            return True
        uses = (use for use in _uses(event) if use not in views and not use.meta.get("under_no_grad"))
        if any(place[use] > place[written.node] for use in uses):
            return True
    return False


def used_itself(ledger: Ledger, graph: Any, placeholder: Any, others: Sequence[Any]) -> bool:
    """Whether one of the `others` is written or moved, and an input that is itself a view of such a leaf is used
    afterwards."""
    writes = [write for _, write in _writes(ledger, others)]
    place = {node: k for k, node in enumerate(graph.nodes)} if writes else {}
    last = max((place[use] for use in placeholder.users if writes and not use.meta.get("under_no_grad")), default=-1)
    return any(write.node is None or last > place[write.node] for write in writes)


def used_after(ledger: Ledger, graph: Any, placeholder: Any, tensor: Any, others: Sequence[Any]) -> bool:
    """Whether one of the `others` is written or moved, and an input, or an earlier view of it, is used afterwards."""
    return used_itself(ledger, graph, placeholder, others) or found(ledger, graph, tensor, others)


def written_after_move(ledger: Ledger, tensor: Any, others: Sequence[Any]) -> Moved | None:
    """The first metadata op on one of the `others` after which this tensor is written in grad mode."""
    moves = [(number, event) for number, event in _writes(ledger, others) if isinstance(event, Moved)]
    writes = [number for number, event in _writes(ledger, [tensor]) if isinstance(event, Wrote) and event.mode.grad]
    return moves[0][1] if moves and writes and writes[-1] > moves[0][0] else None


def seen_later(ledger: Ledger, tensor: Any, outputs: Sequence[Any]) -> bool:
    """Whether a view of this very tensor that was taken under no_grad is used in grad mode, or returned."""
    unseen = [event for event in ledger.views_in(tensor) if not event.mode.grad]
    if unseen and any(True for _ in _writes(ledger, [tensor])):
        return True  # after a write, the view is recomputed, and its users are those of another node
    for event in unseen:
        if event.node is None or any(result is output for result in event.results for output in outputs):
            return True
        later = [view for result in event.results for view in ledger.views_in(result)]
        views = {view.node for view in later}
        if any(view.mode.grad for view in later) or any(
            use not in views and not use.meta.get("under_no_grad") for use in _uses(event)
        ):
            return True
        unseen += later
    return False


def _writes(ledger: Ledger, tensors: Sequence[Any]) -> Iterator[tuple[int, Moved | Wrote]]:
    """The events that write or move one of these inputs, with their numbers."""
    for number, event in enumerate(ledger.events if tensors else ()):
        if isinstance(event, Moved | Wrote) and any(ledger.root(event.tensor) is tensor for tensor in tensors):
            yield number, event


def _views(ledger: Ledger, leaf: Any) -> Iterator[tuple[Viewed, int]]:
    """Each view of `leaf` that requires grad, and the position of the event that begins its chain of views."""
    for event in ledger.events:
        if isinstance(event, Viewed) and any(result.requires_grad for result in event.results):
            root, path = ledger.path(event.results[0])
            if root is leaf:
                yield event, ledger.events.index(path[0][0])


def _uses(event: Viewed) -> Iterator[Any]:
    for user in event.node.users:
        yield from user.users if event.several else (user,)
