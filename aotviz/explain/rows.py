"""The rows of a recording, indexed by compilation.

A recording keeps rows in the order of the log (recording/schema.py); an explanation asks what is known about one
compilation. Each index is built when it is first needed.
"""

from __future__ import annotations

import functools
import itertools
import json
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeVar

from aotviz.recording.dynamo_stage import COMPILE_ID, REST
from aotviz.recording.graph import Graph
from aotviz.recording.log_tables import WATCHED
from aotviz.recording.schema import (
    NONE,
    CompilationData,
    GuardRecord,
    MetricsRecord,
    Origin,
    RecordingData,
    ShapeRecord,
    StageRecord,
)
from aotviz.recording.sources import SourceLine, innermost, user_frames
from aotviz.recording.spoken import spoken


class HasOrigin(Protocol):
    @property
    def origin(self) -> Origin: ...


Row = TypeVar("Row", bound=HasOrigin)
EXPORTS = EXPORT, DRAFT = "export", "draft export"  # kinds of compilations
PACKAGES = "/site-packages/"
TIMED = ("duration_us", "entire_frame_compile_time_s")  # of one compilation, the best known first


Frame = Hashable  # one compiled function in one process, between two resets of Dynamo: its compilations share it


class Facts:
    """What a recording knows, by compilation. Compilations go by their place in `data.compilations`."""

    def __init__(self, data: RecordingData, texts: Sequence[str]) -> None:
        self.data = data
        self._texts = texts
        self.memory: dict[Hashable, Any] = {}  # results that several explanations need
        self._rows: dict[int, dict[int, list[Any]]] = {}  # id of a list -> its rows by compilation
        self._about: dict[int, dict[str, list[GuardRecord]]] = {}

    @cached_property
    def source(self) -> str:
        """What the rows were read from, in a word: "log", "watch", or "recording" of our own pipeline."""
        logs = [log.name for log in self.data.logs]
        return "watch" if logs == [WATCHED] else "log" if logs else "recording"

    def text(self, number: int) -> str:
        return self._texts[number] if number >= 0 else ""

    def compilation(self, place: int) -> CompilationData | None:
        return self.data.compilations[place] if place >= 0 else None

    def id(self, place: int) -> str:
        """The compilation's id in the recording, e.g. "0/3" or "rank 1: 0/3"."""
        return self.data.compilations[place].id if place >= 0 else ""

    def function(self, place: int) -> str:
        """The name of the compiled function.

        A compilation that was refused before it began has no name: the first of its frame gives it.
        """
        if place < 0:
            return ""
        others = (self.data.compilations[other] for other in self.frames.get(self.frame(place), ()))
        named = itertools.chain([self.data.compilations[place]], others)
        return next((c.name for c in named if c.name and c.name != c.compile_id), self.data.compilations[place].name)

    def users_function(self, place: int) -> str:
        """The same, and for what follows a graph break the name of the function that it is the rest of."""
        name = self.function(place)
        rest = REST.match(name)
        return rest["function"] if rest else name

    def called(self, place: int) -> str:
        """The one name of a compilation in sentences: "`forward [0/1]`", "rank 1: `forward [0/1]`", "export 2"."""
        if self.data.compilations[place].kind.endswith("export"):
            return self.id(place)
        before, _, id = self.id(place).rpartition(": ")
        function = self.function(place)
        rest = REST.fullmatch(function)
        named = function if COMPILE_ID.search(function) or function == id else f"{function} [{id}]"
        told = f"the rest of `{rest['function']}` after line {rest['line']} [{id}]" if rest else f"`{named}`"
        return f"{before}: {told}" if before else told

    def frame(self, place: int) -> Frame:
        """The function of a compilation. Recordings of older releases have only its compile id."""
        compilation = self.data.compilations[place]
        if compilation.frame >= 0:
            return compilation.frame
        return compilation.log, compilation.compile_id.rpartition("/")[0]

    def frame_place(self, place: int) -> str:
        """The line of the compiled function: "model.py:16"."""
        others = self.frames.get(self.frame(place), ()) if self.data.compilations[place].compile_id else ()
        for other in (place, *others):
            if found := str(innermost(self.text(self.data.compilations[other].stack))):
                return found
        return ""

    def rank(self, place: int) -> int:
        return self.data.compilations[place].rank if place >= 0 else -1

    def find(self, id: str) -> int:
        """The place of a compilation by its id, or by its compile id if only one has it.

        Raises LookupError, which lists the ids.
        """
        by_id, by_compile_id = self._by_id
        found = by_id.get(id) or by_compile_id.get(id, [])
        if len(found) == 1:
            return found[0]
        known = ", ".join(self.id(place) for place in found) if found else self._known()
        what = "several compilations" if found else "no compilation"
        raise LookupError(f"{what} {id!r} in this recording; ask for one of {known}")

    def place_of(self, id: str) -> int:
        """The same, or NONE: it was compiled before the watch began, the log has lost it, or it is of several ranks."""
        try:
            return self.find(id)
        except LookupError:
            return NONE

    @cached_property
    def _by_id(self) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """The compilations of each id, and of each compile id."""
        by_id: dict[str, list[int]] = defaultdict(list)
        by_compile_id: dict[str, list[int]] = defaultdict(list)
        for place, compilation in enumerate(self.data.compilations):
            by_id[compilation.id].append(place)
            by_compile_id[compilation.compile_id].append(place)
        return dict(by_id), dict(by_compile_id)

    def _known(self) -> str:
        ids = [compilation.id for compilation in self.data.compilations]
        return ", ".join(ids[:20]) + (f" and {len(ids) - 20} more" if len(ids) > 20 else "") if ids else "none"

    def graph(self, place: int, role: str) -> Graph | None:
        """The graph of a role after the last stage that has it, for our own pipeline; None for a log."""
        compilation = self.data.compilations[place]
        for stage in reversed(compilation.stages):
            if role in stage.graphs:
                snapshot = compilation.graphs[stage.graphs[role]]
                return Graph(snapshot, compilation.values, self._texts, role, stage.name)
        return None

    @cached_property
    def frames(self) -> dict[Frame, list[int]]:
        """Compilations of Dynamo's by frame, in the order in which they were made."""
        frames: dict[Frame, list[int]] = defaultdict(list)
        for place, compilation in enumerate(self.data.compilations):
            if compilation.compile_id:
                frames[self.frame(place)].append(place)
        for places in frames.values():
            places.sort(key=lambda place: _number(self.data.compilations[place].compile_id))
        return dict(frames)

    @cached_property
    def functions(self) -> int:
        """How many functions Dynamo compiled, without exports. One that it compiled again after a reset counts once."""
        between: dict[int, Counter[Hashable]] = defaultdict(Counter)  # resets before -> (name, line) -> functions
        for places in self.frames.values():
            first = self.data.compilations[places[0]]
            if first.compile_id.startswith("!") and "/" in first.compile_id:
                continue  # what Dynamo compiles of a captured backward is that backward
            if first.kind in EXPORTS:
                continue
            place = self.frame_place(places[0])
            named = (first.log, first.rank, self.function(places[0]), place) if place else places[0]
            between[first.reset][named] += 1
        return sum(functools.reduce(operator.or_, between.values(), Counter()).values())

    def about(self, place: int, rows: list[Row]) -> Sequence[Row]:
        """Those of `rows`, one of the recording's lists, that are about a compilation."""
        index: dict[int, list[Row]] | None = self._rows.get(id(rows))
        if index is None:
            index = self._rows[id(rows)] = defaultdict(list)
            for row in rows:
                index[row.origin.compilation].append(row)
        return index.get(place, ())

    def guards_about(self, place: int, name: str) -> list[GuardRecord]:
        """The guards of a compilation on one value, by the name that `spoken` gives it."""
        return self.guarded(place).get(name, [])

    def guarded(self, place: int) -> dict[str, list[GuardRecord]]:
        """The values that a compilation guards, by the names that `spoken` gives them, and the guards on each."""
        if place not in self._about:
            named: dict[str, list[GuardRecord]] = defaultdict(list)
            for guard in self.about(place, self.data.guards):
                named[spoken(self.text(guard.source))].append(guard)
            self._about[place] = dict(named)
        return self._about[place]

    def sibling(self, place: int, compile_id: str) -> int:
        """The compilation of the same function with that compile id, or -1."""
        return self._by_compile_id.get((self._process(place), compile_id), -1)

    @cached_property
    def _by_compile_id(self) -> dict[tuple[Hashable, str], int]:
        compilations = enumerate(self.data.compilations)
        return {(self._process(place), c.compile_id): place for place, c in compilations if c.compile_id}

    def _process(self, place: int) -> Hashable:
        """The scope in which compile ids are unique."""
        compilation = self.data.compilations[place]
        return ("frame", compilation.frame) if compilation.frame >= 0 else ("log", compilation.log)

    def seconds(self, place: int) -> float:
        """The time of a compilation with its backward, without that of others inside it; 0 if the log does not say."""
        if not self.data.compilations[place].compile_id:
            return sum(stage.elapsed_ns for stage in self.timed_stages(place)) / 1e9
        metrics = self.about(place, self.data.metrics)
        said = sum((_seconds(record) for record in metrics if record.kind != "runtime"), 0.0)
        inside = self._inside.get(place, 0.0) + self.of_our_backend.get(place, 0.0)
        return max(0.0, (said or self._of_events.get(place, 0.0)) - inside)

    def timed_stages(self, place: int) -> list[StageRecord]:
        """The stages of a compilation of our own that ran, but for Dynamo's if torch tells of it as well."""
        stages = self.data.compilations[place].stages
        return [one for one in stages if not one.replayed and (one.name != "dynamo" or place not in self.told_twice)]

    @cached_property
    def told_twice(self) -> dict[int, int]:
        """Compilations of our own backend -> Dynamo's of the same, in a watch, which gets both."""
        theirs = {(one.compile_id, one.reset): place for place, one in enumerate(self.data.compilations)}
        found = {}
        for place, one in enumerate(self.data.compilations):
            named = None if one.compile_id else COMPILE_ID.search(one.name)
            if named is not None and (named[1], one.reset) in theirs:
                found[place] = theirs[named[1], one.reset]
        return found

    @cached_property
    def of_our_backend(self) -> dict[int, float]:
        """The seconds of each of Dynamo's compilations that our own backend tells of itself."""
        found: dict[int, float] = defaultdict(float)
        for place, theirs in self.told_twice.items():
            found[theirs] += self.seconds(place)
        return found

    @cached_property
    def total_seconds(self) -> float:
        """The time of all compilations."""
        return sum(map(self.seconds, range(len(self.data.compilations))))

    @cached_property
    def _inside(self) -> dict[int, float]:
        """The seconds of each compilation during which others were compiled inside it, by a backend that compiles."""
        events = self.data.events
        timed = [
            (events.log[row], events.start_us[row], -events.duration_us[row], place)
            for row, place in enumerate(events.compilation)
            if place >= 0 and events.duration_us[row] > 0 and not self._has_parent(row)
        ]
        around: list[tuple[int, float, int]] = []  # (log, end in microseconds, compilation)
        found: dict[int, float] = defaultdict(float)
        for log, start, minus, place in sorted(timed):
            while around and (around[-1][0] != log or around[-1][1] < start - minus):
                around.pop()
            if around and around[-1][2] != place:
                found[around[-1][2]] -= minus / 1e6
            around.append((log, start - minus, place))
        return found

    def _has_parent(self, row: int) -> bool:
        """Whether an event lies in another one of its compilation."""
        events = self.data.events
        return events.parent[row] >= 0 and events.compilation[events.parent[row]] == events.compilation[row]

    @cached_property
    def captured(self) -> dict[int, list[int]]:
        """Captures of a backward by torch's compiled autograd -> the compilations of the programs captured."""
        captures: dict[Hashable, int] = {}
        found: dict[int, list[int]] = defaultdict(list)
        for place, one in enumerate(self.data.compilations):
            if one.compile_id.startswith("!"):
                capture = one.log, one.rank, one.reset, one.compile_id.partition("/")[0]
                if one.compile_id == capture[-1]:
                    captures[capture] = place
                elif capture in captures:
                    found[captures[capture]].append(place)
        return dict(found)

    def is_captured_whole(self, place: int) -> bool:
        """Whether torch's compiled autograd is on, as far as captures in the process of a compilation tell."""
        return place >= 0 and (self.data.compilations[place].log, self.rank(place)) in self._with_captures

    @cached_property
    def _with_captures(self) -> set[tuple[int, int]]:
        return {(one.log, one.rank) for one in self.data.compilations if one.compile_id.startswith("!")}

    @cached_property
    def _of_events(self) -> dict[int, float]:
        """The time of each compilation's outermost events, for those that have no metrics of their own."""
        events, found = self.data.events, defaultdict[int, float](float)
        for row, place in enumerate(events.compilation):
            if place >= 0 and events.duration_us[row] > 0 and not self._has_parent(row):
                found[place] += events.duration_us[row] / 1e6
        return found

    def specialized(self, row: ShapeRecord) -> list[str]:
        """The sizes, by the user's names, that this record says were symbols and became constants."""
        if row.kind != "symbolic_shape_specialization":
            return []
        try:
            sources = json.loads(self.text(row.source))
        except ValueError:
            return []
        return [spoken(str(source)) for source in sources] if isinstance(sources, list) else []

    def failure(self, place: int) -> MetricsRecord | None:
        """The metrics of a failed compilation."""
        return next((record for record in self.about(place, self.data.metrics) if record.fail_type), None)

    def whole_place(self, place: int, shortened: str, stack: str) -> str:
        """ "/home/me/model.py:4" for a place as a guard names it ("me/model.py:4 in f").

        The guard's stack and the compilation's have whole paths. If a file shares only the root with torch, torch
        cuts off its first letter too ("ome/me/model.py:4").
        """
        position, _, function = shortened.partition(" in ")
        file, _, line = position.rpartition(":")
        for frame in user_frames(stack):
            if str(frame.line) == line and (frame.file.endswith(file) or frame.function == function):
                return str(frame)
        called = user_frames(self.text(self.data.compilations[place].stack))
        for frame in called:
            if frame.file.endswith(f"/{file}") or frame.file[2:] == file:
                return f"{frame.file}:{line}"
        package = f"{PACKAGES}{file.partition('/')[0]}/"
        known = next((frame.file.partition(package)[0] for frame in called if package in frame.file), None)
        return position if known is None else f"{known}{PACKAGES}{position}"

    def text_of(self, place: int, kind: str) -> int:
        """The number of the text that a log has of a type for a compilation, e.g. "aot_joint_graph"; -1 if none."""
        return next((a.text for a in self.about(place, self.data.artifacts) if self.text(a.type) == kind), -1)

    def named(self, place: int, name: str) -> list[str]:
        """The texts that a log has of the artifacts of a name for a compilation, e.g. "dynamo_error"."""
        return [self.text(a.text) for a in self.about(place, self.data.artifacts) if self.text(a.name) == name]

    def first_use(self, place: int, source: str) -> SourceLine | None:
        """The user's line that first reads an input ("L['x']"), according to Dynamo's graph."""
        asked = "first use", place, source
        if asked not in self.memory:
            self.memory[asked] = self._first_use(place, source)
        found: SourceLine | None = self.memory[asked]
        return found

    def _first_use(self, place: int, source: str) -> SourceLine | None:
        name = NOT_IN_NAMES.sub("_", source).lower()
        graph = self.text_of(place, "dynamo_output_graph")
        recorded = self.graph(place, "dynamo") if graph < 0 <= place else None
        if recorded is not None:
            read = {row.index for row in recorded.rows if row.op == "placeholder" and row.name == name}
            return next(
                (row.source for row in recorded.rows if row.source.file and read.intersection(row.inputs)), None
            )
        line: re.Match[str] | None = None
        for statement in self.text(graph).splitlines() if name else ():
            line = GRAPH_LINE.search(statement) or line
            if line and not statement.strip().startswith("#") and re.search(rf"\b{re.escape(name)}\b", statement):
                return SourceLine(line["file"], int(line["line"]), line["function"], line["code"].strip())
        return None


NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9]+")  # what Dynamo makes one underscore of when it names an input
NUMBERED = re.compile(r"/(\d{1,9})\Z")  # how often a compilation's code was compiled before, in its id
GRAPH_LINE = re.compile(
    r"# File: (?P<file>.{0,1000}?):(?P<line>\d{1,9}) in (?P<function>\S{1,1000}), code: (?P<code>.*)"
)


def _seconds(record: MetricsRecord) -> float:
    values = ((record.numbers.get(name) or 0) / (1e6 if name.endswith("_us") else 1) for name in TIMED)
    said = next((value for value in values if value), 0.0)
    # what Dynamo captures for an export, and AOTInductor: the duration has a part of the time, or nothing
    return max(said, record.end_unix_s - record.start_unix_s) if record.end_unix_s and record.start_unix_s else said


def _number(compile_id: str) -> int:
    number = NUMBERED.search(compile_id)
    return int(number[1]) if number else 0
