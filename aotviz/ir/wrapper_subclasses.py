"""Tensors made of tensors: traceable wrapper subclasses, taken apart and put together again.

A wrapper subclass has no memory of its own. `__tensor_flatten__` names the attributes that hold its parts, which may
be subclasses themselves, and gives a context that is no tensor; `__tensor_unflatten__` makes one from parts, that
context, and the size and stride that it shows to the outside. Among the attributes may be objects that are no tensors,
such as a device mesh: they stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from aotviz.torch_private.cannot_trace import CannotTrace
from aotviz.torch_private.fake_tensors import FakeTensor
from aotviz.torch_private.functional_tensors import FunctionalTensor
from aotviz.torch_private.script_objects import FakeScriptObject
from aotviz.torch_private.tensors import is_traceable_wrapper_subclass, mirror_autograd, switches_torch_function_off

_OPEN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_STAND_INS = (FakeTensor, FunctionalTensor)


def is_subclass(value: Any) -> bool:
    """Whether a value is a tensor made of tensors that a trace can see into."""
    return isinstance(value, torch.Tensor) and bool(is_traceable_wrapper_subclass(value))


def closed_class(value: Any) -> str:
    """Which method of a tensor's class does what a trace can't see; "" of a class that it can follow.

    A class of parts is followed into these; a Parameter, and others that switch `__torch_function__` off, are what they
    hold.
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
    """A part of a subclass; an object that stands in for another during a trace, as that other one."""
    attribute = getattr(value, name)
    return attribute.real_obj if isinstance(attribute, FakeScriptObject) else attribute


def parts(value: Any) -> Iterator[torch.Tensor]:
    """The plain tensors that a value is made of, innermost, in order. A plain tensor is its own only part."""
    if not is_subclass(value):
        yield value
        return
    for name in anatomy(value)[0]:
        part = attribute(value, name)
        if isinstance(part, torch.Tensor):
            yield from parts(part)


def paths(value: Any) -> Iterator[tuple[str, ...]]:
    """The attributes that lead to each of `parts(value)`."""
    if not is_subclass(value):
        yield ()
        return
    for name in anatomy(value)[0]:
        part = attribute(value, name)
        if isinstance(part, torch.Tensor):
            yield from ((name, *rest) for rest in paths(part))


def mapped(value: Any, fn: Callable[[torch.Tensor], Any]) -> Any:
    """A value of the same make, each plain tensor in it replaced by `fn` of it. Has no history."""
    if not is_subclass(value):
        return fn(value) if isinstance(value, torch.Tensor) else value
    names, context = anatomy(value)
    made = {name: mapped(getattr(value, name), fn) for name in names}
    try:
        return type(value).__tensor_unflatten__(made, context, value.size(), value.stride())
    except Exception as error:
        raise CannotTrace("subclass is not rebuilt", type(value).__name__, repr(str(error))) from error


def rebuilt(value: Any, made: Iterator[torch.Tensor]) -> Any:
    """A value of the same make from other plain tensors, taken in order."""
    return mapped(value, lambda _: next(made))


def like_in_autograd(value: Any, made: Any) -> Any:
    """Let `made` be to autograd what `value` is: a leaf or not, requiring grad or not."""
    mirror_autograd(value, made)
    return made


def expected_tangent(output: Any) -> Any:
    """What the gradient of a subclass output is made like: the output, unless its class says otherwise."""
    adapt = getattr(output, "__coerce_tangent_metadata__", None)
    return output if adapt is None else adapt()


def ragged(number: Any) -> bool:
    """Whether a size is that of a jagged dimension: a name for its offsets, which the class finds by itself."""
    return isinstance(number, torch.SymInt) and bool(number.node.is_nested_int())


def has_ragged_sizes(value: Any) -> bool:
    return is_subclass(value) and any(map(ragged, value.size()))


def symbols(value: Any) -> Iterator[tuple[str, int, Any]]:
    """("size" or "stride", dimension, number) of each symbolic one that a subclass itself shows to the outside."""
    for kind, numbers in (("size", value.size()), ("stride", value.stride())):
        yield from ((kind, i, n) for i, n in enumerate(numbers) if isinstance(n, torch.SymInt))


def leaves(value: Any) -> Iterator[Any]:
    """What a graph returns for a value: its plain tensors, and what its subclasses need to be put together again.

    A subclass is its parts, in order, then its symbolic sizes and strides.
    """
    if not is_subclass(value):
        yield value
        return
    for name in anatomy(value)[0]:
        part = attribute(value, name)
        if isinstance(part, torch.Tensor):
            yield from leaves(part)
    yield from (number for _, _, number in symbols(value) if not ragged(number))
