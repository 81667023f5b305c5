"""What a call allocates, measured: the check of what is planned from a recording, and what no graph can say.

An operator may allocate memory for itself and free it before it returns: a convolution copies its weight into another
layout, a sort needs room. A graph has the operator's arguments and results only. So the allocator is listened to.

A kernel of Inductor's is a line of its code. A mark in the profile says when each line began, so the allocator's own
events say what there was before the line, at most while it ran, and after it. Nothing of the plan is used for that.
"""

from __future__ import annotations

import bisect
import gc
import linecache
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from aotviz.recording import sizes, tables
from aotviz.recording.frozen import Frozen
from aotviz.recording.inductor_memory import InductorMemory, InductorMoment
from aotviz.recording.live_bytes import OF_THE_CALLER, Memory, Moment, beside_given
from aotviz.torch_private import allocations
from aotviz.torch_private.allocations import During, Line, Ran

if TYPE_CHECKING:
    import pandas as pd


class Scratch(Frozen, frozen=True):
    """What an operator allocates for itself."""

    operator: str
    calls: int
    nbytes: int
    at_peak: bool


class MeasuredKernel(Frozen, frozen=True):
    """A kernel that ran: bytes beside those that there were before the call."""

    program: str
    at: int
    phase: str
    line: int
    kernel: str
    nodes: tuple[str, ...]
    planned: int
    others: int
    measured: int
    own: int
    unexplained: int


Spans = dict[int, tuple[int, int]]  # line -> when it ran: (begin_ns, end_ns)


class MeasuredPeak(NamedTuple):
    """When most bytes were allocated: in which operator ("" in none, as in a fused kernel), and how many were that
    operator's own."""

    nbytes: int
    operator: str
    scratch: int


class ComparedPeak(NamedTuple):
    """A measured peak beside a planned one: both in bytes beside those that the caller holds anyway."""

    measured: int
    planned: int
    operator: str  # in which the most are needed: planned, and its own
    scratch: int  # its own
    unexplained: int  # of the measured ones; negative if fewer were measured

    def __str__(self) -> str:
        own = f", and `{self.operator}` needs {sizes.told(self.scratch)} for itself" if self.scratch else ""
        rest = "That is all"
        if self.unexplained:
            how = "more" if self.unexplained > 0 else "less"
            rest = f"{sizes.told(abs(self.unexplained))} {how} than that were measured"
        return f"Measured: {sizes.told(self.measured)}. Planned: {sizes.told(self.planned)}{own}. {rest}."


