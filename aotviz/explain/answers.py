"""The questions of this folder that read more than one kind of row: each is a method of `Recording`.

They read only the rows of a recording, so they work the same on a live watch, on logs and on a saved file.
"""

from __future__ import annotations

import functools
import re
import weakref
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace as changed
from typing import NamedTuple

from msgspec.structs import replace

from aotviz.explain import (
    cache_misses,
    call_errors,
    chains,
    compile_time,
    cuda_graphs,
    exports,
    failures,
    first_apart,
    graph_breaks,
    graph_changes,
    log_ends,
    misses,
    peaks,
    plain_texts,
    ranks,
    recompiles,
    restarts,
    same_programs,
    steps,
    timeline,
    unlike_eager,
)
from aotviz.explain import overview as overviews
from aotviz.explain.cures import break_cures, guard_cures
from aotviz.explain.cures.registry import Advice
from aotviz.explain.explanation import Explanation, Point, by_urgency, counted, listed, seconds, sentence, some_of
from aotviz.explain.rows import EXPORTS, Facts
from aotviz.recording import log_tables
from aotviz.recording.findings import OverviewRecord, RankDifference, WhyCompiled
from aotviz.recording.holders import Recorded
from aotviz.recording.schema import CompilationData, ErrorRecord, RecordingData

FORGOTTEN = (
    "each time after torch was made to forget what it had compiled, by `torch.compiler.reset()` or "
    "`torch._dynamo.reset()`"
)
OFTEN = 3  # compilations of one function, each after a reset, from which on they are told
MOST_NAMED = 3  # compilations of one cause
WRAPPER = re.compile(r"`torch\.(?:nn\.parallel|distributed)\b|`(?:accelerate|deepspeed|fairscale|lightning)\b")
UNLOGGED = (
    "torch's log says nothing about errors that came later, when the compiled programs ran: if the job failed, look at "
    "what it printed, or run it under `aotviz.watch()`"
)
FAULTLESS = {  # by where the rows come from
    "log": "This log shows no fault in compiling",
    "watch": "Nothing went wrong while this was watched",
}


def all_rows(recording: Recorded) -> tuple[RecordingData, Sequence[str]]:
    data, texts = recording.rows
    if len(recording) != len(data.compilations):  # a live recording of our own pipeline: `rows` has only the logs'
        data = recording.data
        texts = data.strings
    return data, texts


def facts_of(recording: Recorded) -> Facts:
    """Raises TypeError for anything else than a recording, such as the path of one."""
    if not hasattr(recording, "rows"):
        raise TypeError(
            f"{recording!r} is no recording; `aotviz.load(file)` and `aotviz.read_trace(folder)` return one"
        )
    return Facts(*all_rows(recording))


def asked(recording: Recorded, compilation: str | None) -> tuple[Facts, int | None]:
    """What a recording knows, and the place of the compilation with this id; None means all of them."""
    facts = facts_of(recording)
    return facts, None if compilation is None else facts.find(compilation)


def explain(recording: Recorded, compilation: str | None = None, earlier: Recorded | None = None) -> Explanation:
    """What needs an explanation, in the order of `overall`; or everything about one compilation."""
    facts, place = asked(recording, compilation)
    before = facts_of(earlier) if earlier is not None else None
    return overall(facts, before) if place is None else _one(recording, facts, place, before)


def with_differences(recording: Recorded, facts: Facts | None = None) -> RecordingData:
    """The whole recording, with what differs between its ranks and why functions were compiled again, so that a page
    without Python can show it."""
    told, data = findings(recording, facts), recording.data
    return replace(
        data,
        rank_differences=told.rank_differences,
        why=told.why,
        plain=plain_texts.find(data, data.strings),
        overview=told.overview,
    )


