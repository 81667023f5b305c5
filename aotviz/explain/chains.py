"""What followed from each cause, and what all of it cost.

One change makes much: a recompile has a trace, a backward that is compiled as well, look-ups that miss because the
program is new, and kernels to build; a new program of the forward has a captured backward of its own, which Dynamo
compiles again. A person mends the cause. So each cause is one point, what came of it stands beneath, and the causes
are in the order of what the whole chain cost. Each compilation counts once in it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from aotviz.explain import recompiles, timeline
from aotviz.explain.cures import backward_cures, break_cures
from aotviz.explain.explanation import Point, by_urgency, counted, listed, seconds, sentence
from aotviz.explain.graph_breaks import STANDARD
from aotviz.explain.misses import Miss, shortened
from aotviz.explain.rows import Facts
from aotviz.recording.dynamo_stage import REST
from aotviz.recording.sources import SourceLine, innermost, user_frames
from aotviz.recording.spoken import BEFORE_BREAK

NAMED = re.compile(r"`[^`]*`")
CACHES = {"aotviz": "aotviz", "aotautograd": "AOTAutograd", "fx": "FX graph", "fx bundled": "bundled FX graph"}
MANY = 3  # programs of one function for which a change of a size is a consequence of their number
SMALL = 0.05  # of the compile time
KERNEL = re.compile(r"async_compile\.(?!wait\b|\w*warm)\w+\(")  # in the code that Inductor writes, once for each kernel
BUILDING = re.compile(r"async_compile|compile_file|triton|PyCodeCache")  # events of kernels that are built


def chained(facts: Facts, points: Sequence[Point]) -> list[Point]:
    """The points that are causes, by urgency, each with what followed from it; then the remarks."""
    told = [point for point in points if point.kind]
    known = _Causes(facts, told)
    causes = {number: known.of(number) for number in range(len(told))}
    for number, cause in [*causes.items()]:
        if number == cause and (repeated := known.repeated(told[number])) is not None:
            causes[number] = number if _first(causes, repeated) == number else repeated
    chains: dict[int, list[Point]] = {number: [] for number, cause in causes.items() if number == cause}
    for number in causes:
        if (cause := _first(causes, number)) != number:
            chains[cause].append(told[number])
    found = by_urgency(_chain(facts, told[number], followed) for number, followed in chains.items())
    return [*found, *(point for point in points if not point.kind)]


def _first(causes: Mapping[int, int], number: int) -> int:
    """The cause of a cause and so on, up to one without a cause."""
    while number != causes[number]:
        number = causes[number]
    return number


def _chain(facts: Facts, cause: Point, followed: Sequence[Point]) -> Point:
    if cause.kind != "recompile":
        spent = cause.seconds + sum(point.seconds for point in followed if point.kind == "recompile")
        return replace(cause, seconds=spent, followed=tuple(point.text for point in followed))
    ids = tuple(dict.fromkeys(id for point in (cause, *followed) for id in point.ids if point.kind != "restart"))
    places = compiled_for(facts, map(facts.find, ids))
    cost, total = sum(map(facts.seconds, places)), facts.total_seconds
    more = f"With all that followed from it, that is {seconds(cost)} of {seconds(total)}"
    whole = more if len(places) > len(cause.ids) else ""
    if 0 < cost < SMALL * total and not cause.failed and not _others_wait(facts, places):
        whole = sentence(whole, f"That is {cost / total:.0%} of the compile time, so there is little to gain")
    return replace(
        cause,
        failed=cause.failed or any(point.failed for point in followed),
        text=sentence(cause.text, whole),
        ids=tuple(map(facts.id, places)),
        seconds=max(cause.seconds, cost),
        followed=(*(point.text for point in followed), *links(facts, places)),
    )


def _others_wait(facts: Facts, places: Iterable[int]) -> bool:
    """Whether only some ranks of a job made these compilations."""
    return {*map(facts.rank, places)} < {one.rank for one in facts.data.compilations}


def compiled_for(facts: Facts, places: Iterable[int]) -> list[int]:
    """Compilations, and those of the programs that were captured in them: Dynamo compiles a captured backward."""
    found = dict.fromkeys(places)
    for place in tuple(found):
        found.update(dict.fromkeys(facts.captured.get(place, ())))
    return list(found)


def links(facts: Facts, places: Sequence[int]) -> Iterator[str]:
    """What making these programs led to, in sentences."""
    programs = [place for place in places if "/" in facts.data.compilations[place].compile_id.removeprefix("!")]
    if captured := [facts.id(place) for place in programs if facts.data.compilations[place].compile_id[0] == "!"]:
        spent = sum(facts.seconds(place) for place in programs if facts.id(place) in captured)
        yield sentence(f"Dynamo compiled what was captured ({_some(captured)}){_took(spent)}")
    backward = [one for place in places for one in facts.about(place, facts.data.metrics) if one.kind == "backward"]
    if backward:
        spent = sum(one.numbers.get("duration_us", 0) / 1e6 for one in backward)
        yield sentence(f"{counted(len(backward), 'backward')} had to be compiled as well{_took(spent)}")
    lookups = [one for place in places for one in facts.about(place, facts.data.cache_lookups)]
    for outcome, words in (("miss", "found nothing, because the program is new"), ("bypass", "could not be made")):
        caches = Counter(CACHES.get(one.cache, one.cache) for one in lookups if one.outcome == outcome)
        if caches:
            often = counted(caches.total(), "cache look-up")
            yield sentence(f"{often} ({listed(list(caches))}) {words}")
    kernels, spent = _kernels(facts, places)
    if kernels:
        yield sentence(f"Inductor built {counted(kernels, 'kernel')}{_took(spent)}")


def _kernels(facts: Facts, places: Sequence[int]) -> tuple[int, float]:
    """How many kernels Inductor built for these programs, and how long compiling waited for them."""
    count, spent = 0, 0.0
    for place in places:
        for artifact in facts.about(place, facts.data.artifacts):
            if facts.text(artifact.type) == "inductor_output_code":
                count += len(KERNEL.findall(facts.text(artifact.text)))
        for stage in facts.data.compilations[place].stages:
            names = {call.partition(":")[0] for calls in stage.kernels.values() for call in calls}
            count += 0 if stage.replayed else len(names)
    if count:
        spent = sum(timeline.spent(facts, place, BUILDING) for place in places)
    return count, spent


def _took(spent: float) -> str:
    return f": {seconds(spent)}" if spent else ""


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids) if len(ids) <= 3 else f"{ids[0]} to {ids[-1]}"


class _Causes:
    """Points as causes of others. Each is indexed by what a consequence of it shows, so that no two are compared."""

    def __init__(self, facts: Facts, points: Sequence[Point]) -> None:
        self._facts = facts
        self._points = points
        self._functions: dict[int, tuple[str, int]] = {}  # as `after` tells them
        self._broken: set[str] = set()  # the compilations with graph breaks, of whatever cause
        self._first_break: int | None = None
        self._breaks: dict[str, int] = {}  # line -> the first graph break there
        self._recompiles: dict[str, set[int]] = defaultdict(set)  # id of a compilation -> recompiles
        self._changes: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        """(change, function) -> (minus the line after which a recompile goes on, its number), for recompiles that go
        on after an earlier line than all before them."""
        self._recompiled: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        """(change, function) -> (when it began, number of the recompile)."""
        self._cured: dict[tuple[str, str], int] = {}  # (function, what to do) -> the first recompile
        self._constants: dict[str, tuple[int, int]] = {}
        """Function -> (the most programs that were made for the values of a constant, number of the recompile)."""
        self._generators: dict[str, int] = {}  # function -> its first graph break at a generator of random numbers
        self._raised: dict[str, int] = {}  # line -> the error that a call raised there
        self._forwards: dict[tuple[int, int], dict[str, list[tuple[int, int]]]] = defaultdict(dict)
        """(log, rank) -> kind of the compilation -> (when it began, number of the recompile)."""
        self._broken_frames: dict[tuple[str, str], int] = {}  # (file, function) -> the first graph break in it
        for number, point in enumerate(points):
            if point.ids and point.kind == "graph break":
                self._broken.update(point.ids)
                for frame in map(self._frame, map(facts.find, point.ids)):
                    self._broken_frames.setdefault(frame, number)
                self._first_break = number if self._first_break is None else self._first_break
                for line in _lines(facts, point):
                    self._breaks.setdefault(line, number)
                if break_cures.GENERATOR in point.fix.cures:
                    self._generators.setdefault(self._after(facts.find(point.ids[0]))[0], number)
            elif point.ids and point.kind == "recompile":
                self._add_recompile(number, point)
            elif point.kind == "failed" and not point.ids and point.place:
                self._raised.setdefault(point.place, number)
        for kinds in self._forwards.values():
            for began in kinds.values():
                began.sort()

    def _add_recompile(self, number: int, point: Point) -> None:
        for id in point.ids:
            self._recompiles[id].add(number)
        place = self._facts.find(point.ids[0])
        function, line = self._after(place)
        began = self._facts.data.compilations[place].started_unix_ns
        self._recompiled[_change(point), function].append((began, number))
        if point.fix and not point.fix.settled:
            self._cured.setdefault((function, point.fix), number)
            programs = len(point.ids) + 1
            if programs > self._constants.get(function, (0, 0))[0] and not self._is_symbolic(point):
                self._constants[function] = programs, number
        earlier = self._changes[_change(point), function]
        if not earlier or line < -earlier[-1][0]:
            earlier.append((-line, number))
        if backward_cures.FORWARD not in point.fix.cures:
            for id in point.ids:
                one = self._facts.data.compilations[self._facts.find(id)]
                self._forwards[one.log, one.rank].setdefault(one.kind, []).append((one.started_unix_ns, number))

    def of(self, number: int) -> int:
        """The number of the point that this one followed from; its own if it is a cause."""
        point = self._points[number]
        found = self._forward(point) if backward_cures.FORWARD in point.fix.cures else None
        if break_cures.RAISES in point.fix.cures and point.kind == "graph break":
            found = self._raised.get(point.place)
        if break_cures.GENERATOR in point.fix.cures and point.ids:  # it is made, seeded and drawn from: one edit
            found = self._generators.get(self._after(self._facts.find(point.ids[0]))[0])
        if found is None and point.ids and not point.failed:
            found = self._followed(point)
        return number if found is None else found

    def repeated(self, point: Point) -> int | None:
        """The first recompile of the function that the same edit cures, or the one for which this one was repeated.

        Where a value is a constant of many programs, each of them is compiled again when a size changes for the first
        time, and has a symbol for it then. So the one change of the size is told for as many programs.
        """
        if point.kind != "recompile" or not point.ids:
            return None
        place = self._facts.find(point.ids[0])
        function, _ = self._after(place)
        if self._is_symbolic(point) and function in self._constants and len(point.ids) > 1:
            changes = {self._words_of(self._facts.find(id)) for id in point.ids}
            programs, number = self._constants[function]
            if len(changes) == 1 and max(len(point.ids), MANY) <= programs:
                return number
        return self._cured.get((function, point.fix)) if point.fix else None

    def _words_of(self, place: int) -> str:
        main = self._mains.get(place)
        return main.failure.words if main is not None else ""

    def _is_symbolic(self, point: Point) -> bool:
        main = self._mains.get(self._facts.find(point.ids[0]))
        return main is not None and main.dynamic

    def _forward(self, capture: Point) -> int | None:
        """The cause of the last recompile before a backward was captured again, whose forward ran another program."""
        at = self._facts.data.compilations[self._facts.find(capture.ids[0])]
        latest: tuple[int, int] | None = None
        for kind, began in self._forwards[at.log, at.rank].items():
            before = bisect_left(began, (at.started_unix_ns,))
            if kind != at.kind and before:
                latest = max(latest or (0, 0), began[before - 1])
        return latest[1] if latest else None

    def _followed(self, point: Point) -> int | None:
        """The first cause that a point is a consequence of: it is about the same compilations, or it is the same change
        seen by the rest of a function after a graph break."""
        if point.kind == "restart":
            return self._first_break if self._broken.issuperset(point.ids) else None
        if point.kind == "cache":
            return min(set.intersection(*(self._recompiles[id] for id in point.ids)), default=None)
        if point.kind != "recompile":
            return None
        place = self._facts.find(point.ids[0])
        function, line = self._after(place)
        earlier = self._changes[_change(point), function]
        first = bisect_left(earlier, (1 - line,))  # the first that goes on after an earlier line
        found = [earlier[first][1]] if first < len(earlier) else []
        found += self._of_callers(place, function, _change(point))
        if str(line) in self._breaks and (BEFORE_BREAK in point.title or self._was_made_inside(place, function)):
            found.append(self._breaks[str(line)])
        found += self._of_broken_caller(place)
        if STANDARD.search(self._facts.frame_place(place)):  # what a call calls that was left out of the graph
            broken = self._breaks.get(point.place.rpartition(":")[2])
            found += [broken] if broken is not None and self._points[broken].place == point.place else []
        return min(found, default=None)

    def _of_broken_caller(self, place: int) -> list[int]:
        """The graph break for which a function was compiled by itself, where it is called from several lines.

        What a function calls is a part of its graph. After a graph break it is not, and is compiled for each of its
        calls that differ. A call from the same lines as before differs by itself, so that is no consequence.
        """
        path = self._path(place)
        frames = ((frame.file, frame.function) for frame in path)
        numbers = [self._broken_frames[frame] for frame in frames if frame in self._broken_frames]
        others = [other for other in self._facts.frames.get(self._facts.frame(place), ()) if other < place]
        return numbers if numbers and all(self._path(other) != path for other in others) else []

    def _path(self, place: int) -> tuple[SourceLine, ...]:
        """The lines that led to the call for which a function was compiled, from the outermost."""
        return user_frames(self._facts.text(self._facts.data.compilations[place].stack))[:-1]

    def _frame(self, place: int) -> tuple[str, str]:
        return self._facts.frame_place(place).rpartition(":")[0], self._facts.function(place)

    def _after(self, place: int) -> tuple[str, int]:
        if place not in self._functions:
            self._functions[place] = after(self._facts, place)
        return self._functions[place]

    def _was_made_inside(self, place: int, function: str) -> bool:
        """Whether a recompile of the rest of a function is for a value that the function computed before the graph
        break: no program of the whole function guards it."""
        main = self._mains.get(place)
        if main is None or main.failure.kind != "value":
            return False
        return all(main.value not in self._facts.guarded(one) for one in self._whole[function])

    @cached_property
    def _mains(self) -> Mapping[int, Miss]:
        return {one.place: one.main for one in recompiles.find(self._facts)}

    @cached_property
    def _whole(self) -> Mapping[str, list[int]]:
        """Function -> the compilations of the whole of it."""
        found: dict[str, list[int]] = defaultdict(list)
        for place in range(len(self._facts.data.compilations)):
            function, line = self._after(place)
            if not line:
                found[function].append(place)
        return found

    def _of_callers(self, place: int, function: str, change: str) -> list[int]:
        """The recompiles of functions that called this one, from outside its graph, for the same change."""
        at = self._facts.data.compilations[place]
        names = {frame.function for frame in user_frames(self._facts.text(at.stack))[:-1]} | self._callers[function]
        known = (self._recompiled[change, name] for name in names - {function})
        first = (next((n for began, n in those if began < at.started_unix_ns), None) for those in known)
        return [number for number in first if number is not None]

    @cached_property
    def _callers(self) -> Mapping[str, set[str]]:
        """Function -> those in which a graph break lay in this one. In a log, the stack of a compilation lacks the
        innermost calls."""
        found: dict[str, set[str]] = defaultdict(set)
        for one in self._facts.data.graph_breaks:
            if one.origin.compilation >= 0:
                caller, _ = self._after(one.origin.compilation)
                for frame in user_frames(self._facts.text(one.stack)):
                    found[frame.function].add(caller)
        return found


def _lines(facts: Facts, broken: Point) -> Iterator[str]:
    """The lines at which graphs end: that of the point, and the library's that its text names."""
    if ":" in broken.place:
        yield broken.place.rpartition(":")[2]
    for id in broken.ids:
        for one in facts.about(facts.find(id), facts.data.graph_breaks):
            last = innermost(facts.text(one.stack))
            if shortened(str(last)) in broken.text:
                yield str(last.line)


def after(facts: Facts, place: int) -> tuple[str, int]:
    """The function of a compilation as the user's code names it, and the line after which it goes on there; 0 if it is
    the whole function."""
    name = facts.function(place)
    if rest := REST.match(name):
        return rest["function"], int(rest["line"])
    return innermost(facts.text(facts.data.compilations[place].stack)).function or name, 0


def _change(point: Point) -> str:
    return NAMED.sub("", point.cause)
