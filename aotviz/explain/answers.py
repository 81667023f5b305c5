"""The questions of this folder that read more than one kind of row: each is a method of `Recording`.

They read only the rows of a recording, so they work the same on a live watch, on logs and on a saved file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotviz.explain import cache_misses, graph_breaks, graph_changes, ranks, recompiles, timeline
from aotviz.explain.explanation import Explanation, Point, counted, seconds, sentence
from aotviz.explain.rows import Facts
from aotviz.recording.holders import Recorded

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from aotviz.explain.marked_frame import ExplainedTable


def facts_of(recording: Recorded) -> Facts:
    data, texts = recording.rows
    if len(recording) != len(data.compilations):  # a live recording of our own pipeline: `rows` has only the logs'
        data = recording.data
        texts = data.strings
    return Facts(data, texts)


def explain(recording: Recorded, compilation: str | None = None, earlier: Recorded | None = None) -> Explanation:
    """What needs an explanation, the costliest first; or everything about one compilation."""
    facts = facts_of(recording)
    before = facts_of(earlier) if earlier is not None else None
    if compilation is None:
        return _overall(facts, before)
    return _one(recording, facts, facts.find(compilation), before)


def cache_table(recording: Recorded, earlier: Recorded | None = None) -> ExplainedTable:
    return cache_misses.frame(facts_of(recording), facts_of(earlier) if earlier is not None else None)


def timeline_table(recording: Recorded, compilation: str | None = None) -> ExplainedTable:
    facts = facts_of(recording)
    return timeline.frame(facts, None if compilation is None else facts.find(compilation))


def timeline_figure(recording: Recorded, compilation: str | None = None) -> Figure:
    facts = facts_of(recording)
    return timeline.figure(facts, None if compilation is None else facts.find(compilation))


def graph_change_table(recording: Recorded, before: str, after: str, role: str | None = None) -> ExplainedTable:
    facts = facts_of(recording)
    compilations = recording.compilations
    return graph_changes.frame(compilations[facts.find(before)], compilations[facts.find(after)], role)


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
    functions = facts.functions or len(
        {recompiles.own_function(compilation) for compilation in facts.data.compilations}
    )
    title = f"{counted(len(facts.data.compilations), 'compilation')} of {counted(functions, 'function')}"
    total = sum(facts.seconds(place) for place in range(len(facts.data.compilations)))
    if again:
        title += f", {counted(again, 'of them a recompile', 'of them recompiles')}"
    return Explanation(f"{title}; {seconds(total)} in all", tuple(points))


def _one(recording: Recorded, facts: Facts, place: int, earlier: Facts | None) -> Explanation:
    compilation = facts.data.compilations[place]
    points = recompiles.explain_one(facts, place)
    if not points:
        points.append(_first(facts, place))
    points.extend(_graphs(recording, facts, place))
    points.extend(_failures(facts, place))
    points.extend(graph_breaks.explain_one(facts, place))
    points.extend(cache_misses.explain_one(facts, place, earlier))
    points.extend(timeline.explain_all(facts, place).points)
    points.extend(recompiles.what_logs_leave_out([one for one in recompiles.find(facts) if one.place == place]))
    where = facts.frame_place(place)
    return Explanation(f"{compilation.id}: {facts.function(place)}" + (f" ({where})" if where else ""), tuple(points))


def _first(facts: Facts, place: int) -> Point:
    cost = facts.seconds(place)
    again = len(facts.frames.get(facts.frame(place), ())) - 1 if facts.data.compilations[place].compile_id else 0
    later = f"It was compiled again {counted(again, 'time')}" if again > 0 else ""
    return Point(
        sentence(
            f"This is the first compilation of `{facts.function(place)}`; there was no earlier program whose "
            "guards could hold",
            f"It cost {seconds(cost)}" if cost else "",
            later,
        )
    )


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
        record = facts.failure(place) if only in (None, place) else None
        error = compilation.error if only in (None, place) else None
        reason = facts.text(record.fail_reason) if record else error.message if error else ""
        kind = record.fail_type if record else error.type if error else ""
        if not kind or recompiles.LIMIT.search(reason):
            continue
        if ran_in_eager is not None and ran_in_eager != (error is not None and error.ran_in_eager):
            continue
        where = facts.text(record.fail_place) if record else error.place if error else ""
        words, fix = _told(reason)
        if error is not None and error.ran_in_eager:
            told = f"{compilation.id} (`{facts.function(place)}`) ran in eager: {reason}"
            points.append(Point(sentence(told), "", where, ""))
            continue
        points.append(
            Point(sentence(f"{compilation.id} (`{facts.function(place)}`) failed with {kind}: {words}"), "", where, fix)
        )
    return points


def _told(reason: str) -> tuple[str, str]:
    """The error and torch's hint from a message of several lines."""
    lines = [line.strip() for line in reason.strip().splitlines() if line.strip()] or ["no message"]
    said = lines[0] if not lines[0].endswith(":") or len(lines) == 1 else f"{lines[0]} {lines[1]}"
    explained = next((line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")), "")
    hint = next((line.removeprefix("Hint: ") for line in lines if line.startswith("Hint: ")), "")
    return f"{said}. {explained}".rstrip(". "), hint