def for_page(recording: Recorded, facts: Facts | None = None, *, with_peaks: bool = True) -> RecordingData:
    """The same, with the errors of torch's in the words that a page shows, the memory of a training step, and what
    would lower the peaks, which is not quick. A saved recording keeps torch's own words, and is asked for the rest
    when it is shown."""
    data = with_differences(recording, facts)
    found = peaks.of_all(recording) if with_peaks else []
    plain = [_in_plain_words(one) for one in data.compilations]
    return replace(data, compilations=plain, peaks=found, step=steps.of(recording))


def _in_plain_words(compilation: CompilationData) -> CompilationData:
    error = compilation.error
    return compilation if error is None else replace(compilation, error=plain_error(error))


def plain_error(error: ErrorRecord) -> ErrorRecord:
    """An error of `torch.compile` or of an export told as `explain` tells it; another one as it is.

    >>> plain_error(ErrorRecord("torch.compile", "Unsupported", "builtin operator `print`")).message
    '`print` cannot be part of a graph.'
    """
    if error.stage not in ("torch.compile", "torch.export", *EXPORTS) or error.ran_in_eager:
        return error
    brief = exports.brief(error.message)
    if not brief and error.type:
        brief = failures.told(error.type, error.message, error.stage != "torch.compile")[1]
    if not brief:
        return error
    return replace(error, message=sentence(brief))


class Findings(NamedTuple):
    """The explanation of a whole recording, and what a page shows of it."""

    explanation: Explanation
    overview: OverviewRecord
    why: list[WhyCompiled]
    rank_differences: list[RankDifference]


_latest: weakref.WeakKeyDictionary[Recorded, tuple[Hashable, Findings]] = weakref.WeakKeyDictionary()


def findings(recording: Recorded, facts: Facts | None = None) -> Findings:
    """The findings about a recording as it is now. They are made once at each of its revisions.

    The caller may pass the facts, which are not kept: they hold every graph of a recording of our own.

    No lock is held meanwhile (Note [Locks] in pipeline.py): requests at the same time may each make them.
    """
    revision = recording.revision
    known = _latest.get(recording)
    if known is not None and known[0] == revision:
        return known[1]
    facts = facts or facts_of(recording)
    told = overall(facts)
    found = Findings(told, overviews.made(facts, told.points), recompiles.why(facts), ranks.records(facts))
    _latest[recording] = revision, found
    return found


def sections(facts: Facts) -> list[Explanation]:
    """One explanation for each topic that has points: first those in which something failed."""
    apart = ranks.explain_all(facts)
    found = [
        Explanation(apart.title, tuple(first_apart.first(apart.points, facts))),
        Explanation("Exports", tuple(exports.explain_all(facts))),
        recompiles.explain_all(facts),
        graph_breaks.explain_all(facts),
        Explanation("CUDA graphs that were skipped", tuple(cuda_graphs.points(facts))),
        Explanation("Restarts of Dynamo", tuple(restarts.explain_all(facts))),
        Explanation("Calls that raised", tuple(call_errors.points(facts))),
        Explanation("Calls that were left out", tuple(unlike_eager.left_out(facts))),
        Explanation("Compilations that failed", (*log_ends.found(facts), *failures.found(facts, ran_in_eager=False))),
        Explanation("Programs that were refused and ran in eager", tuple(failures.found(facts, ran_in_eager=True))),
        cache_misses.explain_all(facts),
        timeline.explain_all(facts),
    ]
    told = [section for section in found if section.points]
    return sorted(told, key=lambda section: not any(point.failed for point in section.points))