class MeasuredMemory:
    """The bytes that a call allocated, beside those that were allocated before it.

    >>> import torch
    >>> import aotviz
    >>> x = torch.ones(1000)
    >>> measured = aotviz.measured_memory(lambda: x.exp().sin().sum())
    >>> measured
    <aotviz MeasuredMemory: at most 7.81 KiB, 4 B left>
    >>> measured.result
    tensor(...)
    """

    def __init__(self, during: During) -> None:
        self.result = during.result
        """What the call returned."""
        self._lines = during.lines
        self._times = [one.at_ns for one in during.allocations]
        self._alive = list(accumulate(one.nbytes for one in during.allocations))
        self._calls = [(call, self._scratch_of(call)) for call in _outermost(during.operators)]

    @property
    def peak(self) -> MeasuredPeak:
        """When most bytes were allocated."""
        nbytes = max(self._alive, default=0)
        if nbytes <= 0:
            return MeasuredPeak(0, "", 0)
        when = self._times[self._alive.index(nbytes)]
        operator, scratch = next(
            ((call.name, own) for call, own in self._calls if call.begin_ns <= when <= call.end_ns), ("", 0)
        )
        return MeasuredPeak(nbytes, operator, scratch)

    @property
    def left(self) -> int:
        """Bytes that are still allocated when the call has returned: its result, gradients, what is saved."""
        return self._alive[-1] if self._alive else 0

    @property
    def scratch(self) -> pd.DataFrame:
        """One row per operator that allocates memory for itself and frees it before it returns, the largest first.

        Columns: operator, calls (that do so), nbytes (of the call that needs most), at_peak (the peak is in one).
        """
        largest: dict[str, list[int]] = defaultdict(list)
        for call, own in self._calls:
            if own:
                largest[call.name].append(own)
        at_peak = self.peak.operator
        rows = [Scratch(name, len(each), max(each), name == at_peak) for name, each in largest.items()]
        rows.sort(key=lambda row: -row.nbytes)
        return tables.records(Scratch, rows)

    def beside(self, memory: Memory | InductorMemory) -> ComparedPeak:
        """The measured peak beside that of a plan of what was called: `compilation.memory()` or `inductor_memory()`.
        What the plan has of parameters, buffers, inputs and incoming gradients was there before the call.

        An operator's own memory is added to what is alive while it runs. If the call ran an operator more or less often
        than the plan, that of the call of it that needs most.
        """
        own: dict[str, list[int]] = defaultdict(list)
        for call, scratch in self._calls:
            own[call.name].append(scratch)
        rows = [(_operator(row), beside_given(row)) for row in memory.rows]
        counts = Counter(operator for operator, _ in rows)
        seen: Counter[str] = Counter()
        most, planned = ("", 0, 0), max((alive for _, alive in rows), default=0)
        for operator, alive in rows:
            calls = own.get(operator, [0])
            scratch = calls[seen[operator]] if len(calls) == counts[operator] else max(calls)
            seen[operator] += 1
            most = max(most, (operator, alive + scratch, scratch), key=lambda one: one[1])
        measured = self.peak.nbytes
        return ComparedPeak(measured, planned, most[0] if most[2] else "", most[2], measured - most[1])

    def kernels(self, *memories: InductorMemory) -> pd.DataFrame:
        """One row per kernel of Inductor's that ran: what is allocated after it, measured, beside what is planned.

        Pass `compilation.inductor_memory()` of each program that the call runs: with a graph break these are several,
        and one holds memory while another runs. If a program runs several times, its first run counts.

        Columns: program, at (the moment of the plan), phase, line (of Inductor's code), kernel, nodes (that it
        computes), planned (bytes of its program, without what is given to it), others (bytes that the other programs
        hold), measured (bytes allocated when the kernel has run), own (bytes that it allocates for itself and frees),
        unexplained (measured, less planned and others). A result, or a gradient, counts as held to the end; if the
        caller lets go of it before, unexplained is negative.

        Raises LookupError if no kernel of these programs ran in the thread that called. On a GPU, the backward runs in
        another thread.

        >>> import torch
        >>> import aotviz
        >>> f = aotviz.compile(lambda x: (x.exp() @ x).sin().sum(), backend="inductor")
        >>> x = torch.ones(64, 64, requires_grad=True)
        >>> f(x).backward()
        >>> x.grad = None
        >>> measured = aotviz.measured_memory(lambda: f(x).backward())
        >>> rows = measured.kernels(f.recording[0].inductor_memory())
        >>> bool((rows.unexplained.abs() <= 0.02 * measured.peak.nbytes).all())
        True
        """
        rows = list(self._kernels(memories))
        if not rows:
            names = ", ".join(memory.name for memory in memories) or "no program"
            raise LookupError(
                f"no kernel of Inductor's ran, of {names}: pass `inductor_memory()` of what the call runs"
            )
        return tables.records(MeasuredKernel, rows)

    def _kernels(self, memories: Sequence[InductorMemory]) -> Iterator[MeasuredKernel]:
        """The kernels that ran, in order; of a program that ran several times, those of its first run."""
        held: dict[int, int] = {}  # by program: what it holds after the phase that ran last
        for memory, phase, spans in _runs(memories, self._lines):
            others = sum(nbytes for program, nbytes in held.items() if program != id(memory))
            for row in memory.rows:
                if row.phase != phase or row.line not in spans:
                    continue
                begin, end = spans[row.line]
                before, after = self._at(begin), self._at(end)
                planned = beside_given(row)
                own = max(0, self._most(begin, end) - max(before, after))
                yield MeasuredKernel(
                    memory.name, row.at, phase, row.line, row.kernel, row.nodes, planned, others, after, own,
                    after - planned - others,
                )  # fmt: skip
            held[id(memory)] = _held_after(memory, phase)

    def _most(self, begin_ns: int, end_ns: int) -> int:
        """The most bytes that are alive within a time."""
        first, last = bisect.bisect_left(self._times, begin_ns), bisect.bisect_right(self._times, end_ns)
        return max(self._alive[first:last], default=0)

    def _at(self, time_ns: int) -> int:
        place = bisect.bisect_right(self._times, time_ns)
        return self._alive[place - 1] if place else 0

    def _scratch_of(self, call: Ran) -> int:
        """The bytes that are alive in a call at most, less those before or after it, whichever are more."""
        within = self._most(call.begin_ns, call.end_ns)
        return max(0, within - max(self._at(call.begin_ns - 1), self._at(call.end_ns)))

    def __str__(self) -> str:
        peak = self.peak
        where = f", in `{peak.operator}`" if peak.operator else ""
        own = f". {sizes.told(peak.scratch)} of it are its own: it frees them before it returns" if peak.scratch else ""
        return f"The call allocated at most {sizes.told(peak.nbytes)}{where}{own}."

    def __repr__(self) -> str:
        return f"<aotviz MeasuredMemory: at most {sizes.told(self.peak.nbytes)}, {sizes.told(self.left)} left>"


