"""Quantised weights as people write them: a linear layer's weight in int8, one scale per output feature.

Two ways: `DispatchInt8` says what operators do below autograd (`__torch_dispatch__`), `FunctionInt8` what functions do
above it (`__torch_function__`). Neither is written for aotviz.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import return_and_correct_aliasing

aten = torch.ops.aten


class Int8(torch.Tensor):
    """`int8 * scale`, shown to the outside as a float tensor of shape [out, in]."""

    int8: torch.Tensor  # int8[out, in]
    scale: torch.Tensor  # f32[out, 1]

    @staticmethod
    def __new__(cls, int8: torch.Tensor, scale: torch.Tensor, shape: Any = None) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, int8.shape if shape is None else shape, dtype=scale.dtype, device=int8.device, requires_grad=False
        )

    def __init__(self, int8: torch.Tensor, scale: torch.Tensor, shape: Any = None) -> None:
        self.int8, self.scale = int8, scale

    @classmethod
    def quantise(cls, weight: torch.Tensor) -> Any:
        weight = weight.detach()
        scale = weight.abs().amax(1, keepdim=True) / 127
        return cls((weight / scale).round().to(torch.int8), scale)

    def dequantise(self) -> torch.Tensor:
        return self.int8.to(self.scale.dtype) * self.scale

    def __tensor_flatten__(self) -> Any:
        return ["int8", "scale"], {"bits": 8}

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        assert context == {"bits": 8}
        return cls(inner["int8"], inner["scale"], size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={tuple(self.shape)})"


class DispatchInt8(Int8):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (aten.detach.default, aten.alias.default, aten.clone.default, aten._to_copy.default):
            weight = args[0]
            made = cls(func(weight.int8), func(weight.scale))
            return return_and_correct_aliasing(func, args, kwargs, made)
        if func is aten.t.default:
            return TransposedInt8(args[0].int8.t(), args[0].scale.t())
        if func in (aten.mm.default, aten.addmm.default):
            *bias, x, weight = args
            if isinstance(weight, TransposedInt8):
                product = torch.mm(x, weight.int8.to(x.dtype)) * weight.scale
            else:
                product = torch.mm(x, weight.dequantise())
            return product + bias[0] if bias else product
        raise NotImplementedError(f"{cls.__name__} does not know {func}")


class TransposedInt8(DispatchInt8):
    """What `weight.t()` is: scale f32[1, out]."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.t.default:
            return DispatchInt8(args[0].int8.t(), args[0].scale.t())
        return super().__torch_dispatch__(func, types, args, kwargs)


class FunctionInt8(Int8):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.linear:
            x, weight, *bias = args
            return torch.nn.functional.linear(x, weight.dequantise(), *bias, **kwargs)
        return super().__torch_function__(func, types, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (aten.detach.default, aten.alias.default):
            return return_and_correct_aliasing(func, args, kwargs, cls(func(args[0].int8), func(args[0].scale)))
        raise NotImplementedError(f"{cls.__name__} does not know {func}")


def quantised(model: torch.nn.Module, kind: type[Int8]) -> torch.nn.Module:
    """`model` with the weight of each linear layer in int8, frozen."""
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight = torch.nn.Parameter(kind.quantise(module.weight), requires_grad=False)
    return model
