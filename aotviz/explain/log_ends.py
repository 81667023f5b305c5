"""Where a log ends in the middle of a compilation: its process was killed there, waits, or still compiles.

Torch logs the beginning and the end of each step of a compilation, the end also where an error is raised. So a step
that has no end was not left by an error: the kernel killed the process (out of memory), a compiler crashed it, or it
hangs.
"""

from __future__ import annotations

from collections.abc import Iterator

from aotviz.explain import compile_time
from aotviz.explain.cures import rank_cures, time_cures
from aotviz.explain.cures.registry import NO_ADVICE
from aotviz.explain.explanation import Point, seconds, sentence
from aotviz.explain.rows import Facts
from aotviz.explain.time_parts import AOT, CAPTURE, GUARDS, KERNELS, part_of

STEPS = {  # a part of the compile time -> what was done then
    CAPTURE: "while Dynamo captured it",
    GUARDS: "while its guards were built",
    AOT: "in AOTAutograd",
    KERNELS: "while its kernels were generated and built",
}


def found(facts: Facts) -> Iterator[Point]:
    """One point for each log that ends in the middle of a compilation."""
    events = facts.data.events
    for row, latest in _unended(facts):
        place = events.compilation[row]
        name = facts.text(events.name[row])
        rank = f" of rank {facts.rank(place)}" if facts.rank(place) >= 0 else ""
        part = part_of(name)
        step = f"{STEPS[part]} (`{name}`)" if part in STEPS else f"in `{name}`"
        where = facts.called(place).removeprefix(f"rank {facts.rank(place)}: ")
        since = (latest - events.start_us[row]) / 1e6
        lasted = f", which it had done for {seconds(since)}" if since >= 1 else ""
        told = f"The log{rank} ends in the middle of {where}, {step}{lasted}"
        why = "The process was killed there, for example because memory ran out, or it hangs, or it still compiles"
        repeated = next((one for one in compile_time.shares(facts, only=place)[:1] if one.is_unrolled), None)
        large, code, at, fix = "", "", facts.frame_place(place), NO_ADVICE
        alone = ""
        if _is_alone(facts, place):
            fix = rank_cures.ALONE.said(function=f"`{facts.users_function(place)}`")
            alone = "No other rank's log has it. If the job has other ranks, they waited for this one meanwhile, and a "
            alone += "timeout of their process group ends the job"
        if repeated is not None and repeated.line.line:
            code, at = repeated.line.code, str(repeated.line)
            fix = fix.together_with(time_cures.UNROLLED.said())
            large = f"Its graph is large: {repeated.operators:,} operators come from this line, which is repeated"
        yield Point(
            sentence(told, alone, why, large),
            code,
            at,
            fix,
            failed=True,
            kind="failed",
            title=f"{told}: its graph has {repeated.operators:,} operators of one line" if large and repeated else told,
            ids=(facts.id(place),),
        )


def ranks_that_ended(facts: Facts) -> set[int]:
    """The ranks whose logs end in the middle of a compilation that others have as well: they did not go elsewhere."""
    places = [facts.data.events.compilation[row] for row, _ in _unended(facts)]
    return {facts.rank(place) for place in places if facts.rank(place) >= 0 and not _is_alone(facts, place)}


def _unended(facts: Facts) -> Iterator[tuple[int, float]]:
    """The event of each log's last step, if it has no end, and when the last event of that log began or ended."""
    events = facts.data.events
    last: dict[int, int] = {}  # log -> the step that began last, of those without an end
    latest: dict[int, float] = {}
    for row, duration in enumerate(events.duration_us):
        log = events.log[row]
        latest[log] = max(latest.get(log, 0.0), events.start_us[row] + max(0.0, duration))
        if duration < 0 and events.compilation[row] >= 0:
            last[log] = row
    for log, row in last.items():
        if facts.failure(events.compilation[row]) is None:
            yield row, latest[log]


def _is_alone(facts: Facts, place: int) -> bool:
    """Whether one rank of a job compiles a function that no other rank has compiled, as far as there are logs."""
    rank, where = facts.rank(place), facts.frame_place(place)
    others = (other for other, one in enumerate(facts.data.compilations) if one.rank != rank)
    return rank >= 0 and not any(facts.frame_place(other) == where for other in others)
