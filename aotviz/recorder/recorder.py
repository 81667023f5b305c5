"""Observes the pipeline and records the argument, the result and the reasons of each stage.

Stages do not call it: the loop in pipeline.py does, before and after each stage, so a new stage is recorded too. One
Recorder sees one compilation. It takes a snapshot of a form's graphs when the stage ends, because later passes edit
graphs in place, and skips a graph that it has seen in the same state.

The recorder must never make a program fail. An error in it is reported by one warning, and that compilation is no
longer recorded; with `strict` or `debug=True` it raises instead.

Note [Is it the same graph]
A graph object may be edited between two snapshots (an open trace grows while stages run). Comparing all of it costs as
much as a snapshot, so its parts are compared by identity: each node, its arguments (FX makes new ones at each edit),
its value and its descriptor. These objects are kept until the compilation ends, so that no other object can get the
address of one of them. Snapshots of different graphs with equal content have equal packed bytes, and are stored once.
"""

from __future__ import annotations

import gc
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from torch import fx

from aotviz.ir.dynamo_capture import Capture, Guard
from aotviz.ir.forms import BackwardRequest, Form, GraphCall, Request, Split, TracedCall
from aotviz.ir.lookup import LookUp
from aotviz.pipeline import Observer
from aotviz.recorder import calls, memory, records, run_log, snapshot, summaries, what_if
from aotviz.recorder.snapshot import Parts, SnapshotWriter
from aotviz.recording import progress, replaying
from aotviz.recording.dynamo_stage import Captured
from aotviz.recording.schema import NONE, ErrorRecord, InputRecord, StageRecord
from aotviz.recording.store import CompilationLog, Store
from aotviz.recording.strings import clean
from aotviz.runtime.lowered import Program
from aotviz.whole_backward.captured import BackwardCall, PartedBackward, ReplayedBackward

P = ParamSpec("P")
R = TypeVar("R")


def harmless(method: Callable[P, R]) -> Callable[P, R | None]:
    """Make a method of Recorder hold its lock. If it fails, only the recording ends, and the method returns None."""

    @wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
        recorder: Any = args[0]
        failed: Exception | None = None
        with progress.deferring(), recorder.lock:
            if recorder.broken:
                return None
            collects = gc.isenabled()
            gc.disable()  # nothing that is made here outlives the call: collecting would only walk the user's heap
            try:
                return method(*args, **kwargs)
            except Exception as error:
                recorder.broken = True
                recorder._again.clear()
                recorder.writer.release()
                recorder._forget()
                if recorder.strict:
                    raise
                failed = error
            finally:
                if collects:
                    gc.enable()
        if failed is not None:
            _warn(failed)  # after the lock: Python shows warnings by whatever the user has put there
        return None

    return guarded


