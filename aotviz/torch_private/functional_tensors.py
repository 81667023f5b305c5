"""Functional tensors: their values and what functionalization records about them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
from torch._export import config
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor as FunctionalTensor
from torch._subclasses.functional_tensor import FunctionalTensorMode as FunctionalTensorMode

from aotviz.torch_private import versions
from aotviz.torch_private.tracers import swapped

has_data_mutation: Callable[[torch.Tensor], bool] = torch._functionalize_has_data_mutation  # type: ignore[attr-defined]
has_metadata_mutation: Callable[[torch.Tensor], bool] = torch._functionalize_has_metadata_mutation
was_storage_changed: Callable[[torch.Tensor], bool] = torch._functionalize_was_storage_changed
hidden_from_autograd: Callable[[torch.Tensor], bool] = torch._functionalize_are_all_mutations_hidden_from_autograd
under_no_grad: Callable[[torch.Tensor], bool] = torch._functionalize_are_all_mutations_under_no_grad_or_inference_mode


tokens: Callable[[FunctionalTensorMode], Any] = attrgetter("_tokens")
"""The newest token of each kind of effect in a mode."""

bases: Callable[[FunctionalTensorMode], Any] = attrgetter("_storage_to_base")
"""The first tensor of each storage that was met in inference mode."""


def inference_base(tensor: FunctionalTensor) -> torch.Tensor | None:
    """The tensor whose memory a view taken in inference mode shares, or None."""
    return tensor._inference_mode_base


def without_bases() -> contextlib.AbstractContextManager[None]:
    """Inside, and before torch 2.13, no view has an `inference_base`: those releases know the base only of a view whose
    tensor was made in inference mode too, and fail at others with a KeyError."""
    if versions.has("a base may be made outside inference mode"):
        return contextlib.nullcontext()
    patch: contextlib.AbstractContextManager[None] = config.patch(enable_auto_functionalized_v2_for_export=False)
    return patch


def held(tensor: FunctionalTensor) -> FakeTensor:
    """The fake tensor that holds the value; writes may be pending."""
    value: Any = torch._from_functional_tensor(tensor.elem)
    return value


def applied(tensor: FunctionalTensor) -> FakeTensor:
    """The fake tensor that holds the value, after all pending writes."""
    torch._sync(tensor)
    return held(tensor)


def place_in(tensor: FunctionalTensor, count: int) -> None:
    """Give a functional tensor new memory of `count` elements."""
    holder = torch.Tensor._make_wrapper_subclass(FunctionalTensor, (count,), dtype=tensor.dtype, device=tensor.device)
    torch._functionalize_unsafe_set(tensor, holder)


def made(note: Callable[[Any], None]) -> contextlib.AbstractContextManager[None]:
    """Call `note` with each functional tensor, and each wrapper subclass, that any thread creates inside."""
    make: Any = torch.Tensor._make_wrapper_subclass  # defined in the base class, which cannot be assigned to

    def noted(*args: Any, **kwargs: Any) -> Any:
        tensor = make(*args, **kwargs)
        note(tensor)
        return tensor

    return swapped(torch.Tensor, _make_wrapper_subclass=staticmethod(noted))


def keep_tokens(mode: FunctionalTensorMode, tokens: Any) -> None:
    """Let a mode use `tokens` as its dict of tokens."""
    mode._tokens = tokens
