"""Why functions were compiled again: which guard of which earlier program failed, on what value, from which line.

Dynamo keeps a list of programs for each function ("frame"), and compiles a call that none of them fits. The
explanation is about the nearest program: the one with the fewest failed guards (misses.py); then one that differs in a
value for which no program was made yet, then the one whose guard is checked last, then the one whose guard failed for
the most programs, then the newest.

All guards that failed for that program are named, first the one that is likely to fail again: a counter that failed in
many recompiles before a value that failed once, and a value that is symbolic from now on last. Recompiles with one
cause (same function, same value) are counted and timed together, the costliest cause first.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from aotviz.explain import advice, cures_of_recompiles, explained_tables, log_ends, misses, wrapped
from aotviz.explain.cures import export_cures, guard_cures
from aotviz.explain.explanation import (
    Explanation,
    Point,
    by_urgency,
    counted,
    named_ranks,
    seconds,
    sentence,
    some_of,
)
from aotviz.explain.misses import LIBRARY, Miss, Reason
from aotviz.explain.recompile import Cause, Recompile, quoted
from aotviz.explain.rows import Facts
from aotviz.recording import guard_texts
from aotviz.recording.findings import WhyCompiled
from aotviz.recording.schema import NONE, CompilationData
from aotviz.recording.sources import user_frames

if TYPE_CHECKING:
    from aotviz.explain.marked_frame import ExplainedTable

ONLY_FIRST = (
    "A torch log names only the first guard that a call failed, for each program. Other failed guards are "
    "derived from the guards of both compilations, as far as possible. `aotviz.watch()` evaluates every "
    "guard."
)
NOT_TRIED = "Of some programs, only the guard that torch names is known: the others could not be evaluated."
# Shared memory says more than the offsets that follow from it; then what tends to change with every call.
LIKELY = {"memory": 0, "same tensor": 0, "value": 1, "length": 2}
MOST_TOLD = 4  # of the other programs that did not fit
ASKED = re.compile(r"(?P<function>.*) \[(?P<id>\d+/\d+)\]")  # the name of a program of ours that Dynamo asked for
OTHERS_WAIT = ", so other ranks wait at their next collective"
LIMIT = re.compile(r"(?:recompile|cache[_ ]size)[_ ]?limit", re.I)
SETTING = "fail_on_recompile_limit_hit"
LIMIT_ERROR = "FailOnRecompileLimitHit"
OF_LINES = {  # cures of a line that made a symbol a constant
    export_cures.FIXED_SIZE,
    guard_cures.FIXED_NUMBER,
    guard_cures.INDEXED_BY_NUMBER,
    guard_cures.NEEDED_NUMBER,
    guard_cures.NUMPY_NUMBER,
    guard_cures.UNROLLED,
}
LIMIT_VALUE = re.compile(r"currently set to (\d{1,9})")


def find(facts: Facts) -> list[Recompile]:
    """All recompiles, in the order of the log."""
    found: list[Recompile] | None = facts.memory.get("recompiles")
    if found is None:
        found = facts.memory["recompiles"] = _find(facts)
    return found


def _find(facts: Facts) -> list[Recompile]:
    found = []
    for record in facts.data.recompiles:
        place = record.origin.compilation
        if place < 0 or not record.reasons:
            continue
        reasons = misses.of(facts, place, record.reasons)
        failed = facts.failure(place)
        text = facts.text(failed.fail_reason) if failed else ""
        if wrapped.is_wrapper(facts, place):
            of_others, reasons = reasons, wrapped.reasons(facts, place, reasons)
            if not reasons and failed and _outcome(failed.fail_type, text) != "failed":
                reasons = wrapped.beyond_the_limit(facts, place, of_others)
            if not reasons:
                continue
        limit = LIMIT_VALUE.search(text)
        found.append(
            Recompile(
                place=place,
                id=facts.id(place),
                function=facts.function(place),
                reasons=reasons,
                seconds=facts.seconds(place),
                outcome="compiled" if failed is None else _outcome(failed.fail_type, text),
                limit=int(limit[1]) if limit else 0,
                left_out=record.left_out,
            )
        )
    return _recurring_first(facts, [*found, *_of_our_own(facts)])


def _outcome(error: str, text: str) -> str:
    return "limit error" if error == LIMIT_ERROR else "limit" if LIMIT.search(text) else "failed"


def functions(facts: Facts) -> int:
    """How many functions were compiled. Those that Dynamo compiles inside one wrapper of its own count each."""
    again = {recompile.place for recompile in find(facts)}
    asked = {record.origin.compilation for record in facts.data.recompiles if record.reasons}
    return facts.functions + sum(place >= 0 and wrapped.is_wrapper(facts, place) for place in asked - again)


def _recurring_first(facts: Facts, recompiles: Sequence[Recompile]) -> list[Recompile]:
    """The recompiles, with the guards of each program ordered by how likely they are to fail again."""
    times: dict[Hashable, Counter[str]] = defaultdict(Counter)
    for recompile in recompiles:
        times[_function(facts, recompile)].update(miss.value for miss in recompile.nearest.misses)

    def likely_first(recompile: Recompile) -> Recompile:
        often = times[_function(facts, recompile)]

        def key(miss: Miss) -> tuple[bool, int, int]:
            of_module = bool(advice.MODULES_CHANGED & {*miss.failure.fix.cures})  # which the inputs follow
            return miss.dynamic, -often[miss.value], LIKELY.get(miss.failure.kind, 3 if of_module else 4)

        reasons = tuple(
            replace(reason, misses=tuple(sorted(reason.misses, key=key))) if len(reason.misses) > 1 else reason
            for reason in recompile.reasons
        )
        return replace(recompile, reasons=reasons)

    return [likely_first(recompile) for recompile in recompiles]


def _function(facts: Facts, recompile: Recompile) -> Hashable:
    """A key that all recompiles of one function share."""
    compilation = facts.data.compilations[recompile.place]
    return facts.frame(recompile.place) if compilation.compile_id else own_function(compilation)


def _on_any_rank(facts: Facts, recompile: Recompile) -> Hashable:
    """A key that the recompiles of one function share on all ranks, which usually do the same."""
    place = facts.frame_place(recompile.place)
    if facts.rank(recompile.place) < 0 or not place:
        return _function(facts, recompile)
    return facts.data.compilations[recompile.place].reset, recompile.function, place


def _of_our_own(facts: Facts) -> list[Recompile]:
    """The recompiles of aotviz's own functions, whose compilations record why earlier programs did not match.

    One that Dynamo asked for is left out if a log reports the same recompile.
    """
    found = []
    logged = {one.compile_id for one in facts.data.compilations if one.because and one.compile_id}
    programs: dict[tuple[int, str], list[int]] = defaultdict(list)  # of each function and name, the newest first
    for place, compilation in enumerate(facts.data.compilations):
        earlier = programs[compilation.frame, compilation.name]
        asked = ASKED.fullmatch(compilation.name)
        guarded = (
            asked is not None and guard_texts.FAILED.match(compilation.because[0]) if compilation.because else None
        )
        is_own = not compilation.compile_id or compilation.kind == "compiled autograd"
        if compilation.because and is_own and not (asked and guarded and asked["id"] in logged):
            if asked and guarded:
                reasons = tuple(
                    _of_dynamo(facts, place, asked["function"], programs, text) for text in compilation.because
                )
            else:  # an aotviz function, or a graph of Dynamo's whose arguments share memory otherwise
                told = len(earlier) == len(compilation.because)  # if not, some are gone, or another function's
                those = earlier if told else [-1] * len(compilation.because)
                reasons = tuple(
                    misses.of_own(facts, place, one, guard_texts.parts(text))
                    for one, text in zip(those, compilation.because, strict=True)
                )
            name = asked["function"] if asked else compilation.name
            error = compilation.error
            limit = LIMIT.search(error.message) and LIMIT_VALUE.search(error.message) if error else None
            failed = "limit" if limit else "eager" if error and error.ran_in_eager else "failed"
            outcome, most = failed if error else "compiled", int(limit[1]) if limit else 0
            found.append(Recompile(place, facts.id(place), name, reasons, facts.seconds(place), outcome, most))
        earlier.insert(0, place)
    return found


def own_function(compilation: CompilationData) -> Hashable:
    """A key that all compilations of one aotviz function share."""
    asked = ASKED.fullmatch(compilation.name)
    name = f"{asked['function']} [{asked['id'].partition('/')[0]}]" if asked else compilation.name
    return name if compilation.frame < 0 else (compilation.frame, asked["function"] if asked else name)


def _of_dynamo(
    facts: Facts, place: int, function: str, programs: Mapping[tuple[int, str], list[int]], text: str
) -> Reason:
    """Why a program of ours that Dynamo asked for did not match, as the backend was told."""
    match = guard_texts.FAILED.fullmatch(text)
    frame = facts.data.compilations[place].frame
    earlier = programs.get((frame, f"{function} [{match['id']}]"), []) if match else []
    guard = match["guard"] if match else text
    return misses.of_own(facts, place, earlier[0] if earlier else -1, guard_texts.parts(guard))


def causes(facts: Facts, recompiles: Sequence[Recompile]) -> list[Cause]:
    """The recompiles by cause: first those of functions that reached the limit, to which all of them led; then the
    costliest."""
    full = _that_reached_the_limit(facts, recompiles)
    groups: dict[tuple[object, ...], list[Recompile]] = defaultdict(list)
    for recompile in recompiles:
        groups[_on_any_rank(facts, recompile), recompile.main.value].append(recompile)
    found = [Cause(tuple(group)) for group in groups.values()]

    def urgency(cause: Cause) -> tuple[bool, float, float]:
        count = len(cause.recompiles)
        return (
            (False, -count, -cause.seconds) if _function(facts, cause.first) in full else (True, -cause.seconds, -count)
        )

    return sorted(found, key=urgency)


def _that_reached_the_limit(facts: Facts, recompiles: Sequence[Recompile]) -> dict[Hashable, Recompile]:
    """The functions that reached the limit -> the recompile at which they did."""
    return {_function(facts, one): one for one in reversed(recompiles) if one.outcome == "limit"}


COLUMNS: explained_tables.Columns = {  # of (recompile, how many have its cause, rank)
    "compilation": ("str", lambda row: row[0].id),
    "rank": ("int64", lambda row: row[2]),
    "function": ("str", lambda row: row[0].function),
    "earlier": ("str", lambda row: row[0].nearest.earlier),
    "kind": ("str", lambda row: row[0].main.failure.kind),
    "subject": ("str", lambda row: row[0].main.failure.subject),
    "before": ("str", lambda row: row[0].main.failure.before),
    "after": ("str", lambda row: row[0].main.failure.after),
    "also": ("object", lambda row: tuple(miss.failure.subject for miss in row[0].also)),
    "why": ("str", lambda row: row[0].why),
    "code": ("str", lambda row: row[0].main.code),
    "place": ("str", lambda row: row[0].main.place),
    "seconds": ("float64", lambda row: row[0].seconds),
    "same_cause": ("int64", lambda row: row[1]),
    "outcome": ("str", lambda row: row[0].outcome),
    "fix": ("str", lambda row: row[0].main.failure.fix),
}


def frame(facts: Facts) -> ExplainedTable:
    """One row for each recompile."""
    recompiles = find(facts)
    size = {r.id: len(cause.recompiles) for cause in causes(facts, recompiles) for r in cause.recompiles}
    rows = [(one, size[one.id], facts.rank(one.place)) for one in recompiles]
    return explained_tables.table(
        COLUMNS, rows, marked=("subject", "before", "after", "also", "code"), hidden=("kind", "function", "rank")
    )


def explain_one(facts: Facts, place: int) -> list[Point]:
    """Why a compilation was a recompile; empty if it was none."""
    points = []
    for recompile in find(facts):
        if recompile.place != place:
            continue
        points.append(_why(facts, recompile))
        others = [reason for reason in recompile.reasons if reason is not recompile.nearest]
        if others:
            said = list(dict.fromkeys(reason.misses[0].failure.words for reason in others))
            told = "; ".join(words + _ids(others, words) for words in said[:MOST_TOLD])
            told += f"; and {len(said) - MOST_TOLD} others" if len(said) > MOST_TOLD else ""
            told += f"; and {counted(recompile.left_out, 'program')} likewise" if recompile.left_out else ""
            points.append(Point(sentence(f"Earlier programs that did not fit either: {told}")))
    return points


def _why(facts: Facts, recompile: Recompile) -> Point:
    """Why the most similar earlier program did not fit."""
    main = recompile.main
    cost = f"It cost {seconds(recompile.seconds)}" if recompile.seconds else ""
    told = sentence(recompile.why, cost, _reached(facts, recompile.place, main))
    shown = _own_first(facts, recompile.place, main)
    return Point(told, shown.code, shown.place, main.failure.fix)


def why(facts: Facts) -> list[WhyCompiled]:
    """Why each recompile was made, for a workbench: the first point of `explain_one`."""
    found = [(recompile, _why(facts, recompile)) for recompile in find(facts)]
    return [WhyCompiled(one.id, point.text, point.code, point.place, str(point.fix)) for one, point in found]


def what_logs_leave_out(facts: Facts, recompiles: Sequence[Recompile]) -> list[Point]:
    """A remark for recompiles whose guards were not all evaluated."""
    tried = all(reason.tried for one in recompiles for reason in one.reasons)
    return [] if tried else [Point(NOT_TRIED if facts.source == "watch" else ONLY_FIRST)]


def explain_all(facts: Facts) -> Explanation:
    recompiles = find(facts)
    if not recompiles:
        return Explanation("No function was recompiled.", ())
    found = causes(facts, recompiles)
    functions = len({(cause.first.function, facts.frame(cause.first.place)) for cause in found})
    total = sum(recompile.seconds for recompile in recompiles)
    title = (
        f"{counted(len(recompiles), 'recompile')} of {counted(functions, 'function')}, "
        f"{f'{seconds(total)} in all' if total else 'not timed'}, for {counted(len(found), 'cause')}"
    )
    return Explanation(title, (*points(facts), *what_logs_leave_out(facts, recompiles)))


def points(facts: Facts) -> list[Point]:
    """One point for each cause: those with which calls failed or reached the limit first, then the costliest."""
    recompiles = find(facts)
    full = _that_reached_the_limit(facts, recompiles)
    found, told = [], set[Hashable]()
    for cause in causes(facts, recompiles):
        function = _function(facts, cause.first)
        found.append(_cause_point(facts, cause, recompiles, full.get(function), function not in told))
        told.add(function)
    return by_urgency(found)


def _cause_point(
    facts: Facts, cause: Cause, recompiles: Sequence[Recompile], full: Recompile | None, is_told_first: bool
) -> Point:
    """`full` is the recompile at which the function reached the limit, if it did; `is_told_first`: of its causes."""
    first, last, count = cause.first, cause.recompiles[-1], len(cause.recompiles)
    telling = next((r for r in cause.recompiles if r.main.code), first)
    common = Counter(r.main.failure.kind for r in cause.recompiles).most_common(1)[0][0]
    usual = next(r for r in cause.recompiles if r.main.failure.kind == common)
    opening, total = first.why, len(recompiles)
    fixed = cures_of_recompiles.line_that_fixed(facts, cause)
    if count > 1:
        values = _values(cause)
        every = "both recompiles" if total == 2 else f"all {total} recompiles"
        share = f"{count} of the {total} recompiles" if count < total else every
        opening = sentence(
            f"{cause.named} caused {share}: {quoted(first.function)} was compiled again {_because(cause)}{values}"
        )
        others = Counter(miss.failure.subject for r in cause.recompiles for miss in r.also)
        if others:
            told = [f"`{subject}`{f' ({times} times)' if times > 1 else ''}" for subject, times in others.most_common()]
            opening += f" The calls failed guards on other values as well: {some_of(told)}."
        if _stays_static(cause) and not fixed:
            opening += f" `{cause.subject}` is not dynamic: `dynamic=False`, or a setting, keeps torch from that."
        limited = next((r for r in cause.recompiles if r.outcome == "limit"), None)
        if limited is None and full is not None:
            opening += f" With its other recompiles, it reached the recompile limit at {full.id}."
        elif limited is not None:
            limit = f" of {limited.limit}" if limited.limit else ""
            opening += (
                f" At {limited.id} it reached the recompile limit{limit}: calls that fit none of its programs run in "
                "eager from then on."
            )
        elif (raised := next((r for r in cause.recompiles if r.outcome == "limit error"), None)) is not None:
            failed = facts.failure(raised.place)
            is_setting = failed is not None and SETTING in facts.text(failed.fail_reason)
            why = f"by the setting `{SETTING}`" if is_setting else "under `fullgraph=True`"
            opening += f" At {raised.id} it reached the recompile limit, which is an error {why}."
        elif any(r.main.dynamic for r in cause.recompiles):
            first_symbolic = next(r for r in cause.recompiles if r.main.dynamic)
            opening += f" {cause.named} became symbolic in {first_symbolic.id}."
    elif full is not None and full is not first and is_told_first:
        opening += f" With its other recompiles, it reached the recompile limit at {full.id}."
    main = _own_first(facts, telling.place, telling.main)
    fix = cures_of_recompiles.of(facts, cause, usual, full is not None or cause.reached_limit)
    if count > 1 and _stays_static(cause) and not fixed:
        fix = guard_cures.STATIC.said().together_with(fix)
    if fixed and OF_LINES & {*fix.cures}:
        main = replace(main, code=fixed.code, place=str(fixed))
        opening = sentence(opening, f"Dynamo made `{cause.subject}` a symbol, and this line made it a constant again")
    ids = f"Compilation {first.id}" if count == 1 else f"Compilations {first.id} to {last.id}"
    timed = f"cost {seconds(cause.seconds)}" if cause.seconds else "was not timed" if count == 1 else "were not timed"
    cost = f"{ids} {timed}"
    reached = _reached(facts, telling.place, telling.main)
    if some := on_some_ranks(facts, cause):
        named = named_ranks([f"rank {rank}" for rank in some])
        cost += f". Only {named} compiled it again{OTHERS_WAIT}"
    words = sentence(opening, cost, reached)
    title = _titled(cause, bool(fixed)) + (f" on {named_ranks([f'rank {rank}' for rank in some])} only" if some else "")
    point = Point(
        words,
        main.code,
        main.place or misses.users_place(facts, telling.place),
        fix,
        cause.failed,
        cause.seconds,
        kind="recompile",
        title=title,
        ids=tuple(recompile.id for recompile in cause.recompiles),
    )
    if full is not None:  # each of its causes led to the limit, and costs what they cost together
        spent = sum(one.seconds for one in recompiles if _function(facts, one) == _function(facts, first))
        return replace(point, failed=True, seconds=spent)
    return point


def _titled(cause: Cause, fixed: bool) -> str:
    """The effect, then what changed, in some words, with the values that were seen."""
    values = _values(cause)
    told = cures_of_recompiles.words_of_class(cause) or (
        f"{cause.named} changed{values}" if values or len(cause.subjects) > 1 else ""
    )
    static = " and is not dynamic" if _stays_static(cause) and not fixed else ""
    outcomes, often = {one.outcome for one in cause.recompiles}, len(cause.recompiles)
    effect = "was recompiled" + (f" {often} times" if often > 1 else "")
    effect += " up to the limit, and the rest runs in eager" if "limit" in outcomes else ""
    effect += " up to the limit, which raised an error" if "limit error" in outcomes else ""
    effect += ", which failed" if "failed" in outcomes else ", and runs in eager" if "eager" in outcomes else ""
    return f"{quoted(cause.first.function)} {effect}: {told or cause.first.main.failure.words}{static}"


def _stays_static(cause: Cause) -> bool:
    """Whether torch compiled a program for each value of a size, where by itself it would have made it symbolic."""
    kinds = {recompile.main.failure.kind for recompile in cause.recompiles}
    if {guard_cures.SIZE_OF_PARAMETER, guard_cures.SIZE_OF_BUFFER} & {*cause.first.main.failure.fix.cures}:
        return False
    return len(cause.recompiles) > 2 and kinds == {"size"} and not any(one.main.dynamic for one in cause.recompiles)


def on_some_ranks(facts: Facts, cause: Cause) -> list[int]:
    """The ranks with these recompiles; [] if all ranks of the job have them, or if there is one rank."""
    all_ranks = {compilation.rank for compilation in facts.data.compilations} - {NONE}
    all_ranks -= log_ends.ranks_that_ended(facts)  # what these would have done is not known
    those = {facts.rank(recompile.place) for recompile in cause.recompiles}
    return sorted(those) if NONE not in those and those < all_ranks else []


def _reached(facts: Facts, place: int, reason: Miss) -> str:
    """What the user's line, which `_own_first` shows, has to do with the guard; "" if the guard is of that line."""
    if wrapped.is_wrapper(facts, place):
        return wrapped.explained(facts, place, reason)
    if not reason.place or _own_first(facts, place, reason) is reason:
        return ""
    return f"The guard is of a library's line ({misses.shortened(reason.place)}), which this line reaches"