class Recorder(Observer):
    """Puts what it sees into one or more stores.

    `strict` makes its own failures raise. `function` is the number of the compiled function (`CompilationData.frame`).
    It may be used from any thread.
    """

    def __init__(self, *stores: Store, strict: bool = False, function: int = NONE, stack: str = "") -> None:
        self.lock = threading.RLock()
        self.stores = stores
        self.strict = strict
        self.function, self.stack = function, clean(stack)
        self.broken = False
        self.writer = SnapshotWriter()
        self.log: CompilationLog | None = None
        self._looked_up: list[tuple[LookUp, int]] = []  # before there is a log, and the unix time of each
        self._started_ns = time.perf_counter_ns()
        self._reasons = records.ReasonBook()
        self._seen: dict[int, tuple[fx.Graph, Parts, int]] = {}  # id of a graph -> it, its parts, its number
        self._closed: dict[int, tuple[weakref.ref[fx.Graph], int, int]] = {}  # the same, of a finished compilation
        self._again: list[Any] = []  # the values of the backward, while the program has it
        self._sizes: dict[int, int] = {}  # graph's number -> nodes
        self._graphs: dict[str, int] = {}  # of the last form that had any
        self._recorded: set[int] = set()  # graphs that some stage's record refers to
        self._began_ns = 0  # when the running stage began
        self._is_late = False  # the compilation has returned
        self._call_seen: tuple[object, ...] = ()
        self._inputs: list[InputRecord] = []
        self._memory: memory.Memory | None = None  # before the calling convention changed
        self._saved_seen: object = None
        self._last_result: object = None
        self._last_evidence: object = ()

    def late(self, request: BackwardRequest) -> Recorder:
        self._is_late = True
        return self

    def further(self) -> Recorder:
        """The observer for another compilation that this one led to, in the same recordings."""
        return Recorder(*self.stores, strict=self.strict)

    def withdraw(self) -> None:
        """Remove the compilation from the stores: it is tried again in another way."""
        if self.log is not None:
            for store in self.stores:
                store.remove(self.log)

    @harmless
    def before(self, stage: str, argument: Form) -> None:
        log = self._begin(argument)
        self._began_ns = self._now()
        graphs = self._snapshots(argument, handed_on=argument is self._last_result)
        if not self._recorded.issuperset(graphs.values()):  # the run starts here, or someone changed the graph
            what = "replaced by the user" if self._recorded else "what the run starts from"
            if isinstance(argument, BackwardRequest):  # the caller decides for which gradients, and how often
                what = argument.reason
            form = type(argument).__name__
            self._record(StageRecord("given", form, what, True, self._is_late, self._began_ns, 0, graphs, [], {}))
        log.begin(clean(stage))

    @harmless
    def looked_up(self, lookup: LookUp) -> None:
        if self.log is None:  # its name is not known yet
            self._looked_up.append((lookup, time.time_ns()))
        else:
            self.log.looked_up(lookup, time.time_ns())

    @harmless
    def replayed(self, request: Request, program: Program, recorded: bytes | None) -> None:
        packed, note = replaying.opened_or_not(recorded)
        log = self._begin(request, packed.head.dynamo if packed is not None else "")
        log.replayed(packed, note, records.wrapper(program))
        log.live_program = what_if.live_program(program, Recorder)
        self.close()

    @harmless
    def recorded(self) -> bytes | None:
        return self.log.recorded() if self.log is not None else None

    def _begin(self, argument: Form, known: str = "") -> CompilationLog:
        """The log of this compilation, which begins with `argument`. `known`: the digest of a recorded Dynamo graph."""
        self.strict = self.strict or argument.options.debug
        if self.log is not None:
            return self.log
        because = [clean(text) for text in summaries.because(argument)]
        captured = argument.captured if isinstance(argument, Request) else None
        before_ns = captured.elapsed_ns if captured else 0
        self._started_ns -= before_ns
        self.log = CompilationLog(
            clean(str(getattr(argument, "name", "") or type(argument).__name__)),
            {clean(str(name)): clean(str(text)) for name, text in argument.options.as_text().items()},
            self.writer.strings,
            because,
            self.function,
            before_ns,
        )
        if captured is not None:
            self.log.call = calls.noted()
            self._captured(captured, known)
        if self.stack:
            self.log.facts(stack=self.writer.strings.add(self.stack))
        if isinstance(argument, BackwardCall):
            self.log.facts(kind="compiled autograd")
        for lookup, unix_ns in self._looked_up:
            self.log.looked_up(lookup, unix_ns)
        for store in self.stores:
            store.add(self.log)
        return self.log

    def _captured(self, capture: Capture, known: str) -> None:
        """The stage "dynamo", before all others; its guards come later."""
        assert self.log is not None
        digest, number = snapshot.digest(capture.graph), NONE
        if digest != known:
            number = self._snapshot(capture.graph, handed_on=False)
            self.log.values(self.writer.values.take())
        what = Captured(
            function=clean(capture.function),
            place=clean(capture.place),
            compile_id=capture.compile_id,
            nodes=len(capture.graph.nodes),
            elapsed_ns=capture.elapsed_ns,
            attempts=capture.attempts,
            restarts=[clean(reason) for reason in capture.restarts],
            broken=capture.broken,
            ended=clean(capture.ended),
            ended_at=clean(capture.ended_at),
            symbols=[(one.name, clean(one.source), one.value) for one in capture.symbols],
            kept=clean(capture.kept),
            earlier=capture.earlier,
            of_call=[(clean(name), clean(earlier)) for name, earlier in capture.handed_over.of_call],
            others=[(clean(name), clean(earlier)) for name, earlier in capture.handed_over.others],
            gone=[clean(name) for name in capture.handed_over.gone],
            returned=[clean(name) for name in capture.returned],
        )
        self.log.captured(what, number, self.writer.strings.add(capture.stack), digest)
        capture.guards.when_known(self._guarded)

    @harmless
    def _guarded(self, guards: list[Guard] | None) -> None:
        assert self.log is not None
        texts = None if guards is None else [(g.kind, clean(g.source), clean(g.text)) for g in guards]
        self.log.guarded(texts)
        for store in self.stores:
            store.trim()

    @harmless
    def after(self, stage: str, argument: Form, result: Form, elapsed_ns: int) -> None:
        assert self.log is not None, "after() without before()"
        before = self._graphs
        changed = summaries.changed(argument, result)
        graphs = self._snapshots(result, handed_on=not changed)
        same = graphs == before or not graphs
        evidence = self._reasons.add(result.evidence if result.evidence is not self._last_evidence else ())
        self._last_result, self._last_evidence = result, result.evidence
        record = StageRecord(
            name=clean(stage),
            form=type(result).__name__,
            summary=clean(summaries.summary(argument, result, self._count(before), self._count(graphs), same)),
            changed=changed,
            late=self._is_late,
            started_ns=max(0, self._now() - elapsed_ns),
            elapsed_ns=elapsed_ns,
            graphs=graphs,
            evidence=evidence,
            code={clean(name): clean(text) for name, text in summaries.texts(result).items()},
            kernels=summaries.kernels(result),
            replays=summaries.replays(result),
        )
        self._record(record)
        self._facts(result)
        if isinstance(result, Program):  # its backward is compiled later, maybe more than once
            backward = summaries.graphs(result.lowered).get("backward")
            seen = self._seen.get(id(getattr(backward, "graph", backward)))
            self._again = seen[1].values if seen is not None else []
        if self._is_late or isinstance(result, (Program, ReplayedBackward)):
            self.close()

    @harmless
    def failed(self, stage: str, argument: Form, error: BaseException) -> None:
        assert self.log is not None, "failed() without before()"
        self._record(
            StageRecord(
                name=clean(stage),
                form=type(argument).__name__,
                summary=clean(f"failed: {type(error).__name__}"),
                changed=False,
                late=self._is_late,
                started_ns=self._began_ns,
                elapsed_ns=self._now() - self._began_ns,
                graphs={},
                evidence=[],
                code={},
            )
        )
        self.log.facts(error=ErrorRecord(clean(stage), type(error).__name__, clean(str(error))))
        self.close()

    @harmless
    def explained(self, error: BaseException) -> None:
        if self.log is not None:
            self.log.explain(type(error).__name__, clean(str(error)))

    @harmless
    def ran_in_eager(self, reason: str, place: str) -> None:
        if self.log is not None:
            self.log.ran_in_eager(clean(reason), clean(place))

    @harmless
    def close(self) -> None:
        """End the compilation: nothing of torch is kept alive from here on. A finished program does this itself."""
        self.writer.release(self._again)
        self._forget()
        if self.log is not None:
            self.log.end()
        for store in self.stores:
            store.trim()

    def _forget(self) -> None:
        """Release graphs and forms. A graph that stays alive elsewhere is recognised by its object and size."""
        for graph, parts, number in self._seen.values():
            self._closed[id(graph)] = (weakref.ref(graph), len(parts.nodes), number)
        self._seen.clear()
        self._call_seen = ()
        self._saved_seen = self._last_result = None

    def _record(self, record: StageRecord) -> None:
        assert self.log is not None
        self._graphs = record.graphs or self._graphs
        self._recorded.update(record.graphs.values())
        self.log.values(self.writer.values.take())
        self.log.stage(record)

    def _facts(self, form: Form) -> None:
        """The tables of the whole compilation, written again when their source has changed."""
        assert self.log is not None
        training = records.is_training(form)
        if training is not None:
            self.log.facts(kind="training" if training else "inference")
        call = form.call if isinstance(form, Program) else form
        if isinstance(call, TracedCall):
            key = (call.user_input_info, call.meta, call.graph_inputs, call.outputs, call.duplicate_of)
            is_new = [*map(id, key)] != [*map(id, self._call_seen)]
            first_look = is_new and not isinstance(call, GraphCall)
            if first_look or isinstance(form, Program):  # at the end once more, with every stage's reasons
                self._call_seen = key
                fresh = records.inputs(call, self._reasons) if is_new else self._inputs
                self._inputs = records.with_reasons(fresh, self._reasons)
                if first_look or self._memory is None:
                    known, self._memory = self._memory, memory.of(call, self.writer.source, self._memory)
                    self.log.facts(storages=memory.with_bases(self._memory.storages, call))
                    if self._memory is not known and self._memory.storages:
                        text = self.writer.strings.add
                        self.log.facts(run=run_log.of(call, self._memory, self.writer.source, text))
                        self._memory = replace(self._memory, inputs=[])  # or they count as kept by another
                self.log.facts(sizes=records.call_sizes(call))
                self.log.facts(inputs=self._inputs, outputs=records.outputs(call, self._reasons, self._memory.outputs))
        if isinstance(form, Split) and form.saved is not self._saved_seen:
            self._saved_seen = form.saved
            self.log.facts(kept=records.kept(form.saved, form.backward_module, self._graphs, self.writer))
            self.log.values(self.writer.values.take())
        if isinstance(form, Program):
            self.log.live_program = what_if.live_program(form, Recorder)
        if isinstance(form, (Program, ReplayedBackward)):
            self.log.facts(wrapper=records.wrapper(form))
        if isinstance(form, PartedBackward):
            self.log.facts(visits=records.visits(form))

    def _snapshots(self, form: Form, handed_on: bool) -> dict[str, int]:
        """Role -> number of each graph of a form.

        If the previous stage has just returned this form (`handed_on`), only the sizes of its graphs are compared.
        """
        return {clean(role): self._snapshot(graph, handed_on) for role, graph in summaries.graphs(form).items()}

    def _snapshot(self, given: Any, handed_on: bool) -> int:
        assert self.log is not None
        graph: Any = given.graph if isinstance(given, fx.GraphModule) else given
        known = self._seen.get(id(graph))
        if known is not None and handed_on and len(known[1].nodes) == len(graph.nodes):
            return known[2]
        closed = self._closed.get(id(graph))
        if closed is not None and closed[1] == len(graph.nodes) and closed[0]() is graph:
            return closed[2]
        parts = Parts.of(graph)
        if known is not None and known[1].same_as(parts):
            return known[2]
        number = self.log.graph(self.writer.packed(parts), self.writer.take_rows())
        self._seen[id(graph)] = (graph, parts, number)
        self._sizes[number] = len(parts.nodes)
        return number

    def _count(self, graphs: Mapping[str, int]) -> dict[str, int]:
        return {role: self._sizes[number] for role, number in graphs.items()}

    def _now(self) -> int:
        return time.perf_counter_ns() - self._started_ns


_warned = False


def _warn(error: Exception) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"aotviz could not record this compilation ({type(error).__name__}: {error}). The compilation "
            "continues without a recording. Please report this; debug=True shows where it happened.",
            RuntimeWarning,
            stacklevel=3,
        )
