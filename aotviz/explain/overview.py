"""What a person sees first of a recording: one sentence, where the time went, what to look at, and the functions.

The workbench shows it as its first page, `Recording.overview()` gives it in Python. The causes are the points of
`explain` in their order, but what only follows from another point stands below that one.
"""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

from aotviz.explain import chains, compile_time, explained_tables, exports, flame, recompiles, restarts
from aotviz.explain.explanation import WIDTH, Point, counted, seconds, sentence
from aotviz.explain.misses import shortened
from aotviz.explain.rows import Facts
from aotviz.explain.time_parts import ORDER
from aotviz.recording import saved
from aotviz.recording.findings import CauseRecord, FunctionRecord, OverviewRecord, TimeShare
from aotviz.recording.schema import CompilationData

if TYPE_CHECKING:
    from aotviz.explain.marked_frame import ExplainedTable

CALM = ("cache", "restart")  # kinds of points, where nothing is to be done about them
LONG = 120  # characters of a title
PRINTED = 3  # causes
IN_TITLE = 2  # causes that the headline names


def made(facts: Facts, points: Sequence[Point]) -> OverviewRecord:
    """`points` are those of `explain`."""
    found = [_cause(point) for point in points if point.kind]
    times = _times(facts)
    functions = list(_functions(facts))
    healthy = is_healthy(points)
    return OverviewRecord(
        _healthy(facts) if healthy else _headline(facts, found),
        healthy,
        sum(one.seconds for one in times),
        times,
        found,
        functions,
        [point.text for point in points if not point.kind],
        flame.frames(facts),
    )


def is_healthy(points: Sequence[Point]) -> bool:
    """Whether nothing needs attention: a first compilation does not, nor does a restart that happens once."""
    return not any(point.failed or point.kind not in CALM or point.fix for point in points if point.kind)


def _cause(point: Point) -> CauseRecord:
    title = sentence(point.title).rstrip(".") or first_sentence(point.text)
    return CauseRecord(
        point.kind,
        title,
        point.text,
        point.code,
        point.place,
        str(point.fix),
        point.seconds,
        point.failed,
        list(point.ids),
        list(point.followed),
    )


def _name(facts: Facts, place: int) -> str:
    """As the user knows it: a module's class, or a function."""
    return recompiles.ASKED.sub(r"\g<function>", facts.users_function(place))


def first_sentence(text: str) -> str:
    """Up to the first full stop that is in no code; of a long sentence, its beginning.

    >>> first_sentence("`a. b` was c. It cost 2 s.")
    '`a. b` was c'
    """
    ended = re.match(r"((?:`[^`]*`|[^`])*?)\.(?:\s|$)", text)
    told = ended[1] if ended else text
    if len(told) <= LONG:
        return told
    cut = told[: LONG + 1].rpartition(": ")[0]
    if len(cut) > LONG // 3:
        return cut
    cut = told[:LONG].rpartition(" ")[0]
    return (cut.rpartition("`")[0] if cut.count("`") % 2 else cut).rstrip(" ,;:(") + " …"


def _headline(facts: Facts, causes: Sequence[CauseRecord]) -> str:
    """The causes that come first, and what all of them cost together."""
    first = causes[0]
    named = [one.title for one in causes[: 1 if first.failed else IN_TITLE]]
    more = counted(len(causes) - len(named), "other cause") if len(causes) > len(named) else ""
    if first.failed:
        failed = {id for one in causes if one.failed and one.kind in ("failed", "export") for id in one.ids}
        several = exports.share(facts, set(map(facts.find, failed))) if len(failed) > len(first.ids) else ""
        several = several and f"{several} failed"
        return sentence(several, first.title, f"{more} below" if more else "")
    ids = {id for one in causes if one.kind in ("recompile", "cache") for id in one.ids}
    places = range(len(facts.data.compilations))
    total = sum(map(facts.seconds, places))
    cost = sum(facts.seconds(place) for place in places if facts.id(place) in ids)
    broken = {id for one in causes if one.kind == "graph break" and one.seconds for id in one.ids} - ids
    lost = restarts.lost(facts)
    cost += sum(lost[id] for id in broken)
    told = "; ".join([*named[:1], *map(_lower, named[1:])]) + (f"; and {more}" if more else "")
    costs = "It costs" if len(causes) == 1 else "Together they cost"
    return sentence(told, f"{costs} {seconds(cost)} of {seconds(total)}" if cost else "")


