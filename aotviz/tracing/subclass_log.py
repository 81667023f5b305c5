"""The views that a function takes of tensors made of tensors."""

from __future__ import annotations

from typing import Any

from aotviz.ir.wrapper_subclasses import is_subclass
from aotviz.torch_private.dispatch import TorchDispatchMode


class SubclassLog(TorchDispatchMode):
    """Tells a ledger of the operators on subclasses.

    The graph under construction shows the views of the parts. What the caller gets is a view of the whole, so the
    wrapper must know that one, and only a mode above all others sees it.
    """

    supports_higher_order_operators = True

    def __init__(self, ledger: Any) -> None:
        super().__init__()
        self.ledger = ledger
        self.inside = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.inside or not (self.ledger.open and args and is_subclass(args[0])):
            return func(*args, **(kwargs or {}))
        self.inside = True  # a class may run an operator once more, to correct what it shows to the outside
        try:
            result = func(*args, **(kwargs or {}))
        finally:
            self.inside = False
        self.ledger.note(func, args, kwargs or {}, result)
        return result
