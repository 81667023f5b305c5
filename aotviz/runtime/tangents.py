"""Incoming gradients of another tensor class than the backward was compiled for, or without memory.

Autograd accepts any gradient of the right shape. A compiled backward reads the memory of plain tensors, or takes the
parts of a certain class with a certain context. Other gradients are converted: by their own class, if it can
(`__coerce_same_metadata_as_tangent__`), or, for a plain tensor, by the arithmetic of the expected class. If that fails,
the gradient is refused, and the error says what was expected and what came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotviz.ir.forms import Emitter, Tangent
from aotviz.ir.subclass_meta import OpaqueMeta, PlainTensorMeta, Plan, SubclassCreationMeta, SubclassLayout, made_by
from aotviz.ir.subclass_meta import plan as plan_of
from aotviz.ir.wrapper_subclasses import anatomy, is_subclass, parts, rebuilt
from aotviz.torch_private import distributed
from aotviz.torch_private.tensors import has_no_memory


@dataclass(frozen=True)
class Expected:
    """The gradient that a backward was compiled for."""

    name: str  # of the output
    plan: SubclassCreationMeta | PlainTensorMeta
    parts: tuple[tuple[tuple[Any, ...], Any, Any], ...]  # (size, dtype, device) of each plain tensor in it


def expect_plain(emit: Emitter, name: str, subject: str) -> None:
    """Write the line that converts a subclass, or zeros without memory, for a backward that was compiled for a plain
    gradient."""
    coerced, tensor = emit.bind("as_tangent", as_tangent), emit.bind("Tensor", torch.Tensor)
    expected = emit.bind("expected", Expected(subject, PlainTensorMeta(), ()))
    differs = f"type({name}) is not {tensor} or {emit.bind('has_no_memory', has_no_memory)}({name})"
    fact = "the backward was compiled for a gradient that is a plain tensor, with memory"
    emit.line(f"if {name} is not None and ({differs}): {name} = {coerced}({name}, {expected})", fact, subject)


def same_context(value: Any, context: Any) -> bool:
    """Whether a subclass has that context. Some classes put `requires_grad` into it, which no part depends on."""
    return _alike(anatomy(value.detach() if value.requires_grad else value)[1], context)


def _alike(one: Any, other: Any) -> bool:
    """Whether contexts are equal. The strides in them (a DTensor's TensorMeta has some) need not be equal in dimensions
    of size one, where copies have others."""
    if bool(one == other):
        return True
    one, other = (tuple(distributed.taken_apart(value) or ()) or value for value in (one, other))
    if type(one) is not type(other) or not issubclass(type(one), tuple) or len(one) != len(other):
        return False
    names = set(getattr(type(one), "__match_args__", ()))
    if {"shape", "stride"} <= names and one.shape == other.shape:
        same = all(getattr(one, name) == getattr(other, name) for name in names - {"stride"})
        return same and all(n == 1 or a == b for n, a, b in zip(one.shape, one.stride, other.stride, strict=True))
    return all(map(_alike, one, other))


def fits(value: Any, plan: Plan) -> bool:
    """Whether a value has the structure of a plan."""
    if isinstance(plan, PlainTensorMeta):
        return not is_subclass(value)
    if isinstance(plan, OpaqueMeta):
        return bool(value == plan.value)
    if type(value) is not plan.type:
        return False
    return (
        anatomy(value)[0] == tuple(name for name, _ in plan.attrs)
        and same_context(value, plan.context)
        and all(fits(getattr(value, name), part) for name, part in plan.attrs)
    )


def other_layout(value: Any, plan: Plan) -> SubclassLayout | None:
    """What a subclass of the planned class with another context is. None for another value, or if the context has no
    hash by which a backward for it can be found."""
    planned = isinstance(plan, SubclassCreationMeta) and isinstance(value, torch.Tensor) and type(value) is plan.type
    if not planned or fits(value, plan):
        return None
    found = SubclassLayout.of(value)
    try:
        hash(found)
    except TypeError:
        return None
    return found


def as_tangent(gradient: Any, expected: Expected) -> Any:
    """Convert `gradient` for the backward. A tensor of a class without parts, such as a Parameter, counts as plain.

    Raises:
        RuntimeError: it cannot be converted.
    """
    if torch.is_grad_enabled() and other_layout(gradient, expected.plan) is not None:
        return gradient  # the backward is traced for it
    made = _converted(gradient, expected.plan)
    if made is None and not is_subclass(gradient):
        made = _promoted(gradient, expected)
    plan = expected.plan
    if made is not None and fits(made, plan):
        if torch.is_grad_enabled() and gradient.requires_grad and not made.requires_grad:
            raise RuntimeError(
                f"the gradient of {expected.name} has a grad_fn (create_graph=True), and "
                f"{type(gradient).__name__} loses it when it converts the gradient to {_planned(plan)}. "
                "Convert it before backward()."
            )
        return made
    came = plan_of(gradient)
    raise RuntimeError(
        f"the gradient of {expected.name} is {_planned(came)}, and the backward was compiled for {_planned(plan)}. "
        f"Convert the gradient before backward(), or give {type(gradient).__name__} a method "
        "__coerce_same_metadata_as_tangent__(context, type) that does."
    )


def _converted(value: Any, plan: Plan) -> Any:
    """A value converted by its class, and its parts by theirs; None if one of them cannot."""
    if isinstance(plan, OpaqueMeta):
        return value
    plain = isinstance(plan, PlainTensorMeta)
    kind: Any = torch.Tensor if isinstance(plan, PlainTensorMeta) else plan.type
    context = None if isinstance(plan, PlainTensorMeta) else plan.context
    same = not is_subclass(value) if plain else type(value) is kind and same_context(value, context)
    if not same:
        convert = getattr(value, "__coerce_same_metadata_as_tangent__", None)
        if convert is None:
            return None
        value = convert(context) if type(value) is kind else convert(context, kind)
        if isinstance(plan, SubclassCreationMeta) and type(value) is kind and not same_context(value, context):
            value = _in_order(value, plan.outer_stride)
    if value is None or isinstance(plan, PlainTensorMeta):
        return value.clone() if isinstance(value, torch.Tensor) and has_no_memory(value) else value
    parts = {name: _converted(getattr(value, name, None), part) for name, part in plan.attrs}
    if any(part is None for part in parts.values()):
        return None
    if all(part is getattr(value, name) for name, part in parts.items()):
        return value
    return kind.__tensor_unflatten__(parts, context, value.size(), value.stride())


def _in_order(value: torch.Tensor, stride: Sequence[int | None]) -> Any:
    """A copy with these strides, or a dense one with this order of dimensions. The context of a DTensor has its
    strides, which its class does not convert."""
    made = dense(value, sorted(range(len(stride)), key=lambda i: -(stride[i] or 0)))
    wanted = [n for n in stride if n is not None]
    if len(wanted) < len(stride) or made.stride() == tuple(wanted):
        return made
    return made.new_empty_strided(made.shape, wanted).copy_(made)  # of a result that is not dense


def dense(value: torch.Tensor, order: list[int] | tuple[int, ...]) -> torch.Tensor:
    """`value` in dense memory with this order of dimensions, the outermost first, still connected to its `grad_fn`."""
    return value.permute(order).contiguous().permute([order.index(i) for i in range(len(order))])


def _promoted(gradient: torch.Tensor, expected: Expected) -> Any:
    """A plain gradient times ones of the expected class: what it would become in its first operator."""
    if not all(isinstance(n, int) for size, _, _ in expected.parts for n in size):
        return None
    ones = (torch.ones(size, dtype=dtype, device=device) for size, dtype, device in expected.parts)
    try:
        return made_by(expected.plan, ones) * gradient
    except (RuntimeError, TypeError, NotImplementedError, ValueError):
        return None


def in_layout(tensor: Any, tangent: Tangent) -> Any:
    """`tensor` in the layout that a backward was compiled for, still connected to its `grad_fn`."""
    if tangent.parts:
        inside = zip(parts(tensor), tangent.parts, strict=True)
        fits = all(_lies_as(inner, part) for inner, part in inside)
        return tensor if fits else _InLayout.apply(tensor, tangent.parts)
    if _lies_as(tensor, tangent):
        return tensor
    if tangent.order:
        return dense(tensor, tangent.order)
    return restrided(tensor, tangent.size, tangent.stride)


def _lies_as(tensor: torch.Tensor, tangent: Tangent) -> bool:
    if tangent.order:
        return tensor.permute(tangent.order).is_contiguous()
    return tensor.stride() == tuple(tangent.stride)


class _InLayout(torch.autograd.Function):
    """A subclass whose parts have the layouts that a backward was compiled for."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, wanted: Sequence[Tangent]) -> Any:
        return rebuilt(tensor, (in_layout(part, one) for part, one in zip(parts(tensor), wanted, strict=True)))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None


def _planned(plan: Plan) -> str:
    if isinstance(plan, PlainTensorMeta):
        return "a plain tensor"
    if isinstance(plan, OpaqueMeta):
        return repr(plan.value)
    parts = ", ".join(f"{name} {_planned(part)}" for name, part in plan.attrs)
    return f"a {plan.type.__name__} ({parts}; context {plan.context!r})"


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