def _lower(title: str) -> str:
    return title if title.startswith("Dynamo ") else title[:1].lower() + title[1:]


def _healthy(facts: Facts) -> str:
    compiled = [one for place, one in enumerate(facts.data.compilations) if place not in facts.told_twice]
    if not compiled:
        return sentence("Nothing was compiled", *facts.data.notes)
    asked = [one for one in facts.data.cache_lookups if one.cache == "aotviz"]
    hits = [one for one in asked if one.outcome == "hit"]
    spent = facts.total_seconds
    if asked and len(hits) == len(asked) == len(compiled):
        saved = sum(one.saved_ns for one in hits) / 1e9
        told = f"Nothing was compiled: {len(hits)} of {len(asked)} from the cache"
        return sentence(told + (f", {seconds(saved)} saved" if saved else ""))
    often = "once" if len(compiled) == 1 else f"{len(compiled)} times"
    took = f", {seconds(spent)}" if spent else ""
    return sentence(f"Compiled {often}{took}", "Nothing was compiled again, and no graph broke", _repeated(facts))


def _repeated(facts: Facts) -> str:
    """Where most of the time is one line's: a loop that became many operators."""
    line = next((one for one in compile_time.shares(facts)[:1] if one.is_unrolled and one.line.line), None)
    if line is None:
        return ""
    return f"{line.operators:,} operators come from one line that is repeated, {str(line.line).rpartition('/')[2]}"


def _times(facts: Facts) -> list[TimeShare]:
    """The parts of the time, which add up to it: of the events of a log, or of the stages of our own pipeline."""
    parts: dict[str, float] = defaultdict(float)
    for place in range(len(facts.data.compilations)):
        for part, spent in compile_time.parts_of(facts, place).items():
            parts[part] += spent
    return [TimeShare(part, parts[part]) for part in ORDER if parts.get(part)]


def _functions(facts: Facts) -> Iterator[FunctionRecord]:
    """A row for each function, the rests of one after its graph breaks behind it."""
    groups: dict[tuple[int, int, Hashable], list[int]] = {}
    for place, compilation in enumerate(facts.data.compilations):
        key = facts.frame(place) if compilation.compile_id else recompiles.own_function(compilation)
        groups.setdefault((compilation.rank, compilation.reset, key), []).append(place)
    again = {recompile.place for recompile in recompiles.find(facts)}
    by_function: dict[Hashable, list[FunctionRecord]] = {}
    for (rank, reset, _), places in groups.items():
        function, line = chains.after(facts, places[0])
        by_function.setdefault((rank, reset, function), []).append(_function(facts, places, line, again))
    for rows in by_function.values():
        yield from rows


def _function(facts: Facts, places: Sequence[int], line: int, again: set[int]) -> FunctionRecord:
    last = facts.data.compilations[places[-1]]
    errors = [facts.data.compilations[place].error for place in places]
    in_eager = next((one.message for one in errors if one is not None and one.ran_in_eager), "")
    return FunctionRecord(
        _name(facts, places[0]),
        shortened(facts.frame_place(places[0])),
        f"after line {line}" if line else "",
        [facts.id(place) for place in places],
        sum(place in again for place in places),
        sum(map(facts.seconds, places)),
        max((len(graph.op) for graph in last.graphs), default=-1),
        _kept(last),
        _aliases(last),
        in_eager,
    )


def _kept(compilation: CompilationData) -> int:
    known = saved.held(compilation.saved_tensors)
    return sum(known) if compilation.stages and len(known) == len(compilation.saved_tensors) else -1


