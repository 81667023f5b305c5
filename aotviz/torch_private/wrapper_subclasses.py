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
from torch._library.fake_class_registry import FakeScriptObject
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from aotviz.torch_private.cannot_trace import CannotTrace

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
    return "" if kind.__torch_function__ is torch._C._disabled_torch_function_impl else "__torch_function__"


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
    torch._mirror_autograd_meta_to(value, made)
    return made


def expected_tangent(output: Any) -> Any:
    """What the gradient of a subclass output is made like: the output, unless its class says otherwise."""
    adapt = getattr(output, "__coerce_tangent_metadata__", None)
    return output if adapt is None else adapt()


class SubclassLog(TorchDispatchMode):
    """Tells a ledger of the operators on subclasses.

    The graph under construction shows the views of the parts. What the caller gets is a view of the whole, so the
    wrapper must know that one, and only a mode above all others sees it.
    """

    supports_higher_order_operators = True

    def __init__(self, ledger: Any) -> None:
        super().__init__()
        self.ledger = ledger
        self.inside = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.inside or not (self.ledger.open and args and is_subclass(args[0])):
            return func(*args, **(kwargs or {}))
        self.inside = True  # a class may run an operator once more, to correct what it shows to the outside
        try:
            result = func(*args, **(kwargs or {}))
        finally:
            self.inside = False
        self.ledger.note(func, args, kwargs or {}, result)
        return result


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