def overall(facts: Facts, earlier: Facts | None = None) -> Explanation:
    """What may hang, then what failed, then the rest by the cost of all that followed from it. Remarks are last."""
    found = recompiles.find(facts)
    causes = [cause for cause in recompiles.causes(facts, found) if recompiles.on_some_ranks(facts, cause)]
    known_ids = {recompile.id for cause in causes for recompile in cause.recompiles}  # told with their ranks
    differences = (one for one in ranks.find(facts) if one.kind != "compilation" or not known_ids.intersection(one.ids))
    apart = ranks.points(differences)
    hangs = [point for point in apart if point.failed]
    costs = [
        *exports.explain_all(facts),
        *log_ends.found(facts),
        *call_errors.points(facts),
        *unlike_eager.left_out(facts),
        *failures.found(facts),
        *recompiles.points(facts),
        *_after_resets(facts),
        *_breaks(facts),
        *cuda_graphs.points(facts),
        *(point for point in apart if not point.failed),
        *cache_misses.explain_all(facts, earlier).points,
    ]
    cold = cache_misses.cold_start(facts, earlier)
    others = [point for point in costs if point.kind == "cache"]
    if others and sum(point.seconds for point in others) < chains.SMALL * facts.total_seconds:
        costs += [changed(point, kind="cache") for point in cold]  # it says more than they do
        cold = []
    spent = compile_time.points(facts)
    known = {(one.place, one.fix) for one in costs if one.kind == "export"}
    remarks = [
        *(point for point in spent if point.fix),
        *cold,
        *same_programs.found(facts),
        *(one for one in exports.without_problems(facts) if (one.place, one.fix) not in known),
        *recompiles.what_logs_leave_out(facts, found),
        *timeline.explain_all(facts).points,
        *(point for point in spent if not point.fix),
        *map(Point, log_tables.bad_lines(facts.data)),
        *([] if facts.data.compilations else map(Point, facts.data.notes)),
        *_never_called(facts),
    ]
    again = len(found)
    title = _counted(facts)
    times = [facts.seconds(place) for place in range(len(facts.data.compilations))]
    untimed = times.count(0.0)
    if again:
        title += f", {counted(again, 'of them a recompile', 'of them recompiles')}"
    if untimed < len(times):
        title += f"; {seconds(sum(times))} in all" + (f", {untimed} not timed" if untimed else "")
    else:
        title += "; not timed" if times else ""
    damaged = sum(log.bad_lines for log in facts.data.logs)
    title += f"; {counted(damaged, 'damaged line')}" if damaged else ""
    chained = chains.chained(facts, _with_nothing(facts, by_urgency(costs)))
    points = (*first_apart.first([*hangs, *chained], facts), *remarks)
    healthy = _nothing_wrong(facts, points)
    told = {cure for point in (*healthy, *points) for cure in point.fix.cures}
    unlike = (point for point in _unlike_eager(facts) if told.isdisjoint(point.fix.cures))
    return Explanation(title, (*healthy, *points, *unlike, *([] if healthy else _unlogged(facts, points))))


def _unlogged(facts: Facts, points: Sequence[Point]) -> list[Point]:
    """Said last of a log that does not tell how its job may have ended."""
    if facts.source != "log" or not facts.data.compilations or any(point.failed for point in points):
        return []
    return [Point(sentence(UNLOGGED))]


def _never_called(facts: Facts) -> list[Point]:
    """Said of a watch in which torch began no compilation, though nothing had been compiled before either."""
    if facts.source != "watch" or facts.data.compilations or facts.data.notes or any(call_errors.points(facts)):
        return []
    told = "Nothing was compiled while the watch was on: no call reached a compiled function"
    return [Point(sentence(told), fix=guard_cures.NOT_COMPILED.said())]


def _after_resets(facts: Facts) -> Iterator[Point]:
    """The functions that a program compiles again and again since it lets torch forget what was compiled."""
    resets: dict[tuple[int, str, str], dict[int, int]] = defaultdict(dict)  # of each function -> the first place
    for place, compilation in enumerate(facts.data.compilations):
        if compilation.compile_id and (line := facts.frame_place(place)):
            resets[compilation.rank, facts.function(place), line].setdefault(compilation.reset, place)
    for (_, function, line), places in resets.items():
        if len(places) >= OFTEN:
            told = f"`{function}` was compiled {len(places)} times, {FORGOTTEN}"
            spent, ids = sum(map(facts.seconds, places.values())), tuple(map(facts.id, places.values()))
            yield Point(sentence(told), "", line, guard_cures.RESET.said(), seconds=spent, ids=ids)


