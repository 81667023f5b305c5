"""Arguments that are views of a tensor that does not require grad, where that affects gradients.

Note [Leaves that are views]
A leaf can be a view of a tensor that does not require grad: `torch.arange(6.).view(2, 3).requires_grad_()`. A view of
the leaf is then a view of that tensor, too. After a write that autograd does not see, autograd regenerates the
`grad_fn` of each such view from that tensor, which has none: no gradient reaches the leaf. A write affects all tensors
that share a version counter, even views without a common element. And a view of the leaf taken under no_grad requires
grad only if that tensor does, so it does not.

If a call depends on this, its function runs again on arguments that are such leaves, or such views of leaves. In a
trace, autograd regenerates a `grad_fn` by repeating the operators that made the view, and fails if there is none. So
after such a write, the `grad_fn` of each view is read while that tensor temporarily requires grad. The gradients then
go to that tensor, where they are ignored.

A trace, in which each input is a separate tensor, does not show this. The functions below find views of one input that
were taken before another input, which may share its version counter, was written, and that were used afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch.overrides import TorchFunctionMode

from aotviz.python_state import leaks
from aotviz.torch_private import operators
from aotviz.torch_private.dispatch import is_tracing
from aotviz.torch_private.tensors import base_of
from aotviz.tracing import functional
from aotviz.tracing.events import MetadataOp, Viewed, Wrote
from aotviz.tracing.functional import Before, edge, increment_version
from aotviz.tracing.ledger import Ledger


@dataclass
class ViewOfNoGradBase:
    """Such an argument in the trace."""

    argument: torch.Tensor  # made by `viewed_like`
    ends: bool  # it is not a leaf itself, and loses its own grad_fn
    before: Before
    others: Sequence[tuple[Any, Before]] = ()  # arguments whose writes bump its version counter
    counted: int = 0  # number of such writes

    def __post_init__(self) -> None:
        leaks.exclude_from_search(self)
        self.version = operators.version(self.argument)  # at which the views' grad_fn were last read

    def look(self, ledger: Ledger, leaves: Set[int]) -> list[Any]:
        """Regenerate `grad_fn` of the views if there was a write. Returns the views that lost their connection to the
        leaf. `leaves` are the ids of such arguments that are leaves."""
        counted = sum(operators.version(other) - before.version for other, before in self.others)
        if counted > self.counted:
            self.counted = counted
            increment_version((self.argument,))
            self.before.version += 1
        root = base_of(self.argument)
        if root is None or operators.version(self.argument) == self.version or root.requires_grad:
            return []
        self.version = operators.version(self.argument)
        made = (ledger.tensors[result] for event in ledger.views() for result in event.results)
        known = (view for view in made if base_of(view) is root)  # to autograd
        views = [view for view in known if view.requires_grad and id(view) not in leaves]
        given = ledger.given.get(ledger.number(self.argument))
        ends = self.ends and not (given is not None and given.moved)
        torch.Tensor.requires_grad_(root)
        with torch.inference_mode(False):  # with grad mode on; the user's function may have entered either mode
            for view in views:
                functional.grad_fn(view)
            if ends:
                self.before.edge = edge(self.argument)
        torch.Tensor.requires_grad_(root, False)
        return views


class Watch(TorchFunctionMode):
    """Looks at these arguments of one run before each call of a torch function. `made` are those that the function
    creates itself, if it may: it appends them while it runs."""

    def __init__(
        self, ledger: Ledger, given: Sequence[ViewOfNoGradBase], made: Sequence[ViewOfNoGradBase] | None
    ) -> None:
        super().__init__()
        self.ledger, self.given, self.made = ledger, given, made
        self.is_needed = bool(given) or made is not None
        self.forgotten: list[torch.Tensor] = []  # views that lost their autograd connection to a leaf

    def look(self) -> None:
        known = [*self.given, *(self.made or ())]
        leaves = {id(one.argument) for one in known if not one.ends}
        for one in known:
            self.forgotten += one.look(self.ledger, leaves)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_tracing():  # otherwise the trace itself is the caller
            self.look()
        return func(*args, **(kwargs or {}))


def viewed_like(root: torch.Tensor, value: torch.Tensor) -> Any:
    """A leaf that is a view of `root`, which does not require grad, or a view of such a leaf, like `value`."""
    with torch.enable_grad():
        leaf = torch.Tensor.requires_grad_(root.view(root.shape))
        return leaf if value.is_leaf else leaf.view(root.shape)


def used_after(
    ledger: Ledger, graph: fx.Graph, tensor: torch.Tensor, others: Sequence[Any], placeholder: fx.Node | None = None
) -> bool:
    """Whether one of the `others` is written or moved, and then a view that was taken of an input before, or the input
    itself, is used. Without its `placeholder`, only views count.

    Recreating the view in the wrapper after the call is not a use: autograd then looks at the user's tensors.
    """
    writes = list(writes_of(ledger, others))
    place = {node: k for k, node in enumerate(graph.nodes)} if writes else {}
    views = {event.node for event in ledger.views()}

    def follow(write: MetadataOp | Wrote, uses: Iterable[fx.Node]) -> bool:
        seen = (use for use in uses if not use.meta.get("under_no_grad"))
        return write.node is None or any(place[use] > place[write.node] for use in seen)

    if placeholder is not None and any(follow(write, placeholder.users) for _, write in writes):
        return True
    for event, born in _views(ledger, tensor) if writes else ():
        written = next((write for k, write in writes if k > born), None)
        uses = (use for use in _uses(event) if use not in views)
        if written is not None and (event.node is None or follow(written, uses)):
            return True
    return False


def seen_later(ledger: Ledger, tensor: torch.Tensor, outputs: Sequence[Any]) -> bool:
    """Whether a view taken under no_grad, of this tensor or of a view of it, is used in grad mode or returned."""
    unseen, sources = list[Viewed](), [ledger.number(tensor)]
    returned = set(map(ledger.number, outputs))
    for event in (event for source in sources for event in ledger.views_in(source)):
        if event.mode.grad:
            sources += event.results
        else:
            unseen.append(event)
    if unseen and any(True for _ in writes_of(ledger, [tensor])):
        return True  # after a write, the view is recomputed, and its users are those of another node
    for event in unseen:
        if event.node is None or not returned.isdisjoint(event.results):
            return True
        later = [view for result in event.results for view in ledger.views_in(result)]
        views = {view.node for view in later}
        uses = (use for use in _uses(event) if use not in views and not use.meta.get("under_no_grad"))
        if any(view.mode.grad for view in later) or any(uses):
            return True
        unseen += later
    return False


def writes_of(ledger: Ledger, tensors: Sequence[Any]) -> Iterator[tuple[int, MetadataOp | Wrote]]:
    """The events that write or move one of these inputs, with their numbers."""
    known = set(map(ledger.number, tensors))
    return ((number, event) for number, event in ledger.changes() if known and ledger.root(event.tensor) in known)


def _views(ledger: Ledger, leaf: torch.Tensor) -> Iterator[tuple[Viewed, int]]:
    """Each view of `leaf` that requires grad, and the position of the event that begins its chain of views."""
    whole = ledger.number(leaf)
    for event in ledger.views():
        if any(ledger.tensors[result].requires_grad for result in event.results):
            root, path = ledger.path(event.results[0])
            if root == whole:
                yield event, ledger.events.index(path[0][0])


def _uses(event: Viewed) -> Iterator[fx.Node]:
    for user in event.node.users if event.node is not None else ():
        yield from user.users if event.several else (user,)
