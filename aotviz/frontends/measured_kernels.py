"""What is allocated after each of Inductor's kernels, measured, beside what its program plans.

A kernel is a line of Inductor's code. A mark in the profile says when each line began, so the allocator's own events
say what there was before the line, at most while it ran, and after it. Nothing of the plan is used for that.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Sequence

from aotviz.recording.frozen import Frozen
from aotviz.recording.inductor_memory import InductorMemory
from aotviz.recording.live_bytes import OF_THE_CALLER, beside_given
from aotviz.torch_private.allocations import Line

GIVEN = (*OF_THE_CALLER, "tangent")


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


def kernels(
    memories: Sequence[InductorMemory], lines: Sequence[Line], alive: Callable[[int], int], most: Callable[..., int]
) -> Iterator[MeasuredKernel]:
    """The kernels that ran, in order. `alive(time)` and `most(begin, end)` are bytes that the allocator told.

    If a program ran several times, these are the kernels of its first run.
    """
    held: dict[int, int] = {}  # by program: what it holds after the phase that ran last
    for memory, phase, spans in _runs(memories, lines):
        others = sum(nbytes for program, nbytes in held.items() if program != id(memory))
        for row in memory.rows:
            if row.phase != phase or row.line not in spans:
                continue
            begin, end = spans[row.line]
            before, after = alive(begin), alive(end)
            planned = beside_given(row)
            own = max(0, most(begin, end) - max(before, after))
            yield MeasuredKernel(
                memory.name, row.at, phase, row.line, row.kernel, row.nodes, planned, others, after, own,
                after - planned - others,
            )  # fmt: skip
        held[id(memory)] = _held_after(memory, phase)


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
    return int(held.nbytes[(held.held_until > last) & ~held.kind.isin(GIVEN)].sum())
