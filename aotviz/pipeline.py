"""The pipeline: lists of named stages, and the one loop that runs them.

A stage is a function from a frozen form to the next one. The loop calls an observer before and after each stage, so
every stage is recorded without code of its own. To add a stage, write one file in `stages/` and name it in one line
here, with its role: part of a list is selected by role, so what is added in any place belongs to the right parts.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import Any

from aotviz.ir import graphs, refusals, verify
from aotviz.ir.forms import (
    BackwardRequest,
    FlatCall,
    Form,
    GradientRequest,
    JointCall,
    LoweredBackward,
    Request,
    TracedCall,
)
from aotviz.ir.lookup import LookUp
from aotviz.python_state.garbage import not_collected
from aotviz.runtime.deferred_stages import GradientProgram
from aotviz.runtime.lowered import LoweredSplit, Program
from aotviz.stages import (
    dedupe,
    differentiate,
    donate,
    export_graph,
    export_rules,
    flatten,
    functionalize,
    joint,
    link,
    lower,
    metadata,
    partition,
    random_state,
    regions,
    saved_hooks,
    scalars,
    subclasses,
    synthetic_bases,
    trace,
)
from aotviz.torch_private.context import unread_draws_kept, without_compiled_autograd
from aotviz.torch_private.stored_values import symbols_in

# Note [Locks]
# While a thread holds a lock, it must not run code of others: the user's function, an observer or a listener, a
# compiler, a log handler, a warning, the finalizer of a user's object. Any of these may wait for another lock, or for
# a thread that waits for this one. So what is to be called, or freed, is collected under a lock and called after it.
#
# This lock is the exception: the user's function is traced under it. A thread that holds it may take another, since
# no thread that holds another waits for this one. So what is compiled when it first runs (a backward, a part
# of a captured one) keeps no second caller waiting: that caller runs the graph uncompiled. And what closes the gate
# of captured backwards (whole_backward/engine.py) takes this lock first.
#
# Locks are reentrant, as the garbage collector may run a finalizer wherever something is allocated. tests/test_locks.py
# has the list of all locks, with what is done under each.
lock = threading.RLock()  # only one compilation at a time: a trace switches modes and swaps a module's tensors


class Role(IntEnum):
    """What a stage is for. Each list has its stages in this order, and a part of a list is selected by it."""

    FLATTEN = auto()  # flatten the arguments, and make fakes of them
    FORWARD = auto()  # run the function, and find the facts about the call
    CONVENTION = auto()  # change how the call passes its inputs
    GRAPH = auto()  # close the trace into a graph; a second derivative continues from here
    FINISH = auto()  # finish the graph: functional, named, described
    PASS = auto()  # edit a finished graph
    JOINT_PASS = auto()  # edit a finished joint graph
    PARTITION = auto()  # split the joint graph, and decide about the saved tensors
    LOWER = auto()  # pass the graphs to compilers
    LINK = auto()  # make what the caller gets


@dataclass(frozen=True)
class Stage:
    name: str
    run: Callable[..., Any]  # (form) -> the next form; with `defers_work`, (form, deferred stages)
    role: Role
    defers_work: bool = False  # its result runs more stages later: see `DeferredStages` in runtime/deferred_stages.py
    needed: Callable[[TracedCall], bool] | None = None  # whether a call passes through it; None: each does
    inference: Stage | None = None  # the stage in its place for a call that needs no gradients


def part(stages: Iterable[Stage], first: Role, last: Role) -> tuple[Stage, ...]:
    """The stages with these roles and those between them."""
    return tuple(stage for stage in stages if first <= stage.role <= last)


def without_gradients(stages: Iterable[Stage]) -> tuple[Stage, ...]:
    """A training list as it is for a call that needs no gradients."""
    joint = Role.JOINT_PASS, Role.PARTITION
    return tuple(stage.inference or stage for stage in stages if stage.role not in joint)


CLOSE = Stage("graph", joint.close, Role.GRAPH)  # TracedCall -> GraphCall
TRAINING = (  # without gradients, a GraphCall in place of JointCall, JointGraph and Split
    Stage("flatten", flatten.run, Role.FLATTEN),  # Request    -> FlatCall
    Stage("metadata", metadata.run, Role.FORWARD),  # FlatCall   -> TracedCall
    Stage("dedupe", dedupe.run, Role.CONVENTION),  # TracedCall -> TracedCall
    Stage("synthetic bases", synthetic_bases.run, Role.CONVENTION),  # TracedCall -> TracedCall
    Stage("random state", random_state.run, Role.GRAPH, needed=random_state.needed),  # TracedCall -> TracedCall
    Stage("joint", joint.run, Role.GRAPH, inference=CLOSE),  # TracedCall -> JointCall
    Stage("subclasses", subclasses.run, Role.GRAPH),  # JointCall  -> JointCall
    Stage("functionalize", functionalize.run, Role.FINISH),  # JointCall  -> JointCall
    Stage("trace", trace.run, Role.FINISH),  # JointCall  -> JointGraph
    Stage("scalars", scalars.run, Role.PASS, needed=scalars.needed),  # JointGraph -> JointGraph
    Stage("regions", regions.run, Role.JOINT_PASS),  # JointGraph -> JointGraph
    Stage("partition", partition.run, Role.PARTITION),  # JointGraph -> Split
    Stage("saved hooks", saved_hooks.run, Role.PARTITION),  # Split      -> Split
    Stage("donated buffers", donate.run, Role.PARTITION),  # Split      -> Split
    Stage("lower", lower.run, Role.LOWER, defers_work=True),  # Split      -> LoweredSplit
    Stage("link", link.run, Role.LINK),  # LoweredSplit -> Program
)
INFERENCE = without_gradients(TRAINING)
EXPORT = (
    *part(TRAINING, Role.FLATTEN, Role.CONVENTION),
    Stage("export rules", export_rules.run, Role.CONVENTION),  # TracedCall -> TracedCall
    Stage("export graph", export_graph.run, Role.GRAPH),  # TracedCall -> ExportCall
    Stage("trace", trace.run, Role.FINISH),  # ExportCall -> ExportCall
    Stage("signature", export_graph.sign, Role.LINK),  # ExportCall -> Exported
)
BACKWARD = (
    # BackwardRequest -> LoweredBackward, when it is first needed
    Stage("lower backward", lower.run_backward, Role.LOWER),
)
GRADIENT = (
    # GradientRequest -> TracedCall, when create_graph=True asks for it
    Stage("differentiate", differentiate.run, Role.FORWARD),
)


class Observer:
    """Sees every stage's argument and result. This one does nothing with them."""

    def before(self, stage: str, argument: Form) -> None:
        """A stage begins."""

    def after(self, stage: str, argument: Form, result: Form, elapsed_ns: int) -> None:
        """A stage has ended. `elapsed_ns` is its own time."""

    def failed(self, stage: str, argument: Form, error: BaseException) -> None:
        """A stage has raised an error."""

    def explained(self, error: BaseException) -> None:
        """The caller gets this error instead of the one that `failed` received."""

    def ran_in_eager(self, reason: str, place: str) -> None:
        """The caller gets no error: its code runs in eager. `place` is where that code is, "file:line in function"."""

    def withdraw(self) -> None:
        """Forget the compilation that failed, because it is tried again in another way."""

    def looked_up(self, lookup: LookUp) -> None:
        """The cache has answered about this compilation, before its first stage. A later answer replaces an earlier."""

    def replayed(self, request: Request, program: Program, recorded: bytes | None) -> None:
        """The program comes from the cache, with what `recorded` returned when it was compiled; None if nothing was.

        `looked_up` says the same before or afterwards."""

    def recorded(self) -> bytes | None:
        """What has been recorded of this compilation so far, for `replayed` in another process."""
        return None

    def late(self, request: BackwardRequest) -> Observer:
        """The observer for `request`, which comes after the compilation has returned."""
        return self

    def further(self) -> Observer:
        """The observer for another compilation that this one led to."""
        return self