def _aliases(compilation: CompilationData) -> str:
    written = [one.name for one in compilation.inputs if one.mutates_data or one.mutates_metadata]
    views = [one.name for one in compilation.outputs if one.base]
    parts = [
        f"writes {_some(written)}" if written else "",
        f"{_some(views)} {'is a view' if len(views) == 1 else 'are views'}" if views else "",
    ]
    return "; ".join(filter(None, parts))


def _some(names: Sequence[str]) -> str:
    return f"`{names[0]}`" + (f" and {len(names) - 1} more" if len(names) > 1 else "")


CAUSES: explained_tables.Columns = {
    "kind": ("str", lambda one: one.kind),
    "title": ("str", lambda one: one.title),
    "seconds": ("float64", lambda one: one.seconds),
    "place": ("str", lambda one: one.place),
    "code": ("str", lambda one: one.code),
    "fix": ("str", lambda one: one.fix),
    "failed": ("bool", lambda one: one.failed),
    "compilations": ("object", lambda one: tuple(one.ids)),
    "followed": ("object", lambda one: tuple(one.followed)),
    "text": ("str", lambda one: one.text),
}
FUNCTIONS: explained_tables.Columns = {
    "name": ("str", lambda one: one.name),
    "after": ("str", lambda one: one.after),
    "place": ("str", lambda one: one.place),
    "compilations": ("object", lambda one: tuple(one.ids)),
    "again": ("int64", lambda one: one.again),
    "seconds": ("float64", lambda one: one.seconds),
    "nodes": ("int64", lambda one: one.nodes),
    "kept_bytes": ("int64", lambda one: one.kept_bytes),
    "aliases": ("str", lambda one: one.aliases),
    "in_eager": ("str", lambda one: one.in_eager),
}


class Overview:
    """What to know first of a recording, as `Recording.overview` gives it."""

    def __init__(self, found: OverviewRecord) -> None:
        self._found = found

    @property
    def headline(self) -> str:
        """One sentence: the causes that come first and what they cost, what failed, or that nothing needs attention."""
        return self._found.headline

    @property
    def healthy(self) -> bool:
        """Whether nothing failed, was compiled again or ended a graph."""
        return self._found.healthy

    @property
    def seconds(self) -> float:
        """How long compiling took; 0 if the recording has no times."""
        return self._found.seconds

    @property
    def times(self) -> dict[str, float]:
        """The parts of the time in seconds. They add up to `seconds`."""
        return {one.name: one.seconds for one in self._found.times}

    @property
    def causes(self) -> ExplainedTable:
        """One row for each thing to look at: kind, title, seconds, place, code, fix, failed, compilations (ids),
        followed (sentences on what came of it), text."""
        return explained_tables.table(CAUSES, self._found.causes, marked=("title",), hidden=("text", "failed"))

    @property
    def functions(self) -> ExplainedTable:
        """One row for each function, and each rest of one after a graph break: name, after, place, compilations (ids),
        again (recompiles), seconds, nodes, kept_bytes (for the backward; -1 if unknown), aliases, in_eager (why)."""
        return explained_tables.table(FUNCTIONS, self._found.functions, marked=("again",))

    def __str__(self) -> str:
        told = [self.headline, *(_printed(number, one) for number, one in enumerate(self._found.causes[:PRINTED], 1))]
        if (more := len(self._found.causes) - PRINTED) > 0:
            told.append(f"{more} more: see `recording.explain()`.")
        return "\n\n".join(told)

    __repr__ = __str__


def _printed(number: int, one: CauseRecord) -> str:
    cost = f", {seconds(one.seconds)}" if one.seconds else ""
    lines = [f"{number}. {one.title} ({one.kind}{cost})"]
    if one.place:
        lines.append(f"   {one.place}    {one.code}".rstrip())
    if one.fix:
        indent = "   "
        lines.append(textwrap.fill(f"What to do: {one.fix}", WIDTH, initial_indent=indent, subsequent_indent=indent))
    return "\n".join(lines)
