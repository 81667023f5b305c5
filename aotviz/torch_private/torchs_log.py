"""torch's own log of a compilation, written as its AOTAutograd writes it.

`TORCH_TRACE` makes torch write records to a file, which tlparse and `aotviz.read_trace` read. `TORCH_LOGS` makes it
print graphs. A compilation by aotviz writes the same kinds of records through the same loggers. `is_on` is cheap, and
without one of the two variables nothing else here is called.

torch also counts its graphs ("model__0_forward_1"). Inductor names its debug folders by that count, so `compiling`
counts ours in the same place.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import functorch.compile
from torch._dynamo.utils import (
    CompileEventLogger,
    dynamo_timed,
    get_chromium_event_logger,
    get_metrics_context,
    lazy_format_graph_code,
)
from torch._functorch import config
from torch._guards import CompileContext, CompileId, TracingContext, compile_context
from torch._logging import getArtifactLogger, trace_structured

from aotviz.torch_private.tracers import items_kept, swapped

_TRACE = logging.getLogger("torch.__trace")
_ABOUT = "torch._functorch._aot_autograd.graph_compile"  # the module that owns torch's two loggers of graphs
_GRAPHS = getArtifactLogger(_ABOUT, "aot_graphs")
_JOINT = getArtifactLogger(_ABOUT, "aot_joint_graph")
# What is being compiled is a variable of the module of the function by which Inductor asks for it.
_NAMES: dict[str, Any] = functorch.compile.get_aot_graph_name.__globals__
_NUMBERS: Iterator[int] = functorch.compile.aot_function.__globals__["AOT_COUNTER"]
_BACKWARD = "backward._backward_impl"  # torch's name for the event
_TIMES: dict[str, Any] = {
    "dynamo_compile_column_us": "backward_cumulative_compile_time_us",
    "phase_name": "entire_backward_compile",
    "log_pt2_compile_event": True,
}
_BACKEND = "backend_compile"  # Dynamo's event around a backend
_BEFORE = "compiled_autograd_graph_pre_reordering"
_STRIDES = {"include_stride": True, "include_device": True}

OWN_FILE = __file__
"""The file that the records are from. A watch does not receive them, because aotviz's recorder tells it more."""


def next_number() -> int:
    """torch's number for one more program. Its graphs are called after it."""
    return next(_NUMBERS)


@contextlib.contextmanager
def compiling(number: int, role: str) -> Iterator[None]:
    """Inside this context, a graph of the program `number` is compiled: torch counts it, and names it by its `role`."""
    named, known = [f"{number}_{role}"], TracingContext.try_get()
    in_context = contextlib.nullcontext() if known is None else swapped(known, aot_graph_name=named)
    with items_kept(_NAMES, "graph_being_compiled"), in_context:
        _NAMES["graph_being_compiled"] = named
        try:
            yield
        finally:
            _NAMES["nth_graph"] += 1


def is_traced() -> bool:
    """Whether anything but a watch receives records."""
    return any(not getattr(handler, "is_a_watch", False) for handler in _TRACE.handlers)


def is_on() -> bool:
    """Whether torch's log is written or printed."""
    return is_traced() or _GRAPHS.isEnabledFor(logging.INFO) or _JOINT.isEnabledFor(logging.INFO)


class Log:
    """Writes about one program, under the compile id that was in force when this was made.

    `backward` is torch's number of a captured backward, of which the program is a part.
    """

    def __init__(self, backward: int | None = None) -> None:
        self._context = CompileContext.try_get()
        self._open: dict[str, int] = {}  # event of the timeline -> when it began
        if backward is not None:
            number = CompileId(frame_id=None, frame_compile_id=None, compiled_autograd_id=backward)
            self._context = CompileContext(number)

    def artifact(self, name: str, made: Callable[[], Any], encoding: str = "string", **more: Any) -> None:
        """Write a text, or with the encoding "json" a value, which `made` returns. `more` are further fields."""
        self._write("artifact", {"name": name, "encoding": encoding, **more}, made)

    def begin(self, event: str) -> None:
        """Begin an event of torch's timeline, unless it has begun."""
        if event in self._open:
            return
        with self._under_its_id():
            self._open[event] = time.time_ns()
            get_chromium_event_logger().log_event_start(event, self._open[event], {}, True)

    def end(self, *events: str) -> None:
        """End these events, the inner ones first. Those that have not begun are left out."""
        with self._under_its_id():
            for event in filter(self._open.__contains__, events):
                began = self._open.pop(event)
                get_chromium_event_logger().log_event_end(event, time.time_ns(), {}, began, True)

    def instant(self, event: str, about: Mapping[str, Any]) -> None:
        with self._under_its_id():
            CompileEventLogger.instant(event, metadata=dict(about))

    def about_backend(self, **facts: Any) -> None:
        """Add to what the timeline says of Dynamo's event around the backend, if that is open."""
        CompileEventLogger.try_add_pt2_compile(_BACKEND, **facts)

    def configuration(self) -> None:
        self.artifact("torch._functorch.config", _settings)

    def graph(self, kind: str, title: str, number: int, module: Any) -> None:
        """Write a graph as a record of this kind, and print it under its title."""
        log = _JOINT if kind == "aot_joint_graph" else _GRAPHS
        if log.isEnabledFor(logging.INFO):
            log.info("%s", lazy_format_graph_code(title, module, number, **_STRIDES, colored=True))
        self._write(kind, {}, lambda: module.print_readable(print_output=False, **_STRIDES, expanded_def=True))

    def whole_backward(self, module: Any, is_final: bool, **more: Any) -> None:
        """Write the graph of a captured backward. `more` are further fields."""
        kind, name = ("compiled_autograd_graph", "") if is_final else ("artifact", _BEFORE)
        about = more if is_final else {"name": name, "encoding": "string"}
        self._write(kind, about, lambda: module.print_readable(print_output=False))

    def print_facts(self, number: int, made: Callable[[], str]) -> None:
        if _GRAPHS.isEnabledFor(logging.INFO):
            _GRAPHS.info("aot_config id: %s, fw_metadata=%s", number, made())

    def _write(self, kind: str, about: Mapping[str, Any], made: Callable[[], Any]) -> None:
        if is_traced():
            with self._under_its_id():
                trace_structured(kind, lambda: dict(about), payload_fn=made)

    def _under_its_id(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if CompileContext.try_get() else compile_context(self._context)


def _settings() -> str:
    """AOTAutograd's settings as JSON. A user may have set one to an object that JSON does not have."""
    return json.dumps(config.get_serializable_config_copy(), default=repr, indent=0)


@contextlib.contextmanager
def backward_timed() -> Iterator[None]:
    """Have torch summarize the compilation of a backward in this context, as it does for its own backwards.

    A watch takes the summary for the end of the compilation.
    """
    metrics = get_metrics_context()
    if not _TRACE.handlers or metrics.in_progress() or CompileContext.try_get() is None:
        yield
        return
    with metrics, dynamo_timed(_BACKWARD, **_TIMES):
        CompileEventLogger.compilation_metric(is_forward=False)
        yield
