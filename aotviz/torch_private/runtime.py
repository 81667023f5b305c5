"""Functions that generated code calls in every run, each the cheapest way to its effect.

The times are in docs/design/measured.md, "One call".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._C._dynamo.eval_frame import set_code_exec_strategy
from torch._dynamo.types import FrameAction, FrameExecStrategy
from torch.autograd import forward_ad

from aotviz.torch_private import versions
from aotviz.torch_private.autograd_nodes import function_of, will_execute
from aotviz.torch_private.tensors import set_write_counts, with_bits

set_grad_enabled = torch._C._set_grad_enabled
transforms_active = torch._C._are_functorch_transforms_active
keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
AutocastDisabled = torch._C._DisableAutocast
HAS_BOXED_GRADIENTS = versions.has("a backward may empty its list of gradients")

make_saved_tensor = getattr(torch._C._autograd, "_make_saved_tensor", None)
"""Makes autograd's record of a saved tensor; not in every release."""


def batched() -> bool:
    """Whether a backward runs inside vmap; `is_grads_batched=True` uses another vmap than torch.func's."""
    return transforms_active() or _key_included(_VMAP_MODE)


_key_included = torch._C._dispatch_tls_is_dispatch_key_included
_VMAP_MODE: Any = torch._C._parse_dispatch_key("VmapMode")


def raw_apply(function: type[torch.autograd.Function]) -> Any:
    """`function.apply` without the Python layer that checks for functorch; the caller checks itself."""
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


def transformed() -> bool:
    """Whether a call is inside a torch.func transform or a level of forward-mode differentiation."""
    return transforms_active() or forward_ad._current_level >= 0


def forward_differentiation() -> bool:
    """Whether a `torch.autograd.forward_ad.dual_level()` is open."""
    return forward_ad._current_level >= 0


def dispatched() -> bool:
    """Whether a TorchDispatchMode is active."""
    return bool(torch._C._len_torch_dispatch_stack())


def backward_without_history(ctx: Any, gradients: list[Any]) -> tuple[Any, ...]:
    """The result of a Function's backward with grad mode off."""
    backward: Any = function_of(ctx).backward
    with torch.no_grad():
        found: tuple[Any, ...] = backward(ctx, gradients) if HAS_BOXED_GRADIENTS else backward(ctx, *gradients)
    return found


def mark_dynamic(tensor: torch.Tensor, dims: Sequence[int]) -> None:
    """Tell Dynamo that these dimensions vary, so that later graphs are not specialized to them."""
    vars(tensor).setdefault(_MARK, set()).update(dims)


_MARKS_SAVED = versions.has("a mark of varying sizes has no guard")
_MARK = "_dynamo_propagated_dynamic_indices" if _MARKS_SAVED else "_dynamo_weak_dynamic_indices"


def marked_dims(tensor: torch.Tensor) -> set[int]:
    """The dimensions that are marked as varying, by us, by torch or by the user."""
    marks = (_MARK, "_dynamo_weak_dynamic_indices", "_dynamo_dynamic_indices")
    return set[int]().union(*(getattr(tensor, mark, None) or () for mark in marks))


def mark_saved(values: Sequence[Any], dims: Sequence[tuple[int, tuple[int, ...]]]) -> None:
    """`mark_dynamic` of saved tensors, by their positions. Some may be missing. In releases where Dynamo guards the
    marks, nothing is marked, as a saved tensor may be the caller's."""
    if _MARKS_SAVED:
        for i, varying in dims:
            if values[i] is not None:
                mark_dynamic(values[i], varying)


def skipped(function: Any) -> Any:
    """The same function, which Dynamo skips from now on, at no cost per call."""
    set_code_exec_strategy(function.__code__, FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP))
    return function


def set_versions(tensors: Sequence[torch.Tensor], versions: Sequence[int]) -> None:
    """Set the versions of new tensors to eager's. Inference tensors have none."""
    if torch.is_inference_mode_enabled():
        pairs = [(t, version) for t, version in zip(tensors, versions, strict=True) if not t.is_inference()]
        tensors, versions = [t for t, _ in pairs], [version for _, version in pairs]
    set_write_counts(tuple(tensors), tuple(versions))


def as_inference_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """An inference tensor with the memory and the layout of `tensor`."""
    with torch.inference_mode():
        made = tensor.new_empty(())
        where = tensor.storage_offset(), tensor.size(), tensor.stride()
        made.set_(tensor.untyped_storage(), *where)
        return with_bits(made, tensor)


def is_captured(node: Any) -> bool:
    """Whether the running backward returns the gradient of this leaf's node, instead of adding it to `.grad`."""
    try:
        will_execute(node)
    except RuntimeError:  # the engine has no answer for a leaf under `torch.autograd.grad`
        return True
    return False