class Observers(Observer):
    """Calls each of several observers, in order."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self.observers = tuple(observers)

    def before(self, stage: str, argument: Form) -> None:
        for one in self.observers:
            one.before(stage, argument)

    def after(self, stage: str, argument: Form, result: Form, elapsed_ns: int) -> None:
        for one in self.observers:
            one.after(stage, argument, result, elapsed_ns)

    def failed(self, stage: str, argument: Form, error: BaseException) -> None:
        for one in self.observers:
            one.failed(stage, argument, error)

    def explained(self, error: BaseException) -> None:
        for one in self.observers:
            one.explained(error)

    def ran_in_eager(self, reason: str, place: str) -> None:
        for one in self.observers:
            one.ran_in_eager(reason, place)

    def withdraw(self) -> None:
        for one in self.observers:
            one.withdraw()

    def looked_up(self, lookup: LookUp) -> None:
        for one in self.observers:
            one.looked_up(lookup)

    def replayed(self, request: Request, program: Program, recorded: bytes | None) -> None:
        for one in self.observers:
            one.replayed(request, program, recorded)

    def recorded(self) -> bytes | None:
        return next((found for one in self.observers if (found := one.recorded()) is not None), None)

    def late(self, request: BackwardRequest) -> Observer:
        return Observers(observer.late(request) for observer in self.observers)

    def further(self) -> Observer:
        return Observers(observer.further() for observer in self.observers)


@without_compiled_autograd()
def run(stages: Iterable[Stage], form: Form, observer: Observer) -> Any:
    """Run `form` through `stages`. With `options.debug`, verify the result of each stage.

    torch's compiled autograd is off meanwhile. Otherwise it would capture the gradients that a trace computes.
    """
    for stage in stages:
        observer.before(stage.name, form)
        started = time.perf_counter_ns()
        try:
            with _as_eager_draws(stage, form), nullcontext() if stage.role is Role.LOWER else not_collected():
                result = stage.run(form, ObservedDeferredStages(observer)) if stage.defers_work else stage.run(form)
        except BaseException as raised:
            error = refusals.named(raised)
            observer.failed(stage.name, form, error)
            error.add_note(_happened_in(stage.name))
            if error is raised:
                raise
            raise error from raised
        elapsed = time.perf_counter_ns() - started
        if form.options.debug or verify.ALWAYS:
            verify.verify(result, stage.name)
        observer.after(stage.name, form, result, elapsed)
        form = result
    return form


def _happened_in(stage: str) -> str:
    return f"aotviz: this happened in stage {stage!r}"


def is_of_the_program(error: BaseException) -> bool:
    """Whether an operator of a graph raised it as the graph ran for the first time, in which case it raises it in eager
    too, or a backward formula as it was traced, which eager may never call."""
    notes = getattr(error, "__notes__", ())
    failed = {stage.role for stage in TRAINING if _happened_in(stage.name) in notes}
    return Role.GRAPH in failed or (Role.FORWARD in failed and bool(refusals.executed(error)))


def _as_eager_draws(stage: Stage, form: Form) -> AbstractContextManager[None]:
    """Unless Inductor draws the numbers, which are not eager's, keep operators that only advance the generator."""
    is_inductors = form.options.joint_pass is not None or stage.role is Role.LOWER
    return nullcontext() if is_inductors else unread_draws_kept()