def _own_first(facts: Facts, place: int, reason: Miss) -> Miss:
    """The guard with the user's line that reaches it, if it is of a library's line."""
    if not LIBRARY.search(reason.place or facts.frame_place(place)):
        return reason
    own = misses.own_line(user_frames(facts.text(facts.data.compilations[place].stack)))
    return replace(reason, code=own.code, place=str(own)) if own.line else reason


def _because(cause: Cause) -> str:
    """Why, in words that hold for all recompiles of a cause: those of one kind and subject differ only in values."""
    if words_of_class := cures_of_recompiles.words_of_class(cause):
        return f"each time because {words_of_class}"
    words: dict[tuple[str, str], str] = {}  # kind and subject of a failure -> the words of the first
    for recompile in cause.recompiles:
        failure = recompile.main.failure
        words.setdefault((failure.kind, failure.subject), failure.words)
    if len(words) == 1:
        return f"each time because {cause.first.main.failure.words}"
    return f"because {', and later because '.join(words.values())}"


def _values(cause: Cause) -> str:
    """The values in order, if they are short and of one subject."""
    if len(cause.subjects) > 1:
        return ""
    seen = [r.main.failure.before for r in cause.recompiles] + [cause.recompiles[-1].main.failure.after]
    values = list(dict.fromkeys(value for value in seen if value and not re.search(r"[<>=]", value)))
    shown = ", ".join(values if len(values) <= 8 else [*values[:5], f"... {values[-1]}"])
    return f" (values seen: {shown})" if len(values) > 2 and max(map(len, values)) <= 24 else ""


def _ids(reasons: Sequence[Reason], words: str) -> str:
    ids = [reason.earlier for reason in reasons if reason.misses[0].failure.words == words and reason.earlier]
    shown = ", ".join(ids) if len(ids) <= 4 else f"{ids[0]} and {len(ids) - 1} more"
    return f" ({shown})" if ids else ""
