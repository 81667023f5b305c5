"""Traceable wrapper subclasses: tensors that consist of other tensors.

A wrapper subclass has no memory of its own. `__tensor_flatten__` names the attributes that hold its parts, which may be
subclasses themselves, and returns a context. `__tensor_unflatten__` builds it from parts, context, size and stride.
Attributes may also hold other objects, such as a device mesh, which stay unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

import torch

from aotviz.ir import spelling
from aotviz.ir.symbolic_sizes import expression
from aotviz.torch_private.cannot_trace import CannotTrace
from aotviz.torch_private.fake_tensors import FakeTensor
from aotviz.torch_private.functional_tensors import FunctionalTensor
from aotviz.torch_private.script_objects import FakeScriptObject
from aotviz.torch_private.tensors import is_traceable_wrapper_subclass, mirror_autograd, switches_torch_function_off

_OPEN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_STAND_INS = (FakeTensor, FunctionalTensor)


def is_subclass(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether a value is a tensor subclass whose parts a trace can see."""
    is_tensor = isinstance(value, torch.Tensor) and not isinstance(value, _STAND_INS)
    return is_tensor and bool(is_traceable_wrapper_subclass(value))


def closed_class(value: Any) -> str:
    """The method by which a tensor's class does something that a trace cannot see, or "".

    Subclasses with parts are traced through their parts. A Parameter, or another class that disables
    `__torch_function__`, is traced as the tensor that it holds.
    """
    kind = type(value)
    if not isinstance(value, torch.Tensor) or kind in _OPEN or isinstance(value, _STAND_INS) or is_subclass(value):
        return ""
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return "__torch_dispatch__"
    return "" if switches_torch_function_off(kind) else "__torch_function__"


def anatomy(value: Any) -> tuple[tuple[str, ...], Any]:
    """The names of a subclass's parts, and its context."""
    names, context = value.__tensor_flatten__()
    return tuple(names), context


def attribute(value: Any, name: str) -> Any:
    """An attribute of a subclass. For a FakeScriptObject, which exists only in a trace, this is the real object."""
    attribute = getattr(value, name)
    return attribute.real_obj if isinstance(attribute, FakeScriptObject) else attribute


def inside(value: Any) -> dict[str, torch.Tensor]:
    """The tensors that a subclass itself holds, by attribute; empty for a tensor with memory of its own. Other parts,
    such as the mesh of a DTensor, are left out."""
    held = ((name, attribute(value, name)) for name in (anatomy(value)[0] if is_subclass(value) else ()))
    return {name: part for name, part in held if isinstance(part, torch.Tensor)}


def parts_by_path(value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The plain tensors that a value consists of, innermost, in order, each with the path to it, such as ".a.b". A
    plain tensor is its own only part, at ""."""
    if not is_subclass(value):
        yield "", value
        return
    for name, inner in inside(value).items():
        yield from ((spelling.attribute(name) + path, part) for path, part in parts_by_path(inner))


def parts(value: Any) -> Iterator[torch.Tensor]:
    """These tensors without their paths."""
    return (part for _, part in parts_by_path(value))


def is_functional(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether a trace follows a tensor, or a part of it."""
    return isinstance(value, FunctionalTensor) or (is_subclass(value) and any(map(is_functional, parts(value))))


def mapped(value: Any, fn: Callable[[torch.Tensor], Any]) -> Any:
    """A value of the same structure, each plain tensor replaced by `fn` of it. It has no `grad_fn`."""
    if not is_subclass(value):
        return fn(value) if isinstance(value, torch.Tensor) else value
    kind: Any = type(value)
    names, context = anatomy(value)
    made = {name: mapped(getattr(value, name), fn) for name in names}
    try:
        return kind.__tensor_unflatten__(made, context, value.size(), value.stride())
    except Exception as error:
        raise CannotTrace("subclass is not rebuilt", kind.__name__, repr(str(error))) from error


def rebuilt(value: Any, made: Iterator[torch.Tensor]) -> Any:
    """A value of the same structure from other plain tensors, taken in order."""
    return mapped(value, lambda _: next(made))


def like_in_autograd(value: Any, made: Any) -> Any:
    """Give `made` the autograd state of `value`: whether it is a leaf, and whether it requires grad."""
    mirror_autograd(value, made)
    return made


def ragged(number: Any) -> TypeGuard[torch.SymInt]:
    """Whether a size is that of a jagged dimension. It stands for the offsets, which the class finds by itself."""
    return isinstance(number, torch.SymInt) and bool(number.node.is_nested_int())


def varies(number: Any) -> TypeGuard[torch.SymInt]:
    """Whether a size is a symbol that the trace has not specialised: the graph knows the others as numbers."""
    return isinstance(number, torch.SymInt) and (ragged(number) or not expression(number).is_number)


def has_ragged_sizes(value: Any) -> bool:
    return is_subclass(value) and any(map(ragged, value.size()))


def symbols(value: Any) -> Iterator[tuple[str, int, Any]]:
    """("size" or "stride", dimension, number) of each symbolic size and stride of the subclass itself."""
    for kind, numbers in (("size", value.size()), ("stride", value.stride())):
        yield from ((kind, i, n) for i, n in enumerate(numbers) if varies(n))
