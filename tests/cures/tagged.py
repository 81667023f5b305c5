"""A tensor subclass with metadata that Dynamo guards."""

from __future__ import annotations

from typing import Any

import torch


class Tagged(torch.Tensor):
    """A wrapper whose tag is guarded on."""

    inner: torch.Tensor
    tag: str

    @staticmethod
    def __new__(cls, inner: torch.Tensor, tag: str) -> Tagged:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined]

    def __init__(self, inner: torch.Tensor, tag: str) -> None:
        self.inner, self.tag = inner, tag

    def __tensor_flatten__(self) -> tuple[list[str], str]:
        return ["inner"], self.tag

    @staticmethod
    def __tensor_unflatten__(tensors: dict[str, torch.Tensor], tag: str, *_: object) -> Tagged:
        return Tagged(tensors["inner"], tag)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tags = [arg.tag for arg in args if isinstance(arg, Tagged)]
        out = func(*(arg.inner if isinstance(arg, Tagged) else arg for arg in args), **(kwargs or {}))
        return Tagged(out, tags[0]) if isinstance(out, torch.Tensor) else out
