"""Whether a function uses a view of one input after it has written another, from before that write.

Autograd compares version counters, and those of two inputs may be one: they are views of one tensor, or one is what
`.detach()` made of the other. Then a write to one makes autograd regenerate the history of each view of the other, and
where that other is a leaf that is itself a view, nothing is left of it: see tracing/rootless.py. A trace, in
which each input is a tensor of its own, does not see that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from aotviz.tracing.ledger import Ledger, Moved, Viewed, Wrote


def found(ledger: Ledger, graph: Any, leaf: Any, others: Sequence[Any]) -> bool:
    """Whether a view of `leaf` is taken, one of the `others` written, and that view used, in this order.

    To take it again in the wrapper, after the call, is no use of it: autograd looks at the user's tensors there.
    """
    place = {node: k for k, node in enumerate(graph.nodes)}
    writes = list(_writes(ledger, others))
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
    """Whether one of the `others` is written or moved, and an input then used that is a view of such a leaf itself."""
    place = {node: k for k, node in enumerate(graph.nodes)}
    uses = [place[use] for use in placeholder.users if not use.meta.get("under_no_grad")]
    return any(write.node is None or max(uses, default=-1) > place[write.node] for _, write in _writes(ledger, others))


def used_after(ledger: Ledger, graph: Any, placeholder: Any, tensor: Any, others: Sequence[Any]) -> bool:
    """Whether one of the `others` is written or moved, and an input then used, or a view of it from before."""
    return used_itself(ledger, graph, placeholder, others) or found(ledger, graph, tensor, others)


def written_after_move(ledger: Ledger, tensor: Any, others: Sequence[Any]) -> Moved | None:
    """The first move of one of the `others` after which this tensor is written while autograd looks."""
    moves = [(number, event) for number, event in _writes(ledger, others) if isinstance(event, Moved)]
    writes = [number for number, event in _writes(ledger, [tensor]) if isinstance(event, Wrote) and event.mode.grad]
    return moves[0][1] if moves and writes and writes[-1] > moves[0][0] else None


def seen_later(ledger: Ledger, tensor: Any, outputs: Sequence[Any]) -> bool:
    """Whether a view of this very tensor that was taken under no_grad is used while autograd looks, or returned."""
    unseen = [event for event in ledger.views_in(tensor) if not event.mode.grad]
    if unseen and any(True for _ in _writes(ledger, [tensor])):
        return True  # the nodes that read such a view then are not the users of the one that made it
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
    """The events in which one of these inputs is written or moved, with their numbers."""
    for number, event in enumerate(ledger.events):
        if isinstance(event, Moved | Wrote) and any(ledger.root(event.tensor) is tensor for tensor in tensors):
            yield number, event


def _views(ledger: Ledger, leaf: Any) -> Iterator[tuple[Viewed, int]]:
    """Each view of `leaf` that requires grad, and where among the events the chain of views to it begins."""
    for event in ledger.events:
        if isinstance(event, Viewed) and any(result.requires_grad for result in event.results):
            root, path = ledger.path(event.results[0])
            if root is leaf:
                yield event, ledger.events.index(path[0][0])


def _uses(event: Viewed) -> Iterator[Any]:
    for user in event.node.users:
        yield from user.users if event.several else (user,)
