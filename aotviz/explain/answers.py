"""The questions of this folder that read more than one kind of row: each is a method of `Recording`.

They read only the rows of a recording, so they work the same on a live watch, on logs and on a saved file.
"""

from __future__ import annotations

from aotviz.explain import cache_misses, graph_breaks, graph_changes, ranks, recompiles, timeline
from aotviz.explain.explanation import Explanation, Point, counted, seconds, sentence
from aotviz.explain.rows import Facts
from aotviz.recording.holders import Recorded


def facts_of(recording: Recorded) -> Facts:
    data, texts = recording.rows
    if len(recording) != len(data.compilations):  # a live recording of our own pipeline: `rows` has only the logs'
        data = recording.data
        texts = data.strings
    return Facts(data, texts)


def asked(recording: Recorded, compilation: str | None) -> tuple[Facts, int | None]:
    """What a recording knows, and the place of the compilation with this id; None means all of them."""
    facts = facts_of(recording)
    return facts, None if compilation is None else facts.find(compilation)


def explain(recording: Recorded, compilation: str | None = None, earlier: Recorded | None = None) -> Explanation:
    """What needs an explanation, the costliest first; or everything about one compilation."""
    facts, place = asked(recording, compilation)
    before = facts_of(earlier) if earlier is not None else None
    return _overall(facts, before) if place is None else _one(recording, facts, place, before)


def sections(recording: Recorded) -> list[Explanation]:
    """One explanation for each topic that has points."""
    facts = facts_of(recording)
    found = [
        ranks.explain_all(facts),
        recompiles.explain_all(facts),
        graph_breaks.explain_all(facts),
        Explanation("Compilations that failed", tuple(_failures(facts, ran_in_eager=False))),
        Explanation("Programs that were refused and ran in eager", tuple(_failures(facts, ran_in_eager=True))),
        cache_misses.explain_all(facts),
        timeline.explain_all(facts),
    ]
    return [section for section in found if section.points]


def _overall(facts: Facts, earlier: Facts | None) -> Explanation:
    """What may hang first, then recompiles, failures, breaks, and the rest."""
    apart = ranks.explain_all(facts).points
    hangs = [point for point in apart if point.fix == ranks.HANG]
    points = [
        *hangs,
        *recompiles.explain_all(facts).points,
        *_failures(facts),
        *graph_breaks.explain_all(facts).points,
        *(point for point in apart if point not in hangs),
        *cache_misses.explain_all(facts, earlier).points,
        *timeline.explain_all(facts).points,
    ]
    again = len(recompiles.find(facts))
    functions = facts.functions or len(set(map(recompiles.own_function, facts.data.compilations)))
    title = f"{counted(len(facts.data.compilations), 'compilation')} of {counted(functions, 'function')}"
    total = sum(facts.seconds(place) for place in range(len(facts.data.compilations)))
    if again:
        title += f", {counted(again, 'of them a recompile', 'of them recompiles')}"
    return Explanation(f"{title}; {seconds(total)} in all", tuple(points))


def _one(recording: Recorded, facts: Facts, place: int, earlier: Facts | None) -> Explanation:
    compilation = facts.data.compilations[place]
    points = (
        *(recompiles.explain_one(facts, place) or [_first(facts, place)]),
        *_graphs(recording, facts, place),
        *_failures(facts, place),
        *graph_breaks.explain_one(facts, place),
        *cache_misses.explain_one(facts, place, earlier),
        *timeline.explain_all(facts, place).points,
        *recompiles.what_logs_leave_out([one for one in recompiles.find(facts) if one.place == place]),
    )
    where = facts.frame_place(place)
    return Explanation(f"{compilation.id}: {facts.function(place)}" + (f" ({where})" if where else ""), points)


def _first(facts: Facts, place: int) -> Point:
    cost = facts.seconds(place)
    again = len(facts.frames.get(facts.frame(place), ())) - 1 if facts.data.compilations[place].compile_id else 0
    first = f"This is the first compilation of `{facts.function(place)}`"
    spent = f"It cost {seconds(cost)}" if cost else ""
    later = f"It was compiled again {counted(again, 'time')}" if again > 0 else ""
    return Point(sentence(f"{first}; there was no earlier program whose guards could hold", spent, later))


def _graphs(recording: Recorded, facts: Facts, place: int) -> list[Point]:
    """How the graph differs from the nearest earlier program's."""
    nearest = next((r.nearest for r in recompiles.find(facts) if r.place == place), None)
    if nearest is None or not nearest.earlier:
        return []
    compilations = recording.compilations
    told = graph_changes.told(compilations[facts.find(nearest.earlier)], compilations[place])
    return [Point(told)] if told else []


def _failures(facts: Facts, only: int | None = None, ran_in_eager: bool | None = None) -> list[Point]:
    """Compilations that raised or ran in eager, or only one of the two.

    Compilations beyond the recompile limit are left out: the recompiles report them.
    """
    points = []
    for place, compilation in enumerate(facts.data.compilations):
        record, error = facts.failure(place), compilation.error
        if only not in (None, place) or (record is None and error is None):
            continue
        if record is not None:
            kind, reason, where = record.fail_type, facts.text(record.fail_reason), facts.text(record.fail_place)
        elif error is not None:
            kind, reason, where = error.type, error.message, error.place
        in_eager = error is not None and error.ran_in_eager
        if not kind or recompiles.LIMIT.search(reason) or ran_in_eager not in (None, in_eager):
            continue
        named, (words, fix) = f"{compilation.id} (`{facts.function(place)}`)", _told(reason)
        told = f"{named} ran in eager: {reason}" if in_eager else f"{named} failed with {kind}: {words}"
        points.append(Point(sentence(told), "", where, "" if in_eager else fix))
    return points


def _told(reason: str) -> tuple[str, str]:
    """The error and torch's hint from a message of several lines."""
    lines = [line.strip() for line in reason.strip().splitlines() if line.strip()] or ["no message"]
    said = lines[0] if not lines[0].endswith(":") or len(lines) == 1 else f"{lines[0]} {lines[1]}"
    explained = next((line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")), "")
    hint = next((line.removeprefix("Hint: ") for line in lines if line.startswith("Hint: ")), "")
    return f"{said}. {explained}".rstrip(". "), hint