def measured_memory(call: Callable[[], Any], device: torch.device | str = "cpu") -> MeasuredMemory:
    """Call it once, and measure what it allocates. Call a compiled function before, so that it is compiled by then.

    Args:
        call: takes no arguments.
        device: the device whose memory is measured: "cpu", or "cuda:0", for example.

    Raises:
        ValueError: it is another kind of device.

    >>> import torch
    >>> import aotviz
    >>> model, x = torch.nn.Conv2d(3, 8, 3), torch.rand(1, 3, 16, 16)
    >>> measured = aotviz.measured_memory(lambda: model(x))
    >>> list(measured.scratch.columns)
    ['operator', 'calls', 'nbytes', 'at_peak']
    """
    where = torch.device(device)
    if where.type not in ("cpu", "cuda"):
        raise ValueError(f"the memory of {device!s} cannot be measured: only that of a CPU or of CUDA")
    gc.collect()  # so that nothing older is freed in the call
    return MeasuredMemory(allocations.during(call, where))


def _operator(row: Moment | InductorMoment) -> str:
    """The operator of a planned moment as the profiler calls it; a fused kernel's name."""
    name = row.kernel if isinstance(row, InductorMoment) else row.node.target
    name = name.removeprefix("torch.ops.").replace("extern_kernels.", "aten.")
    space, _, rest = name.partition(".")
    return f"{space}::{rest.partition('.')[0]}" if rest else name


def _outermost(ran: Sequence[Ran]) -> Iterator[Ran]:
    """The calls that no other operator makes."""
    ends: dict[int, int] = {}
    for call in ran:
        if call.begin_ns >= ends.get(call.thread, 0):
            ends[call.thread] = call.end_ns
            yield call


def _runs(memories: Sequence[InductorMemory], lines: Sequence[Line]) -> Iterator[tuple[InductorMemory, str, Spans]]:
    """The first call of each program's code for each phase, in the order in which they began."""
    programs = {text.strip(): (memory, phase) for memory in memories for phase, text in memory.texts.items()}
    by_file: dict[str, list[Line]] = {}
    for line in lines:
        by_file.setdefault(line.file, []).append(line)
    for file, marks in by_file.items():
        found = programs.get("".join(linecache.getlines(file)).strip())
        if found is not None:
            yield *found, _spans(marks)


def _spans(marks: Sequence[Line]) -> Spans:
    """When each line of a file ran first. A line ends when the next line of the same call begins."""
    spans: Spans = {}
    begun: dict[int, Line] = {}  # by call
    for mark in marks:
        last = begun.get(mark.call)
        if last is not None:
            spans.setdefault(last.line, (last.at_ns, mark.at_ns))
        begun[mark.call] = mark
    return spans


def _held_after(memory: InductorMemory, phase: str) -> int:
    """The bytes that a program has made and still holds, or its caller, when the last kernel of a phase has run."""
    last = max((row.at for row in memory.rows if row.phase == phase), default=None)
    if last is None:
        return 0
    held = memory.holders(last)
    return int(held.nbytes[(held.held_until > last) & ~held.kind.isin((*OF_THE_CALLER, "tangent"))].sum())
