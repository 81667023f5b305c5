"""What autograd does when a function changes the shape or strides of an argument in place (`t_`, `squeeze_`).

Under no_grad, that depends on what the caller passed, while a trace gets each argument as a separate tensor:

- A tensor that is not a view, or is a leaf, keeps its `grad_fn`. Later gradients reach it in the new shape, and nothing
  converts them back: after `x.t_()` under no_grad, the gradient of `x` is transposed. The trace does the same, unless
  the function gets a view of the argument.
- For a view, autograd regenerates the `grad_fn` at its next use from the strides that the view has by then. Gradients
  reach the right elements, as if grad mode had been on. The trace differs: see Note [Views changed in place] in
  ledger.py.
- If the base of the view does not require grad, there is nothing to regenerate from: later gradients are lost.

Where the gradient of the trace would differ, the argument and its views are marked, and using one of them is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import torch

from aotviz.ir.storages import has_no_root
from aotviz.ir.view_and_mutation import Layout
from aotviz.torch_private.tensors import base_of
from aotviz.tracing.events import MetadataOp
from aotviz.tracing.overlap import hinted


class Kind(Enum):
    """What an argument that requires grad is to autograd."""

    OWNER = auto()  # a leaf, or not a view: its `grad_fn` is its own
    VIEW = auto()
    ORPHAN = auto()  # a view of a tensor that does not require grad

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Kind:
        if tensor.is_leaf or base_of(tensor) is None:
            return cls.OWNER
        return cls.ORPHAN if has_no_root(tensor) else cls.VIEW


@dataclass
class ArgumentState:
    """An argument that requires grad, and what happened to it so far."""

    kind: Kind
    as_view: bool  # the function gets a view of it; see Note [Inputs changed in place] in forward.py
    start: Layout  # before the call
    order: tuple[Any, ...]  # the current order of its elements
    moved: bool = False  # an in-place metadata op was called on it
    viewed: bool = False  # a view of it was taken before that
    seen: bool = False  # one of these ops ran in grad mode
    reordered: bool = False  # one of them changed the order of its elements
    unseen: MetadataOp | None = None  # the last op that did so under no_grad
    wrong: bool = False  # from now on, the trace's gradient differs from eager's
    ended: bool = False  # an orphan: from now on, eager loses its gradients
    used: bool = False  # an orphan, before it ended
    used_after: bool = False

    def use(self) -> None:
        """Called when autograd records an operator that reads an orphan, or a view of it."""
        self.used = self.used or not self.ended
        self.used_after = self.used_after or self.ended

    def move(self, moved: MetadataOp, where: Layout, viewed: bool) -> None:
        """Called after each op, which left it at `where`. `viewed`: whether a view of it has been taken."""
        self.viewed = self.viewed or (viewed and not self.moved)
        now, unseen = hinted(where).order, not moved.mode.grad
        reorders = now != self.order
        self.wrong = self.wrong or self._parts(unseen, reorders)
        self.order, self.moved = now, True
        self.seen = self.seen or not unseen
        self.reordered = self.reordered or reorders
        self.unseen = moved if reorders and unseen else self.unseen
        self.ended = self.ended or (unseen and self.kind is Kind.ORPHAN)

    def _parts(self, unseen: bool, reorders: bool) -> bool:
        """Whether such an op makes the trace's gradient differ from eager's."""
        if self.kind is Kind.OWNER:
            return self.as_view and unseen and reorders
        if self.unseen is not None and not unseen:
            return True
        return unseen and reorders and (self.seen or (self.kind is Kind.VIEW and not self.as_view))

    @property
    def repeated(self) -> bool:
        """Whether the wrapper must repeat these ops even if the argument ends with the layout that it had."""
        if self.kind is Kind.ORPHAN:
            return self.seen or (self.ended and self.used)
        return self.seen or (self.kind is Kind.VIEW and self.reordered)
