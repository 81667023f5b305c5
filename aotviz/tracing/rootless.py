"""Arguments that are views of a tensor that does not require grad, where that decides on gradients.

Note [Leaves that are views]
A leaf can be a view of a tensor that does not require grad: `torch.arange(6.).view(2, 3).requires_grad_()`. What is
taken of it is then a view of that tensor, too. After a write that autograd does not see, autograd makes the `grad_fn`
of each such view again from that tensor, and finds nothing: no gradient goes to the leaf. A write counts for all
tensors that share a version counter, so also for views that share no element with what is written. What is taken of the
leaf under no_grad requires grad if that tensor does: it does not.

So where a call depends on that, its function is run again on arguments that are such leaves, and such views of leaves.
In a trace a `grad_fn` is made again by repeating the operators that made the view, and may not be empty: so after such
a write, each view is asked for it while that tensor requires grad. The gradients go there, and nobody asks for them.
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
    """Such an argument, in the trace."""

    argument: Any  # made by `viewed_like`
    ends: bool  # it is no leaf itself, and loses its own history
    before: Before
    others: Sequence[tuple[Any, Before]] = ()  # arguments of which each write counts for this one
    counted: int = 0  # such writes

    def __post_init__(self) -> None:
        self.version = operators.version(self.argument)  # when autograd last looked at the views

    def look(self, ledger: Ledger, leaves: Set[int]) -> list[Any]:
        """What autograd does when it next looks, if there was a write. `leaves` are ids of such arguments that are.
        Returns the views that no longer know the leaf."""
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
    """A leaf that is a view of `root`, which does not require grad, or a view of such a leaf, as `value` is one."""
    with torch.enable_grad():
        leaf = torch.Tensor.requires_grad_(root.view(root.shape))
        return leaf if value.is_leaf else leaf.view(root.shape)
