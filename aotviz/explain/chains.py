"""What followed from each cause, and what all of it cost.

One change makes much: a recompile has a trace, a backward that is compiled as well, look-ups that miss because the
program is new, and kernels to build; a new program of the forward has a captured backward of its own, which Dynamo
compiles again. A person mends the cause. So each cause is one point, what came of it stands beneath, and the causes
are in the order of what the whole chain cost. Each compilation counts once in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from aotviz.explain import timeline
from aotviz.explain.cures import backward_cures
from aotviz.explain.explanation import Point, by_urgency, counted, listed, seconds, sentence
from aotviz.explain.expressions import BEFORE_BREAK
from aotviz.explain.rows import Facts
from aotviz.recording.dynamo_stage import REST
from aotviz.recording.sources import innermost

NAMED = re.compile(r"`[^`]*`")
FOLLOWS = {"cache": "recompile", "restart": "graph break"}  # kind of a point -> the kind that it may follow from
CACHES = {"aotviz": "aotviz", "aotautograd": "AOTAutograd", "fx": "FX graph", "fx bundled": "bundled FX graph"}
KERNEL = re.compile(r"async_compile\.(?!wait\b|\w*warm)\w+\(")  # in the code that Inductor writes, once for each kernel
BUILDING = re.compile(r"async_compile|compile_file|triton|PyCodeCache")  # events of kernels that are built


def chained(facts: Facts, points: Sequence[Point]) -> list[Point]:
    """The points that are causes, by urgency, each with what followed from it; then the remarks."""
    told = [point for point in points if point.kind]
    broken = {id for point in told if point.kind == "graph break" for id in point.ids}
    causes = {number: _cause_of(facts, number, told, broken) for number in range(len(told))}
    chains: dict[int, list[Point]] = {number: [] for number, cause in causes.items() if number == cause}
    for number, cause in causes.items():
        while cause != causes[cause]:
            cause = causes[cause]
        if number != cause:
            chains[cause].append(told[number])
    found = by_urgency(_chain(facts, told[number], followed) for number, followed in chains.items())
    return [*found, *(point for point in points if not point.kind)]


def _chain(facts: Facts, cause: Point, followed: Sequence[Point]) -> Point:
    if cause.kind != "recompile":
        spent = cause.seconds + sum(point.seconds for point in followed if point.kind == "recompile")
        return replace(cause, seconds=spent, followed=tuple(point.text for point in followed))
    ids = tuple(dict.fromkeys(id for point in (cause, *followed) for id in point.ids if point.kind != "restart"))
    places = compiled_for(facts, map(facts.find, ids))
    cost, total = sum(map(facts.seconds, places)), sum(map(facts.seconds, range(len(facts.data.compilations))))
    whole = (
        f"With all that followed from it, that is {seconds(cost)} of {seconds(total)}"
        if len(places) > len(cause.ids)
        else ""
    )
    return replace(
        cause,
        text=sentence(cause.text, whole),
        ids=tuple(map(facts.id, places)),
        seconds=max(cause.seconds, cost),
        followed=(*(point.text for point in followed), *links(facts, places)),
    )


def compiled_for(facts: Facts, places: Iterable[int]) -> list[int]:
    """Compilations, and those of the programs that were captured in them: Dynamo compiles a captured backward."""
    found = list(dict.fromkeys(places))
    for place in tuple(found):
        found += [other for other in facts.captured.get(place, ()) if other not in found]
    return found


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


def _cause_of(facts: Facts, number: int, points: Sequence[Point], broken: set[str]) -> int:
    """The number of the point that this one followed from; its own if it is a cause."""
    point = points[number]
    if backward_cures.FORWARD in point.fix.cures and (cause := _forward(facts, point, points)) is not None:
        return cause
    others = (n for n, cause in enumerate(points) if n != number and _follows(facts, point, cause, broken))
    return next(others, number)


def _forward(facts: Facts, capture: Point, points: Sequence[Point]) -> int | None:
    """The cause of the last recompile before a backward was captured again, whose forward ran another program."""
    place = facts.find(capture.ids[0])
    at = facts.data.compilations[place]
    latest: tuple[int, int] | None = None
    for number, point in enumerate(points):
        if point.kind != "recompile" or backward_cures.FORWARD in point.fix.cures:
            continue
        for id in point.ids:
            one = facts.data.compilations[facts.find(id)]
            is_forward = (one.log, one.rank) == (at.log, at.rank) and one.kind != at.kind
            if is_forward and one.started_unix_ns < at.started_unix_ns:
                latest = max(latest or (0, 0), (one.started_unix_ns, number))
    return latest[1] if latest else None


def _follows(facts: Facts, point: Point, cause: Point, broken: set[str]) -> bool:
    """Whether `point` is about a consequence of `cause`: about the same compilations, or the same change seen by the
    rest of a function after a graph break. `broken` are the compilations with graph breaks, of whatever cause."""
    if point.failed or not point.ids or not cause.ids:
        return False
    if cause.kind == "graph break" and point.kind == "recompile" and BEFORE_BREAK in point.title:
        return cause.place.endswith(f":{after(facts, facts.find(point.ids[0]))[1]}")
    if cause.kind == FOLLOWS.get(point.kind):
        return set(point.ids) <= (broken if point.kind == "restart" else set(cause.ids))
    if point.kind != "recompile" or cause.kind != "recompile" or _change(point) != _change(cause):
        return False
    (rest, line), (function, before) = (after(facts, facts.find(one.ids[0])) for one in (point, cause))
    return rest == function and before < line


def after(facts: Facts, place: int) -> tuple[str, int]:
    """The function of a compilation as the user's code names it, and the line after which it goes on there; 0 if it is
    the whole function."""
    name = facts.function(place)
    if rest := REST.match(name):
        return rest["function"], int(rest["line"])
    return innermost(facts.text(facts.data.compilations[place].stack)).function or name, 0


def _change(point: Point) -> str:
    return NAMED.sub("", point.title)
