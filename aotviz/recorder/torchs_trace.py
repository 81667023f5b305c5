"""Writes what aotviz compiles to torch's own log, so that a job on aotviz leaves a trace in `TORCH_TRACE` too.

An observer like the recorder, and independent of it: it also works with `record=False`. A session adds it only if
torch's log is on. It writes the joint graph before it is partitioned, the other graphs and the facts about the call
before they are lowered, the generated wrapper, and the answers of aotviz's cache. The events of the
timeline have torch's names, and begin and end with the stages that do the same. Dynamo and Inductor write theirs
themselves.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import msgspec
from msgspec.structs import replace

from aotviz import pipeline
from aotviz.ir.forms import Form, GraphCall, JointGraph, Request, Split
from aotviz.ir.lookup import LookUp
from aotviz.logs import stages
from aotviz.pipeline import Observer
from aotviz.recorder import records, torchs_words
from aotviz.recording import own_lookups
from aotviz.runtime.lowered import LoweredSplit, Program
from aotviz.torch_private import torchs_log
from aotviz.torch_private.torchs_log import Log
from aotviz.whole_backward.captured import BackwardCall, PartedBackward, WholeBackward

WHOLE = "create_aot_dispatcher_function"  # torch's event from the beginning to the end
EVENTS = {"joint": "aot_trace_joint_graph", "metadata": "aot_collect_metadata"}  # stage -> torch's event
ENDS = {"trace": "aot_trace_joint_graph", "metadata": "aot_collect_metadata"}  # the stage that it ends with


def _harmless(method: Callable[..., None]) -> Callable[..., None]:
    @wraps(method)
    def guarded(self: TorchsTrace, *args: Any) -> None:
        if self.broken:
            return
        try:
            method(self, *args)
        except Exception as error:  # a program must not fail because its log cannot be written
            self.broken = True
            warnings.warn(
                f"aotviz could not write this compilation to torch's log ({type(error).__name__}: {error}). The "
                "compilation is not affected. Please report this.",
                RuntimeWarning,
                stacklevel=2,
            )

    return guarded


class TorchsTrace(Observer):
    """Writes about one compilation, under its compile id, however late its backward is compiled."""

    def __init__(self, backward: int | None = None) -> None:
        self.broken = False
        self._log = Log(backward)
        self._because: tuple[str, ...] = ()  # how a captured backward differs from earlier ones

    def further(self) -> TorchsTrace:
        """The log of another compilation that this one led to, under the same compile id."""
        made = TorchsTrace()
        made._log = self._log
        return made

    @_harmless
    def before(self, stage: str, argument: Form) -> None:
        if isinstance(argument, Request):
            self._begin(WHOLE)
        elif stage in EVENTS:
            self._begin(EVENTS[stage])
        if stage == "partition" and isinstance(argument, JointGraph):
            self._graph("aot_joint_graph", "Joint graph", argument, argument.graph_module)
        elif stage == "lower" and isinstance(argument, GraphCall):
            self._graphs(argument)

    @_harmless
    def after(self, stage: str, argument: Form, result: Form, elapsed_ns: int) -> None:
        if stage in ENDS:
            self._log.end(ENDS[stage])
        if isinstance(result, Program):
            self._wrapper(result)
            if pipeline.ends(stage, result):
                self._log.end(WHOLE)
                mode = "autograd" if isinstance(result.lowered, LoweredSplit) else "inference"
                subclasses = result.lowered.call.wrapping is not None
                self._log.about_backend(dispatch_mode=mode, requires_subclass_dispatch=subclasses)
        elif isinstance(argument, BackwardCall) and isinstance(result, WholeBackward):
            self._because = argument.because
            self._log.whole_backward(torchs_words.captured(result), False)
        elif isinstance(result, PartedBackward) and isinstance(argument, WholeBackward):
            more = {stages.OURS: {"because": self._because}}
            self._log.whole_backward(torchs_words.captured(argument), True, **more)

    @_harmless
    def failed(self, stage: str, argument: Form, error: BaseException) -> None:
        self._log.end(*EVENTS.values(), WHOLE)

    @_harmless
    def replayed(self, request: Request, program: Program, recorded: bytes | None) -> None:
        self._graphs(program.lowered.call, " (from cache)")
        self._wrapper(program)

    @_harmless
    def looked_up(self, lookup: LookUp) -> None:
        outcome = own_lookups.TORCHS_OUTCOMES[lookup.outcome]
        self._log.artifact(f"aotautograd_cache_{outcome}", lambda: own_lookups.logged(lookup), "json")
        if torchs_log.is_traced():
            about = {"key": lookup.key, "cache_state": outcome, "cache_bypass_reason": lookup.reason or None}
            self._log.instant(f"autograd_cache_{outcome}", about)
            self._log.about_backend(**about)

    def _begin(self, event: str) -> None:
        if torchs_log.is_traced():
            self._log.begin(event)

    def _wrapper(self, program: Program) -> None:
        told = msgspec.to_builtins(replace(records.wrapper(program), source=""))
        self._log.artifact(stages.OWN_WRAPPER, lambda: program.source, **{stages.OURS: told})

    def _graphs(self, call: GraphCall, note: str = "") -> None:
        log, wrapping = self._log, call.wrapping
        log.configuration()
        if isinstance(call, Split) and not note:
            log.print_facts(call.number, lambda: torchs_words.metadata(call))
        log.artifact("aot_forward_graph_fw_metadata", lambda: torchs_words.metadata(call))
        if wrapping is not None:
            log.artifact("aot_forward_graph_fw_subclass_metadata", lambda: str(wrapping.meta))
        if isinstance(call, Split):
            self._graph("aot_forward_graph", f"Forward graph{note}", call, call.forward_module)
            self._graph("aot_backward_graph", f"Backward graph{note}", call, call.backward_module)
        else:
            self._graph("aot_inference_graph", f"Forward graph{note}", call, call.graph_module)

    def _graph(self, kind: str, title: str, call: GraphCall, module: Any) -> None:
        self._log.graph(kind, title, call.number, torchs_words.readable(module))
