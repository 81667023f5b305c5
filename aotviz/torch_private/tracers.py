"""The parts of `make_fx` that surround a trace, and that the traced program can observe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch.fx as fx
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
def tracing_flag() -> Iterator[None]:
    """Set the flag that `torch.fx.is_fx_tracing` returns; libraries read it to know if values are concrete.

    In releases without a flag per thread, a call of a Dynamo program in another thread is refused meanwhile.
    """
    state: Any = sys.modules["torch.fx._symbolic_trace"]
    if versions.has("the tracing flag is per thread"):
        with state._is_fx_tracing_context(True):
            yield
        return
    before = state._is_fx_tracing_flag
    state._is_fx_tracing_flag = True
    try:
        yield
    finally:
        state._is_fx_tracing_flag = before


def asks_for_inductor(node: fx.Node) -> bool:
    """Whether a node is in a region for which the user requested Inductor."""
    return bool(_needs_inductor_compile(node))
