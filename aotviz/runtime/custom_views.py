"""Recreating a view that a user's `autograd.Function` returned.

It shares the memory of a tensor that the wrapper holds, but its gradient does not go to that tensor: it goes through
the user's own backward, which is in the compiled graph. So the view is taken inside a function of ours, which sends the
gradient to the graph's result. Autograd then forbids in-place writes to the view, as it does for the user's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class ViewWithHistory(torch.autograd.Function):
    """`view(base)`, differentiated as `value` is.

    >>> base, value = torch.ones(4), torch.ones(2, 2, requires_grad=True)
    >>> made = ViewWithHistory.apply(base, value, lambda base: base.view(2, 2))
    >>> made._base is base, torch.autograd.grad(made.sum(), value)[0].tolist()
    (True, [[1.0, 1.0], [1.0, 1.0]])
    """

    @staticmethod
    def forward(ctx: Any, base: torch.Tensor, value: torch.Tensor, view: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        return view(base)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, gradients[0], None