def _nothing_wrong(facts: Facts, points: Sequence[Point]) -> list[Point]:
    """Said first of a log or a watch where nothing needs attention. A log has no error of a compiled program that runs;
    neither has what was computed, which may differ from eager's."""
    if (
        facts.source not in FAULTLESS
        or all(one.kind in EXPORTS for one in facts.data.compilations)  # `exports.without_problems` tells of these
        or not overviews.is_healthy(points)
        or any(point.fix for point in points)
    ):
        return []
    told = f"{FAULTLESS[facts.source]}: no graph broke, nothing was compiled again, and nothing failed"
    unlogged = (_without_backward(facts), UNLOGGED) if facts.source == "log" else ()
    unlike = _unlike_eager(facts)
    text = sentence(told, *unlogged, *(point.text for point in unlike))
    if not unlike:
        return [Point(text)]
    fix = functools.reduce(Advice.together_with, (point.fix for point in unlike))
    return [Point(text, unlike[0].code, unlike[0].place, fix)]


def _without_backward(facts: Facts) -> str:
    """Which functions were compiled for training and not run backward: torch compiles a backward when it is run, but
    one that takes sizes at once."""
    unrun = [
        facts.called(place)
        for place in range(len(facts.data.compilations))
        if (number := facts.text_of(place, "aot_backward_graph")) >= 0
        and '"Sym(' not in facts.text(number)
        and not any(one.kind == "backward" for one in facts.about(place, facts.data.metrics))
        and ("aotautograd", "hit")
        not in {(one.cache, one.outcome) for one in facts.about(place, facts.data.cache_lookups)}
    ]
    whole = any(compilation.kind == "compiled autograd" for compilation in facts.data.compilations)
    if not unrun or whole:
        return ""
    names = some_of(unrun, MOST_NAMED)
    return f"no backward of {names} was compiled: `backward()` was not called, or the job ended before it"


def _unlike_eager(facts: Facts) -> list[Point]:
    """Said where nothing is wrong, and the results may differ from eager's."""
    return [
        Point(
            sentence(f"Results may differ from eager's: {one.text}"),
            one.line.code,
            str(one.line) if one.line.line else "",
            one.fix,
        )
        for one in unlike_eager.reasons(facts)
    ]


def _counted(facts: Facts) -> str:
    """How much was compiled: "2 exports and 3 compilations of 1 function"."""
    places = exports.by_kind(facts)
    compiled = [facts.data.compilations[place] for place in places.get("compilation", ())]
    functions = recompiles.functions(facts) or len(set(map(recompiles.own_function, compiled)))
    parts = [counted(len(found), noun) for noun, found in places.items()] or ["0 compilations"]
    return " and ".join(parts) + (f" of {counted(functions, 'function')}" if compiled or not places else "")


def _with_nothing(facts: Facts, points: list[Point]) -> list[Point]:
    """If Dynamo made no graph at all, as far as the log tells what it made, that is the first point, with the graph
    break that was the reason."""
    places = range(len(facts.data.compilations))
    told = facts.data.graph_breaks or (places and all(_counted_no_operator(facts, place) for place in places))
    if not told or any(_has_graph(facts, place) or facts.failure(place) for place in places):
        return points
    ids = tuple(map(facts.id, places))
    broken = next((point for point in points if point.kind == "graph break"), None)
    words = f"Nothing was compiled: Dynamo made no graph in {counted(len(places), 'attempt')}"
    if broken is None:
        functions = listed(list(dict.fromkeys(f"`{facts.function(place)}`" for place in places)))
        words = f"{words} at {functions}, because there was no tensor operation to put into one"
        first = Point(sentence(words), place=facts.frame_place(0), fix=break_cures.NO_TENSORS.said(), title=words)
        return [changed(first, failed=True, kind="graph break", ids=ids), *points]
    theirs = break_cures.NOT_YOURS in broken.fix.cures
    title = f"{words}, because {broken.cause}" if not theirs else f"{words}: {broken.text.partition('. Reached ')[0]}"
    around = break_cures.NO_GRAPH if WRAPPER.search(broken.text) else break_cures.LIBRARY_ALONE
    fix = around.said() if theirs else broken.fix
    text = sentence(title, "All of it ran in eager")
    again = tuple(point.text for point in points if point.kind == "recompile")
    followed = (*broken.followed, *again)
    first = changed(broken, text=text, title=title, fix=fix, failed=True, ids=ids, followed=followed)
    return [first, *(point for point in points if point is not broken and point.kind != "recompile")]


