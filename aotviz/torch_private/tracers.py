"""What surrounds a trace, and what the traced program can observe of it: `make_fx`, and flags of torch."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import PythonKeyTracer, _MakefxTracer, _set_make_fx_tracer, decompose
from torch.fx.passes.regional_inductor import _needs_inductor_compile

from aotviz.torch_private import versions


class MakeFx:
    """A tracer of make_fx, which represents the running trace to operators that trace subgraphs."""

    def __init__(self, decompositions: Mapping[Any, Any]) -> None:
        self.tracer = _MakefxTracer(decompositions, "real", False, False, True, False, True)
        self.tracer.fx_tracer = PythonKeyTracer()  # only its type is read
        self.table = self.tracer.decomposition_table

    def proxies(self, make: Callable[..., Any], tracer: Any) -> Any:
        """The mode that records the trace; `make` is its class."""
        held = {"decomposition_table": self.table} if versions.has("the proxy mode holds the decompositions") else {}
        self.tracer.proxy_mode = make(tracer, "real", **held)
        return self.tracer.proxy_mode

    def decomposing(self) -> contextlib.AbstractContextManager[Any]:
        """Decompose by the table, unless the mode does so."""
        if versions.has("the proxy mode holds the decompositions"):
            return contextlib.nullcontext()
        return decompose(self.table)

    def current(self) -> contextlib.AbstractContextManager[Any]:
        """Make this the running trace."""
        return _set_make_fx_tracer(self.tracer)


@contextlib.contextmanager
def swapped(owner: Any, **others: Any) -> Iterator[None]:
    """Give a module or class other attributes inside this context, unless another thread then sets them again."""
    before = {name: vars(owner)[name] for name in others if name in vars(owner)}  # it may inherit them
    for name, other in others.items():
        setattr(owner, name, other)
    try:
        yield
    finally:
        for name, other in others.items():
            if name not in before:
                delattr(owner, name)
            elif vars(owner).get(name) is other:
                setattr(owner, name, before[name])


@contextlib.contextmanager
def items_kept(items: dict[str, Any], *names: str) -> Iterator[None]:
    """Restore these items of a dict after the block."""
    before = {name: items[name] for name in names if name in items}
    try:
        yield
    finally:
        for name in names:
            items.pop(name, None)
        items.update(before)


@contextlib.contextmanager
def tracing_flag() -> Iterator[None]:
    """Set the flag that `torch.fx.is_fx_tracing` returns; libraries read it to know if values are concrete.

    `nested_tensor_from_jagged` reads it to refuse `torch.fx.symbolic_trace`; this trace can record what it calls.
    In releases without a flag per thread, a call of a Dynamo program in another thread is refused meanwhile.
    """
    state: Any = sys.modules["torch.fx._symbolic_trace"]
    flag = state.is_fx_tracing
    jagged: Any = torch.nested.nested_tensor_from_jagged

    def is_fx_tracing() -> bool:
        return sys._getframe(1).f_code is not jagged.__code__ and bool(flag())

    per_thread = versions.has("the tracing flag is per thread")
    setting = state._is_fx_tracing_context(True) if per_thread else swapped(state, _is_fx_tracing_flag=True)
    with setting, swapped(state, is_fx_tracing=is_fx_tracing):
        yield


def asks_for_inductor(node: fx.Node) -> bool:
    """Whether a node is in a region for which the user requested Inductor."""
    return bool(_needs_inductor_compile(node))


class _InOneThread:
    """A boolean with one value in the thread that made it, and the previous value in all others."""

    def __init__(self, here: bool, before: Any) -> None:
        self.thread, self.here, self.before = threading.get_ident(), here, before

    def __bool__(self) -> bool:
        return self.here if threading.get_ident() == self.thread else bool(self.before)

    def __eq__(self, other: object) -> bool:
        return bool(self) == other

    def __hash__(self) -> int:
        return hash(bool(self))

    def __repr__(self) -> str:
        return repr(bool(self))

    def __or__(self, other: Any) -> Any:
        return bool(self) | other

    def __and__(self, other: Any) -> Any:
        return bool(self) & other

    def __xor__(self, other: Any) -> Any:
        return bool(self) ^ other

    __ror__, __rand__, __rxor__ = __or__, __and__, __xor__


@contextlib.contextmanager
def telling_of_compilation() -> Iterator[None]:
    """`torch.compiler.is_compiling()` is True, and distributions do not validate their arguments, as under Dynamo."""
    distribution: Any = torch.distributions.Distribution
    flag = _InOneThread(True, torch.compiler._is_compiling_flag)
    checks = _InOneThread(False, distribution._validate_args)
    with swapped(torch.compiler, _is_compiling_flag=flag), swapped(distribution, _validate_args=checks):
        yield


def is_made_by(value: Any, operators: Collection[Any]) -> bool:
    """Whether one of these operators made a tensor of the trace that is at work."""
    mode = proxy_tensor.get_proxy_mode()
    if mode is None or not isinstance(value, torch.Tensor):
        return False
    slot = proxy_tensor.get_proxy_slot(value, mode.tracer, None)
    return slot is not None and slot.proxy.node.target in operators
