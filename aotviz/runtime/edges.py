"""Where gradients go: edges of a tensor without its memory, of an error, and of a view of another tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotviz.ir.symbolic_sizes import all_concrete
from aotviz.ir.wrapper_subclasses import has_ragged_sizes, is_subclass
from aotviz.torch_private import autograd_nodes, saved_tensor_hooks
from aotviz.torch_private.runtime import make_saved_tensor

gradient_edge = torch.autograd.graph.get_gradient_edge
"""The gradient edge of a tensor; it keeps the autograd graph alive."""


def edge_of(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
    """The gradient edge of `tensor` without its memory: returns a function that returns a placeholder with that edge.

    The placeholder has the tensor's shape, or no dimensions for a subclass: the engine checks the shape. Where torch
    cannot make saved tensors, or would apply saved tensor hooks, this costs one more node.
    """
    if make_saved_tensor is None or saved_tensor_hooks.are_on():
        with torch.enable_grad():
            stand_in: torch.Tensor = _StandIn.apply(tensor)
        return lambda: stand_in
    dtype, device = tensor.dtype, tensor.device
    shape = () if is_subclass(tensor) else tensor.shape
    saved = make_saved_tensor(tensor, False)
    saved.register_hooks(lambda _: None, lambda _: torch.zeros((), dtype=dtype, device=device).expand(shape))
    unpack: Callable[[], torch.Tensor] = saved.unpack
    return unpack


def result_like(node: Any, number: int) -> torch.Tensor:
    """A detached tensor of one element that has the shape of output `number` of an autograd node."""
    known = autograd_nodes.results(node)[number]
    return torch.zeros((), dtype=known.dtype, device=known.device).expand(known.shape)


def unconnected(example: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Makes leaves with the layout of `example`, for an input that autograd connects to nothing though it requires
    grad, as a view that was taken under no_grad of a tensor that requires grad. A derivative ends there."""
    dtype, device, dimensions = example.dtype, example.device, example.dim()
    plain = example.layout is torch.strided and not is_subclass(example)
    fixed = plain and all_concrete((*example.size(), *example.stride()))
    size, stride = (example.size(), example.stride()) if fixed else ((1,) * dimensions,) * 2
    return lambda: torch.empty_strided(size, stride, dtype=dtype, device=device).requires_grad_()


class _StandIn(torch.autograd.Function):
    """A tensor of one element whose gradient goes where that of another tensor goes."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)  # zeros would be plain, and the tensor may be a subclass
        shape = () if has_ragged_sizes(tensor) else tensor.shape
        return torch.zeros((), dtype=tensor.dtype, device=tensor.device).expand(shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


def delayed_error(gradients: Sequence[Any], history: Sequence[torch.Tensor], error: Exception) -> tuple[Any, ...]:
    """The gradients, as tensors that raise `error` if they are differentiated.

    They depend on `history`, the tensors from which they were computed: otherwise a second `torch.autograd.grad` would
    find no path, and take the gradient for zero.
    """
    tensors = [g for g in gradients if isinstance(g, torch.Tensor)]
    if not tensors:
        return tuple(gradients)
    leaves = [t.detach().requires_grad_() if t.dtype.is_floating_point or t.dtype.is_complex else t for t in tensors]
    made = iter(_Delayed.apply(error, len(leaves), *leaves, *history))
    return tuple(next(made) if isinstance(g, torch.Tensor) else g for g in gradients)


class _Delayed(torch.autograd.Function):
    """Torch's own class raises only one kind of error, and returns a subclass without a `grad_fn`."""

    @staticmethod
    def forward(ctx: Any, error: Exception, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.error = error
        return tuple(tensor.detach() for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise ctx.error


class ViewWithHistory(torch.autograd.Function):
    """`view()`, differentiated as `value` is: a view that a user's `autograd.Function` returned.

    It shares the memory of a tensor that the wrapper holds, but its gradient does not go to that tensor: it goes
    through the user's own backward, which is in the compiled graph and whose result is `value`. Autograd then forbids
    in-place writes to the view, as it does for the user's. The tensor is no argument: it may itself be a view that was
    taken under no_grad, which autograd refuses as an argument once its base was written.

    >>> base, value = torch.ones(4), torch.ones(2, 2, requires_grad=True)
    >>> made = ViewWithHistory.apply(value, lambda: base.view(2, 2))
    >>> made._base is base, torch.autograd.grad(made.sum(), value)[0].tolist()
    (True, [[1.0, 1.0], [1.0, 1.0]])
    """

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, view: Callable[[], torch.Tensor]) -> Any:
        return view()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None