def _counted_no_operator(facts: Facts, place: int) -> bool:
    metrics = [one for one in facts.about(place, facts.data.metrics) if one.kind == "compilation"]
    return bool(metrics) and not any(one.numbers.get("graph_op_count") for one in metrics)


def _has_graph(facts: Facts, place: int) -> bool:
    compilation = facts.data.compilations[place]
    kinds = (facts.text(one.type) for one in facts.about(place, facts.data.artifacts))
    return bool(compilation.stages or compilation.kind) or any(kind.endswith(("graph", "code")) for kind in kinds)


def _breaks(facts: Facts) -> list[Point]:
    """Graph breaks with their shares of what Dynamo's restarts at them cost, which is the only cost that is timed; and
    those restarts."""
    breaks, lost = graph_breaks.explain_all(facts).points, restarts.lost(facts)
    shared = Counter(id for point in breaks for id in point.ids)
    costs = [sum(lost[id] / shared[id] for id in point.ids) for point in breaks]
    mended = [
        point if break_cures.NOT_YOURS in point.fix.cures else changed(point, seconds=cost)
        for point, cost in zip(breaks, costs, strict=True)
    ]
    return [*mended, *restarts.explain_all(facts)]


def _one(recording: Recorded, facts: Facts, place: int, earlier: Facts | None) -> Explanation:
    points = (
        *(exports.explain_all(facts, place) + exports.without_problems(facts, place)),
        *(recompiles.explain_one(facts, place) or _first(facts, place)),
        *_graphs(recording, facts, place),
        *failures.found(facts, place),
        *graph_breaks.explain_one(facts, place),
        *restarts.explain_all(facts, place),
        *cache_misses.explain_one(facts, place, earlier),
        *same_programs.found(facts, place),
        *timeline.explain_all(facts, place).points,
        *recompiles.what_logs_leave_out(facts, [one for one in recompiles.find(facts) if one.place == place]),
    )
    where = misses.users_place(facts, place)
    return Explanation(sentence(facts.called(place)).rstrip(".") + (f" ({where})" if where else ""), points)


def _first(facts: Facts, place: int) -> list[Point]:
    cost = facts.seconds(place)
    if facts.data.compilations[place].kind in exports.WITHOUT_GUARDS:
        return [Point(sentence(f"It took {seconds(cost)}"))] if cost else []
    again = len(facts.frames.get(facts.frame(place), ())) - 1 if facts.data.compilations[place].compile_id else 0
    first = f"This is the first compilation of `{facts.function(place)}`"
    spent = f"It cost {seconds(cost)}" if cost else ""
    later = f"It was compiled again {counted(again, 'time')}" if again > 0 else ""
    return [Point(sentence(f"{first}; there was no earlier program whose guards could hold", spent, later))]


def _graphs(recording: Recorded, facts: Facts, place: int) -> list[Point]:
    """How the graph differs from the nearest earlier program's."""
    nearest = next((r.nearest for r in recompiles.find(facts) if r.place == place), None)
    if nearest is None or not nearest.earlier:
        return []
    earlier = facts.place_of(nearest.earlier)
    if earlier < 0:
        return []
    compilations = recording.compilations
    told = graph_changes.told(compilations[earlier], compilations[place])
    return [Point(told)] if told else []
