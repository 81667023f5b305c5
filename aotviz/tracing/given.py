"""What autograd makes of an argument whose shape or strides a function changes in place (`t_`, `squeeze_`).

Under no_grad, that depends on what the caller passed, and a trace gets each argument as a tensor of its own:

- A tensor that is no view, or is a leaf, keeps its `grad_fn`. Later gradients come to that in the shape that the tensor
  has by then, and nothing turns them back: after `x.t_()` under no_grad, the gradient of `x` is transposed. The trace
  does the same, unless the function gets a view of the argument.
- Autograd makes the `grad_fn` of a view again when it next looks, from where the view lies by then. Gradients reach the
  right elements, as if the operator had run with autograd on. The trace does not do the same: see Note [Moved views] in
  ledger.py.
- If what it is a view of does not require grad, nothing is left to make it from: later gradients are lost.

Where the trace would have another gradient, the argument and its views are marked, and using one of them is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from aotviz.ir.storages import has_no_root
from aotviz.ir.view_and_mutation import Layout
from aotviz.torch_private.tensors import base_of
from aotviz.tracing.overlap import hinted
from aotviz.tracing.views import layout


class Kind(Enum):
    """What an argument that requires grad is to autograd."""

    OWNER = auto()  # a leaf, or no view: its `grad_fn` is its own
    VIEW = auto()
    ORPHAN = auto()  # a view of a tensor that does not require grad

    @classmethod
    def of(cls, tensor: Any) -> Kind:
        if tensor.is_leaf or base_of(tensor) is None:
            return cls.OWNER
        return cls.ORPHAN if has_no_root(tensor) else cls.VIEW


def order(where: Layout) -> tuple[Any, ...]:
    """`Layout.order`, of symbolic sizes by their hints."""
    return hinted(where).order


@dataclass
class Given:
    """An argument that requires grad, and what was done to it so far."""

    kind: Kind
    as_view: bool  # the function gets a view of it; see Note [Moved inputs] in forward.py
    start: Layout  # before the call
    order: tuple[Any, ...]  # of its elements, now
    moved: bool = False  # an operator changed its shape or strides in place, or was called to
    viewed: bool = False  # before that
    seen: bool = False  # autograd was on at one of these operators
    reordered: bool = False  # one gave its elements another order
    unseen: Any = None  # the last Moved that did so under no_grad
    wrong: bool = False  # from now on, the trace has another gradient than eager
    ended: bool = False  # an orphan: from now on, eager loses its gradients
    used: bool = False  # an orphan, before it ended
    used_after: bool = False

    def use(self) -> None:
        """Called when autograd records an operator that reads an orphan, or a view of it."""
        self.used = self.used or not self.ended
        self.used_after = self.used_after or self.ended

    def move(self, moved: Any, viewed: bool) -> None:
        """Called after each Moved of it. `viewed`: whether a view of it was taken by then."""
        self.viewed = self.viewed or (viewed and not self.moved)
        now, unseen = order(layout(moved.tensor)), not moved.mode.grad
        reorders = now != self.order
        self.wrong = self.wrong or self._parts(unseen, reorders)
        self.order, self.moved = now, True
        self.seen = self.seen or not unseen
        self.reordered = self.reordered or reorders
        self.unseen = moved if reorders and unseen else self.unseen
        self.ended = self.ended or (unseen and self.kind is Kind.ORPHAN)

    def _parts(self, unseen: bool, reorders: bool) -> bool:
        """Whether such an operator makes the trace's gradient another one than eager's."""
        if self.kind is Kind.OWNER:
            return self.as_view and unseen and reorders
        if self.unseen is not None and not unseen:
            return True
        return unseen and reorders and (self.seen or (self.kind is Kind.VIEW and not self.as_view))

    @property
    def repeated(self) -> bool:
        """Whether the wrapper must repeat these operators even if the argument lies where it did in the end."""
        if self.kind is Kind.ORPHAN:
            return self.seen or (self.ended and self.used)
        return self.seen or (self.kind is Kind.VIEW and self.reordered)

    @property
    def astray(self) -> bool:
        """Whether its elements are in another order than in the tensor that it is a view of in the trace."""
        return self.order != order(self.start)

    def loses_some(self, moved: bool) -> bool:
        """Whether eager loses some of its gradients, and the trace others. `moved`: the wrapper repeats the operators,
        after the graph. If not, it counts them before, and all gradients are lost."""
        return self.used_after and (self.used or moved)
