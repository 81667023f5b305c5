"""`aotviz.plans`: plans of a function side by side, and each of them run.

Dynamo captures the function once. Its graph is compiled for every plan, to graphs that run operator by operator, and
the plans are read from the recordings. Without `measure` nothing of the function's graph runs. With it, each plan runs
a forward and a backward: once under a mode that measures which bytes are alive after each operator, and some more times
for the clock. Inputs are copied for each run; buffers, random states and `.grad` are left as they were.
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge
from torch.multiprocessing.reductions import StorageWeakRef

from aotviz.frontends.backend import Backend
from aotviz.frontends.policies import policy
from aotviz.ir.autograd_graph import leaves_behind
from aotviz.ir.partition_functions import named
from aotviz.ir.spelling import called
from aotviz.lowerings import OneCompiler
from aotviz.recorder.live_storages import LiveStorages
from aotviz.recorder.sessions import Session, live
from aotviz.recording import measured_bytes
from aotviz.recording.compilation import Compilation, Partitioner
from aotviz.recording.costs import Speed
from aotviz.recording.live_bytes import Timeline
from aotviz.recording.peak_changes import Change
from aotviz.recording.plans import Measured, Plan, Plans, plan
from aotviz.recording.store import Store
from aotviz.torch_private import dynamo, partitioners
from aotviz.torch_private.modules import boxed
from aotviz.torch_private.pytree import tree_flatten, tree_leaves, tree_unflatten

REPEATS = 5  # of a step, for the clock
_NOT_ONE_GRAPH = (
    "aotviz.plans takes a function that is one graph. For one that breaks, compile and run it: "
    "`compiled = aotviz.compile(fn); compiled(*inputs).sum().backward()`. Each `compiled.recording[i].what_if([...])` "
    "then has the plans of one graph, and `compiled.recording.step_memory(...)` the memory of those that you name."
)


def plans(
    fn: Callable[..., Any] | torch.nn.Module,
    *inputs: Any,
    budgets: Sequence[float] = (1, 0.7, 0.5, 0.3, 0.1),
    partitioners: Sequence[Partitioner] = ("min-cut", "default"),
    measure: bool = False,
    changes: int = 0,
    speed: Speed | None = None,
    **keywords: Any,
) -> Plans:
    """What each partitioner and memory budget would save, recompute and need, a row for each.

    Args:
        fn: a function or a module, whose results are differentiable. It must be one graph, without graph breaks.
        inputs, keywords: its arguments.
        budgets: the shares, from 0 to 1, of the activations that the min-cut partitioner may save.
        partitioners: "min-cut", "default", an `aotviz.policy`, or a function as for `aotviz.compile`.
        measure: run each plan. The table then has the measured time and peak beside the estimates, and says where an
            estimate was wrong. Memory is measured after each operator; time is the fastest of some steps.
        changes: so many rows more, for the changes that lower the peak of the first plan most (`peak_changes()`). With
            `measure`, each is made and measured, those of the calling code too.
        speed: of the device, for the estimates; if None, that of a product and of a copy, measured now.

    Returns a table with `.plot()` (peak against time, knees marked), `.knees`, `.reversals` (a budget whose peak is
    higher than a larger one's, with the allocations that make it so); `plans[0]` is the compilation of the first.

    Raises:
        ValueError: nothing in the function's result can be differentiated, there is no such partitioner, or a budget is
            out of range.
        Refused: aotviz cannot compile the function.
        Unsupported: the function has a graph break (Dynamo's error, which says where, and what to do instead).

    >>> import torch
    >>> import aotviz
    >>> found = aotviz.plans(lambda x: x.sin().cos().sum(), torch.ones(100, requires_grad=True), budgets=[1])
    >>> found.table[["partitioner", "budget", "saved_bytes", "recomputed"]].values.tolist()
    [['min-cut', 1.0, 0, 1], ['default', nan, 400, 0]]
    """
    wanted = [(chosen, budget) for chosen in partitioners for budget in (budgets if _reads_budget(chosen) else [None])]
    capture = _Capture(called(fn), wanted)
    capture.run(fn, inputs, keywords, only_captured=True)
    compilations = live(capture.store).compilations
    if any(one.kind != "training" for one in compilations) or not compilations:
        raise ValueError(f"{called(fn)} returns nothing that can be differentiated, so there is nothing to save")
    speed = _measured_speed(_device(inputs, keywords, fn)) if speed is None else speed
    found = [_plan(one, compilation, speed) for one, compilation in zip(wanted, compilations, strict=True)]
    if measure:
        found = [
            replace(planned, measured=_measured(capture, number, planned.counted, fn, inputs, keywords))
            for number, planned in enumerate(found)
        ]
    chosen = compilations[0].peak_changes(changes, speed=speed) if changes else ()
    found += [_changed(one, found[0], wanted[0], fn, inputs, keywords, measure) for one in chosen]
    return Plans(called(fn), found)


def _changed(
    change: Change,
    first: Plan,
    wanted: tuple[Partitioner, float | None],
    fn: Any,
    inputs: Any,
    keywords: Any,
    measure: bool,
) -> Plan:
    """The plan of a program with a change: computed from the first plan, and measured where it is made."""
    partition_fn, budget = wanted
    if change.schedule is not None:
        partition_fn = policy(change, otherwise=partition_fn)
    casts = change.names if change.kind == "keep the cast" else ()
    with _cast(fn, casts, change.dtype):
        capture = _Capture(called(fn), [(partition_fn, budget)], lets_go=_place(change, first))
        capture.run(fn, inputs, keywords, only_captured=True)
        (compilation,) = live(capture.store).compilations
        computed = Plan(change.name, None, compilation, change.memory, first.symbols, first.speed)
        if not measure:
            return computed
        made = computed if change.kind == "let go" else _plan((partition_fn, budget), compilation, first.speed)
        found = _measured(capture, 0, made.counted, fn, inputs, keywords)
    peak = max(found.peak_forward, found.peak_backward)
    if peak != change.peak:
        wrong = f"computed {change.peak}, measured {peak} bytes"
        found = Measured(found.ms, found.peak_forward, found.peak_backward, (wrong, *found.differences))
    return replace(computed, measured=found)


def _place(change: Change, first: Plan) -> tuple[str, int] | None:
    """Which argument or result of the graph a change lets go of."""
    if change.kind != "let go":
        return None
    result = re.fullmatch(r"output\[(\d{1,9})\]", change.subject)
    if result is not None:
        return "result", int(result[1])
    return "argument", [one.name for one in first.compilation.data.inputs].index(change.subject)


@contextlib.contextmanager
def _cast(fn: Any, names: Sequence[str], dtype: str) -> Iterator[None]:
    """Let parameters of a module, by the names that a recording has for them, have another dtype inside the context."""
    parameters = dict(fn.named_parameters()) if names else {}
    by_name = {name: parameters[name] if name in parameters else _ending(parameters, name) for name in names}
    before = {name: one.data for name, one in by_name.items()}
    try:
        for one in by_name.values():
            one.data = one.data.to(getattr(torch, dtype))
        yield
    finally:
        for name, one in by_name.items():
            one.data = before[name]


def _ending(parameters: Mapping[str, Any], name: str) -> Any:
    """The parameter whose name a longer one ends in: a recording may have the name of a variable before it."""
    return next(one for known, one in parameters.items() if name.endswith(f".{known}"))


def _reads_budget(partition_fn: Partitioner) -> bool:
    return named(partition_fn) is partitioners.min_cut_rematerialization_partition


def _plan(wanted: tuple[Partitioner, float | None], compilation: Compilation, speed: Speed) -> Plan:
    chosen, budget = wanted
    name = chosen if isinstance(chosen, str) else str(getattr(chosen, "__name__", chosen))
    return plan(name, budget, compilation, {one.name: one.kind for one in compilation.data.inputs}, speed=speed)


class _OnlyCaptured(Exception):
    """Raised in place of the call, when all is compiled."""


@dataclass
class _Capture:
    """The function's graph, compiled for each plan. `chosen` is the one that runs; none, if it is None."""

    name: str
    wanted: Sequence[tuple[Partitioner, float | None]]
    chosen: int | None = None
    mode: LiveStorages | None = None  # notes what the graphs allocate
    lets_go: tuple[str, int] | None = None  # an argument or a result of the graph, which the caller does not hold
    storage: StorageWeakRef | None = None  # of that, in the call that ran last
    was_let_go: bool = True
    programs: list[Callable[..., Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.session = Session(False, self.name)
        self.session.store = self.store = Store()
        self.__name__ = "aotviz.plans"

    def __call__(self, graph: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        """What Dynamo calls with the graph."""
        lowering = OneCompiler("eager", self._compiler)
        for chosen, budget in self.wanted:
            options = {"partition_fn": named(chosen), "cache": False, "on_refusal": "raise"}
            backend = Backend(lowering, options, self.session)
            with contextlib.nullcontext() if budget is None else partitioners.memory_budget(budget):
                self.programs.append(backend(graph, inputs))

        def run(*args: Any) -> Any:
            if self.chosen is None:
                raise _OnlyCaptured
            results = self.programs[self.chosen](*args)
            if self.lets_go is not None:
                what, place = self.lets_go
                tensor = args[place] if what == "argument" else results[place]
                self.storage = StorageWeakRef(tensor.untyped_storage())
            return results

        return run

    def _compiler(self, module: Any, _inputs: Any) -> Callable[..., Any]:
        run = boxed(module)

        def measured(args: list[Any]) -> Any:
            if self.mode is None:
                return run(args)
            self.mode.give(args)
            with self.mode:
                results = run(args)
                self.mode.close()
            return results

        measured._boxed_call = True  # type: ignore[attr-defined]
        return measured

    def run(self, fn: Any, inputs: Any, keywords: Any, only_captured: bool = False) -> Any:
        if only_captured:
            self._function = dynamo.compiled(fn, self, dynamic=False, fullgraph=True)
        try:
            return self._function(*inputs, **keywords)
        except _OnlyCaptured:
            return None
        except dynamo.BackendFailed as failed:
            error = failed.inner_exception
        except dynamo.Unsupported as broken:
            broken.add_note(_NOT_ONE_GRAPH)
            raise
        raise error


def _measured(capture: _Capture, number: int, memory: Timeline, fn: Any, inputs: Any, keywords: Any) -> Measured:
    capture.chosen = number
    try:
        with _undone(fn):
            _step(capture, fn, inputs, keywords)
            capture.mode = mode = LiveStorages()
            _step(capture, fn, inputs, keywords)
            capture.mode = None
            ms = min(_step(capture, fn, inputs, keywords) for _ in range(REPEATS))
    finally:
        capture.mode = capture.chosen = None
    rows, differences = measured_bytes.compared(memory, mode.ran)
    if capture.storage is not None and not capture.was_let_go:
        differences = ["the value that the caller lets go of is still held in the backward", *differences]
    peaks = {
        phase: max((row.measured[0] + row.given for row in rows if row.phase == phase), default=0)
        for phase in ("forward", "backward")
    }
    return Measured(ms, peaks["forward"], peaks["backward"], tuple(differences))


def _step(capture: _Capture, fn: Any, inputs: Any, keywords: Any) -> float:
    """Run a forward and a backward. Returns the ms that they took."""
    values, tree = tree_flatten((inputs, keywords))
    given = tree_unflatten(map(_copied, values), tree)
    synchronize = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    synchronize()
    began = time.perf_counter_ns()
    results = [one for one in tree_leaves(capture.run(fn, *given)) if isinstance(one, torch.Tensor)]
    differentiable = [one for one in results if one.requires_grad]
    leaves = [one for one in leaves_behind(one.grad_fn for one in differentiable) if one.requires_grad]
    edges = [get_gradient_edge(one) for one in differentiable]
    gradients = [torch.ones_like(one) for one in differentiable]
    del values, given, differentiable
    let_go = {capture.storage} - {None}
    held = [one for one in results if StorageWeakRef(one.untyped_storage()) not in let_go]
    del results
    capture.was_let_go = capture.storage is None or capture.storage.expired()
    torch.autograd.grad(edges, leaves, gradients, allow_unused=True)
    del held
    synchronize()
    return (time.perf_counter_ns() - began) / 1e6


def _copied(value: Any) -> Any:
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


@contextlib.contextmanager
def _undone(fn: Any) -> Iterator[None]:
    """Put back buffers and random states."""
    buffers = [(one, one.detach().clone()) for one in fn.buffers()] if isinstance(fn, torch.nn.Module) else []
    try:
        with torch.random.fork_rng():
            yield
    finally:
        with torch.no_grad():
            for one, before in buffers:
                one.copy_(before)


def _device(inputs: Any, keywords: Mapping[str, Any], fn: Any) -> str:
    parameters = list(fn.parameters()) if isinstance(fn, torch.nn.Module) else []
    tensors = [one for one in tree_leaves((inputs, keywords, parameters)) if isinstance(one, torch.Tensor)]
    return tensors[0].device.type if tensors else "cpu"


@functools.cache
def _measured_speed(device: str) -> Speed:
    """How fast a device multiplies matrices, copies memory, and starts operators."""
    size = 512
    a, many, one = (torch.ones(*shape, device=device) for shape in ((size, size), (1 << 23,), (1,)))

    def seconds(run: Callable[[], Any], count: int) -> float:
        found = []
        for _ in range(3):
            began = time.perf_counter()
            for _ in range(count):
                run()
            if device == "cuda":
                torch.cuda.synchronize()
            found.append((time.perf_counter() - began) / count)
        return min(found)

    with torch.no_grad():
        product, copy, start = seconds(lambda: a @ a, 1), seconds(many.clone, 1), seconds(one.neg, 100)
    return Speed(2 * size**3 / product, 2 * many.nbytes / copy, start)
