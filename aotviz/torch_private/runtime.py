"""What generated code calls on every run. Each is the cheapest door to its effect (FINDINGS, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

set_grad_enabled = torch._C._set_grad_enabled
transforms_active = torch._C._are_functorch_transforms_active
keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
unsafe_view = torch.ops.aten._unsafe_view.default
AutocastDisabled = torch._C._DisableAutocast
HAS_BOXED_GRADIENTS = hasattr(torch._C._FunctionBase, "maybe_clear_saved_tensors")


def raw_apply(function: type[torch.autograd.Function]) -> Any:
    """`function.apply` without the Python layer that looks for functorch; the caller looks itself."""
    return super(torch.autograd.Function, function).apply


def refuse_transforms(name: str) -> None:
    raise RuntimeError(
        f"{name} is compiled and is called inside a torch.func transform (vmap, grad, jvp), which can't see into it; "
        "apply the transform to the original function and compile the result."
    )


def history_of(values: Sequence[Any]) -> list[torch.Tensor]:
    """Those that autograd tracks."""
    return [value for value in values if isinstance(value, torch.Tensor) and value.requires_grad]


def delayed_error(gradients: Sequence[Any], history: Sequence[torch.Tensor], name: str) -> tuple[Any, ...]:
    """The gradients, as tensors that raise a clear error when somebody differentiates them again.

    They are tied to `history`, what the backward computed them from: without a path to it, a second
    `torch.autograd.grad` would pass over them and take the gradient for zero.
    """
    message = (
        f"{name}: the backward of an aotviz program can't be differentiated a second time. "
        "Run this part in eager, or do without create_graph=True."
    )
    tensors = [g for g in gradients if isinstance(g, torch.Tensor)]
    if not tensors:
        return tuple(gradients)
    leaves = [t.detach().requires_grad_() if t.dtype.is_floating_point or t.dtype.is_complex else t for t in tensors]
    tied = [*leaves, *history]
    guards = torch._C._functions.DelayedError(message.encode(), len(tied))(*tied)
    guarded = iter([guards] if isinstance(guards, torch.Tensor) else guards)  # for one input it returns no tuple
    return tuple(next(guarded) if isinstance(g, torch.Tensor) else g for g in gradients)


def restrided(tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    """A copy of `tensor` in the layout that the backward was compiled for."""
    if tuple(tensor.shape) != tuple(size):
        raise RuntimeError(
            f"a gradient of shape {tuple(tensor.shape)} came in where the backward was compiled for {tuple(size)}"
        )
    made = torch.empty_strided(size, stride, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)


def mark_dynamic(tensor: torch.Tensor, dims: Sequence[int]) -> None:
    """Tell Dynamo that these dimensions vary, so that what consumes the tensor does not specialise on them."""
    known = getattr(tensor, "_dynamo_weak_dynamic_indices", None)
    if known is None:
        tensor._dynamo_weak_dynamic_indices = set(dims)
    else:
        known |= set(dims)


def skip_frame(function: Any) -> None:
    """Tell Dynamo to leave a generated function alone, at no cost per call."""
    from torch._C._dynamo.eval_frame import set_code_exec_strategy
    from torch._dynamo.types import FrameAction, FrameExecStrategy

    set_code_exec_strategy(function.__code__, FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP))


def skipped(function: Any) -> Any:
    """`function`, after `skip_frame`."""
    skip_frame(function)
    return function


def set_versions(tensors: Sequence[torch.Tensor], versions: Sequence[int]) -> None:
    """Give fresh tensors the version counts that eager's would have."""
    torch._C._autograd._unsafe_set_version_counter(tuple(tensors), tuple(versions))
