"""What generated code calls on every run. Each is the cheapest door to its effect (FINDINGS, section 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from aotviz.torch_private import saved_tensor_hooks, versions
from aotviz.torch_private.wrapper_subclasses import has_ragged_sizes, is_subclass

set_grad_enabled = torch._C._set_grad_enabled
transforms_active = torch._C._are_functorch_transforms_active
keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
AutocastDisabled = torch._C._DisableAutocast
HAS_BOXED_GRADIENTS = versions.has("a backward may empty its list of gradients")


def batched() -> bool:
    """Whether a backward runs inside vmap; `is_grads_batched=True` has a vmap of its own, older than torch.func's."""
    return transforms_active() or _key_included(_VMAP_MODE)


_key_included = torch._C._dispatch_tls_is_dispatch_key_included
_VMAP_MODE = torch._C._parse_dispatch_key("VmapMode")


def raw_apply(function: type[torch.autograd.Function]) -> Any:
    """`function.apply` without the Python layer that looks for functorch; the caller looks itself."""
    return super(torch.autograd.Function, function).apply


def transformed() -> bool:
    """Whether a call is inside a torch.func transform or a level of forward-mode differentiation."""
    return transforms_active() or forward_ad._current_level >= 0


def dispatched() -> bool:
    """Whether some TorchDispatchMode sees each operator of this call."""
    return bool(torch._C._len_torch_dispatch_stack())


def backward_without_history(ctx: Any, gradients: list[Any]) -> tuple[Any, ...]:
    """What a Function's backward returns with grad mode off."""
    backward = ctx._forward_cls.backward
    with torch.no_grad():
        found: tuple[Any, ...] = backward(ctx, gradients) if HAS_BOXED_GRADIENTS else backward(ctx, *gradients)
    return found


def delayed_error(gradients: Sequence[Any], history: Sequence[torch.Tensor], error: Exception) -> tuple[Any, ...]:
    """The gradients, as tensors that raise `error` when somebody differentiates them again.

    They are tied to `history`, what they were computed from: without a path to it, a second `torch.autograd.grad`
    would pass over them and take the gradient for zero.
    """
    tensors = [g for g in gradients if isinstance(g, torch.Tensor)]
    if not tensors:
        return tuple(gradients)
    leaves = [t.detach().requires_grad_() if t.dtype.is_floating_point or t.dtype.is_complex else t for t in tensors]
    made = iter(_Delayed.apply(error, len(leaves), *leaves, *history))
    return tuple(next(made) if isinstance(g, torch.Tensor) else g for g in gradients)


class _Delayed(torch.autograd.Function):
    """Torch has one of its own, which knows one class of errors, and returns a subclass without a history."""

    @staticmethod
    def forward(ctx: Any, error: Exception, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.error = error
        return tuple(tensor.detach() for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise ctx.error


def edge_of(tensor: torch.Tensor) -> Any:
    """The place of `tensor` in autograd's graph, without its memory. `unpack()` gives a stand-in that is there.

    It has the tensor's shape, or none where that is a subclass: the engine looks at what it stands in for.
    """
    if make_saved_tensor is None or saved_tensor_hooks.are_on():
        return _Edge(tensor)
    dtype, device = tensor.dtype, tensor.device
    shape = () if is_subclass(tensor) else tensor.shape
    saved = make_saved_tensor(tensor, False)
    saved.register_hooks(_drop, lambda _: torch.zeros((), dtype=dtype, device=device).expand(shape))
    return saved


def result_like(node: Any, number: int) -> torch.Tensor:
    """A tensor without memory of its own that looks like result `number` of an autograd node, and has no history."""
    known = node._input_metadata[number]
    return torch.zeros((), dtype=known.dtype, device=known.device).expand(known.shape)


make_saved_tensor = getattr(torch._C._autograd, "_make_saved_tensor", None)


def _drop(_tensor: torch.Tensor) -> None:
    return None


class _StandIn(torch.autograd.Function):
    """A tensor without memory of its own, whose gradient goes where that of another one goes."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        if has_ragged_sizes(tensor):
            return torch.zeros((), dtype=tensor.dtype, device=tensor.device)
        return torch.zeros((), dtype=tensor.dtype, device=tensor.device).expand(tensor.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


class _Edge:
    """`edge_of` where torch has no saved tensors for it, or would apply saved-tensor hooks: with one node more."""

    def __init__(self, tensor: torch.Tensor) -> None:
        with torch.enable_grad():
            self._stand_in = _StandIn.apply(tensor)

    def unpack(self) -> torch.Tensor:
        found: torch.Tensor = self._stand_in
        return found


def restrided(tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    """A copy of `tensor` in the layout that the backward was compiled for."""
    if tuple(tensor.shape) != tuple(size):
        raise RuntimeError(
            f"the backward received a gradient of shape {tuple(tensor.shape)}; it was compiled for {tuple(size)}"
        )
    if tensor.layout is not torch.strided:
        raise RuntimeError(
            f"the backward received a gradient of layout {tensor.layout}; it was compiled for dense ones. "
            "Convert it with .to_dense() before backward()."
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
    """Give fresh tensors the version counts that eager's would have. Those made in inference mode count nothing."""
    if torch.is_inference_mode_enabled():
        pairs = [(t, version) for t, version in zip(tensors, versions, strict=True) if not t.is_inference()]
        tensors, versions = [t for t, _ in pairs], [version for _, version in pairs]
    torch._C._autograd._unsafe_set_version_counter(tuple(tensors), tuple(versions))


def written_since(ctx: Any, error: RuntimeError) -> int | None:
    """Which of the tensors that a call saved was written afterwards, so that autograd raised `error`."""
    written = (place for place, saved in enumerate(ctx._raw_saved_tensors) if _is_written(saved, str(error)))
    return next(written, None)


def _is_written(saved: Any, error: str) -> bool:
    if not hasattr(saved, "unpack"):  # older releases: what autograd said tells the tensor's type, sizes and version
        tensor = saved.data
        return f"[{tensor.type()} {list(tensor.shape)}]" in error and f"is at version {tensor._version};" in error
    try:
        saved.unpack()
    except RuntimeError:
        return True
    return False


def is_captured(node: Any) -> bool:
    """Whether the running backward hands out the gradient that comes to this leaf's node, and does not add it to
    the leaf's."""
    try:
        torch._C._will_engine_execute_node(node)
    except RuntimeError:  # the engine has no answer for a leaf under `torch.autograd.grad`
        return True
    return False


def leaves_behind(nodes: Sequence[Any], limit: float = math.inf) -> list[torch.Tensor]:
    """The leaves that gradients reach from these nodes of autograd's graph, of which `limit` are looked at."""
    found = []
    seen: set[Any] = set()
    stack = list(nodes)
    while stack and len(seen) < limit:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        stack.extend(following for following, _ in node.next_functions)
    return found


def increment_version(tensors: Sequence[torch.Tensor]) -> None:
    """Count a write to each tensor. Those made in inference mode count nothing."""
    torch.autograd.graph.increment_version([t for t in tensors if not t.is_inference()])