def prepare(first: Role = Role.FLATTEN) -> tuple[Stage, ...]:
    """The stages of every compilation, until it is known whether the call needs gradients."""
    return part(TRAINING, first, Role.CONVENTION)


def tail_for(call: TracedCall, last: Role = Role.LINK) -> tuple[Stage, ...]:
    """The stages after `prepare`, for a call that needs gradients or one that doesn't."""
    stages = part(TRAINING if call.needs_gradients else INFERENCE, Role.GRAPH, last)
    return tuple(stage for stage in stages if stage.needed is None or stage.needed(call))


def finish() -> tuple[Stage, ...]:
    """The stages that make a program of a form with finished graphs: those that a program from the cache runs."""
    return part(TRAINING, Role.LOWER, Role.LINK)


def ends(stage: str, program: Program) -> bool:
    """Whether a program is finished after this stage."""
    return stage == finish()[-1].name


def compile_request(request: Form, observer: Observer) -> Program:
    """Compile a Request to a Program: run `prepare`, and then the stages that its result needs."""
    return resume(run(prepare(), request, observer), observer)


def resume(call: TracedCall, observer: Observer) -> Program:
    """Compile the result of `prepare` to a Program. Its deferred stages have the same observer."""
    program: Program = run(tail_for(call), call, observer)
    return with_backward(program)


def traced_again(source: FlatCall | GradientRequest, last: Role = Role.GRAPH) -> Any:
    """Trace a program again with the same stages, to a JointCall, or to the form after the stages with the role `last`;
    see Note [Traced once more] in tracing/second_order.py."""
    stages = prepare(Role.FORWARD) if isinstance(source, FlatCall) else GRADIENT
    with source.surroundings() if isinstance(source, FlatCall) else nullcontext():
        call: TracedCall = run(stages, source, Observer())
        return run(tail_for(call, last), call, Observer())


class ObservedDeferredStages:
    """Runs the deferred stages of a program (`runtime/deferred_stages.py`) under the observer of its compilation."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def backward(self, request: BackwardRequest) -> LoweredBackward:
        lowered: LoweredBackward = run(BACKWARD, request, self._observer.late(request))
        return lowered

    def gradients(self, request: GradientRequest) -> GradientProgram:
        """A program that computes the gradients, and that can be differentiated like any other."""
        observer = self._observer.further()
        call: TracedCall = run(GRADIENT, request, observer)
        program = resume(call, observer)
        trace: Any = call.forward  # a GradientTrace
        return GradientProgram(program.function, trace.positions, tuple(trace.passed), tuple(trace.ends), trace.reads)

    def traced_again(self, source: FlatCall | GradientRequest) -> JointCall:
        call: JointCall = traced_again(source)
        return call


def with_backward(program: Program) -> Program:
    """Compile the backward of a program now, if that must not wait for its first call.

    A backward that takes symbolic sizes is compiled now, while the guards of this compilation can still grow. If
    that fails, there is a warning: the forward works for calls without a backward, and backward() tries again.
    """
    lowered = program.lowered
    if isinstance(lowered, LoweredSplit):
        if program.options.compile_backward_now:
            lowered.backward(False)
        elif symbols_in(graphs.values(graphs.placeholders(lowered.call.backward_module.graph))):
            try:
                lowered.backward(False)
            except Exception as error:
                warnings.warn(
                    f"the backward of {program.name} could not be compiled ({type(error).__name__}: {error}). "
                    "The forward can still run; backward() will try to compile it again",
                    stacklevel=2,
                )
    return program
