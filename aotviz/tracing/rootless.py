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
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch

from aotviz.torch_private import operators
from aotviz.torch_private.tensors import base_of
from aotviz.tracing import functional
from aotviz.tracing.facts import Before, edge
from aotviz.tracing.functional import increment_version
from aotviz.tracing.ledger import Ledger


@dataclass
class Rootless:
    """Such an argument in the trace."""

    argument: Any  # made by `viewed_like`
    ends: bool  # it is not a leaf itself, and loses its own grad_fn
    before: Before
    others: Sequence[tuple[Any, Before]] = ()  # arguments whose writes bump its version counter
    counted: int = 0  # number of such writes

    def __post_init__(self) -> None:
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
        if operators.version(self.argument) == self.version or root.requires_grad:
            return []
        self.version = operators.version(self.argument)
        views = [view for view in ledger.views_of(root) if view.requires_grad and id(view) not in leaves]
        given = ledger.given.get(id(self.argument))
        ends = self.ends and not (given is not None and given.moved)
        torch.Tensor.requires_grad_(root)
        with torch.enable_grad():
            for view in views:
                functional.grad_fn(view)
            if ends:
                self.before.edge = edge(self.argument)
        torch.Tensor.requires_grad_(root, False)
        return views


def viewed_like(root: Any, value: torch.Tensor) -> Any:
    """A leaf that is a view of `root`, which does not require grad, or a view of such a leaf, like `value`."""
    with torch.enable_grad():
        leaf = torch.Tensor.requires_grad_(root.view(root.shape))
        return leaf if value.is_leaf else leaf.view(root.shape)
