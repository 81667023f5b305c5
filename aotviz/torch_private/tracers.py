"""What `make_fx` sets up around a trace, and what it tells the traced program."""

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
    """A tracer of make_fx, which stands for the running trace to operators that trace subgraphs."""

    def __init__(self, decompositions: Mapping[Any, Any]) -> None:
        self.tracer = _MakefxTracer(decompositions, "real", False, False, True, False, True)
        self.tracer.fx_tracer = PythonKeyTracer()  # asked only for its type
        self.table = self.tracer.decomposition_table

    def proxies(self, make: Callable[..., Any], tracer: Any) -> Any:
        """The mode that records what is traced; `make` is its class."""
        held = {"decomposition_table": self.table} if versions.has("the proxy mode holds the decompositions") else {}
        self.tracer.proxy_mode = make(tracer, "real", **held)
        return self.tracer.proxy_mode

    def decomposing(self) -> contextlib.AbstractContextManager[Any]:
        """Decompose by the table, where the mode does not."""
        if versions.has("the proxy mode holds the decompositions"):
            return contextlib.nullcontext()
        return decompose(self.table)

    def current(self) -> contextlib.AbstractContextManager[Any]:
        """Inside, this is the running trace."""
        return _set_make_fx_tracer(self.tracer)


@contextlib.contextmanager
def tracing_flag() -> Iterator[None]:
    """What `torch.fx.is_fx_tracing` reports; libraries ask it whether values are concrete.

    Before torch has a flag per thread, a call of what Dynamo compiled is refused in every other thread meanwhile.
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
    """Whether a node lies in a region for which the user asked for Inductor."""
    return bool(_needs_inductor_compile(node))
