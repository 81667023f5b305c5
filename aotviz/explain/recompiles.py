"""Why functions were compiled again: which guard of which earlier program failed, on what value, from which line.

Dynamo keeps a list of programs for each function ("frame"). A call that fits none is compiled, and the log then
names, for each earlier program, the first guard that failed. One of them is the cause that matters: that of the
program that came nearest to fitting, which fails the fewest of the guards that any of them failed. Of equals it is the
one that stands deepest in the order in which guards are checked, then the one that most programs disagree with, then
that of the newest. Recompiles with one cause (same
function, same fact) are counted and timed together, so that the costliest can be named first.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from aotviz.explain import guard_failures, tables
from aotviz.explain.explanation import Explanation, Point, counted, seconds, sentence
from aotviz.explain.expressions import spoken
from aotviz.explain.facts import Facts, user_frames
from aotviz.explain.guard_failures import GuardFailure
from aotviz.recorder.events import CompilationData, GuardRecord, RecompileReason
from aotviz.recorder.torch_trace.guards import FAILED

TENSOR_FACTS = {  # where a guard on a tensor says what it holds the tensor to
    "size": re.compile(r"\bsize=\[(.*?)\]"),
    "stride": re.compile(r"\bstride=\[(.*?)\]"),
    "dtype": re.compile(r"\btorch\.((?:b?float|u?int|complex|bool)\w*)"),
    "requires_grad": re.compile(r"\brequires_grad=(\w+)"),
}
DEPTH = {"global state": 0, "backend": 0, "unknown": 0, "size": 2, "stride": 3, "symbolic": 4}  # others: 1
MOST_TOLD = 4  # of the other programs that did not fit
LIBRARY = re.compile(r"^(?:torch|nn|utils|_\w+|functional)/|^contextlib\.py|/site-packages/")  # as torch shortens paths
ASKED = re.compile(r"(?P<function>.*) \[(?P<id>\d+/\d+)\]")  # the name of a program of ours that Dynamo asked for
LIMIT = re.compile(r"(?:recompile|cache[_ ]size)[_ ]?limit", re.I)
LIMIT_VALUE = re.compile(r"currently set to (\d+)")


@dataclass(frozen=True)
class Reason:
    """Why one earlier program did not fit."""

    earlier: str  # its id in the recording, "" where the log does not say
    failure: GuardFailure
    code: str  # the user's source line that made the guard
    place: str  # "model.py:17" of that line
    dynamic: bool  # the value is symbolic in the new program, so that other values fit it too
    misfits: int = 1  # of the values that any reason is about, how many this program is known not to fit


@dataclass(frozen=True)
class Recompile:
    """A compilation of a function that had programs before."""

    place: int  # index of the compilation
    id: str  # of the compilation, in the recording
    function: str
    reasons: tuple[Reason, ...]  # one per earlier program, the newest first
    seconds: float
    outcome: str  # "compiled", "limit" (too many programs; the call ran in eager), "eager" (refused) or "failed"
    limit: int  # the limit that was reached, 0 if unknown or none

    @cached_property
    def main(self) -> Reason:
        """The reason that matters."""
        count = Counter(_root(reason.failure.subject) for reason in self.reasons)

        def weight(reason: Reason) -> tuple[int, int, int]:
            return -reason.misfits, DEPTH.get(reason.failure.kind, 1), count[_root(reason.failure.subject)]

        return max(self.reasons, key=weight)  # the newest of equals

    @property
    def why(self) -> str:
        """In a sentence."""
        main = self.main
        words = sentence(f"{_named(self.function)} was compiled again because {main.failure.words}")
        if self.outcome == "limit":
            limit = f" of {self.limit}" if self.limit else ""
            words = sentence(
                f"{_named(self.function)} reached the recompile limit{limit} and was not compiled again, although "
                f"{main.failure.words}: calls that fit none of its programs run in eager from now on"
            )
        elif self.outcome == "failed":
            words += " This compilation failed."
        elif self.outcome == "eager":
            words += " aotviz refused the new program, and it runs in eager."
        if main.dynamic:
            words += f" `{main.failure.subject}` is symbolic from now on, so other values need no new program."
        return words


@dataclass(frozen=True)
class Cause:
    """Recompiles of one function for one fact."""

    recompiles: tuple[Recompile, ...]

    @property
    def seconds(self) -> float:
        return sum(recompile.seconds for recompile in self.recompiles)

    @property
    def reached_limit(self) -> bool:
        return any(recompile.outcome == "limit" for recompile in self.recompiles)

    @property
    def first(self) -> Recompile:
        return self.recompiles[0]

    @property
    def subject(self) -> str:
        return self.first.main.failure.subject


def find(facts: Facts) -> list[Recompile]:
    """All recompiles, in the order of the log."""
    found = []
    for record in facts.data.recompiles:
        place = record.origin.compilation
        if place < 0 or not record.reasons:
            continue
        failed = facts.failure(place)
        text = facts.text(failed.fail_reason) if failed else ""
        limit = LIMIT_VALUE.search(text)
        found.append(
            Recompile(
                place=place,
                id=facts.id(place),
                function=facts.function(place),
                reasons=_counted_misfits(facts, place, [_reason(facts, place, reason) for reason in record.reasons]),
                seconds=facts.seconds(place),
                outcome="compiled" if failed is None else "limit" if LIMIT.search(text) else "failed",
                limit=int(limit[1]) if limit else 0,
            )
        )
    return [*found, *_of_our_own(facts)]


def _of_our_own(facts: Facts) -> list[Recompile]:
    """The recompiles of aotviz's own functions, whose compilations say themselves why earlier programs did not do.

    What Dynamo asked for is left out where a log tells of the same recompile.
    """
    found = []
    logged = {one.compile_id for one in facts.data.compilations if one.because and one.compile_id}
    programs: dict[tuple[int, str], list[int]] = defaultdict(list)  # of each function and name, the newest first
    for place, compilation in enumerate(facts.data.compilations):
        earlier = programs[compilation.frame, compilation.name]
        asked = ASKED.fullmatch(compilation.name)
        if compilation.because and not compilation.compile_id and not (asked and asked["id"] in logged):
            if asked:
                reasons = tuple(
                    _of_dynamo(facts, place, asked["function"], programs, text) for text in compilation.because
                )
            else:
                told = len(earlier) == len(compilation.because)  # else some of another function of that name, or gone
                ids = [facts.id(one) for one in earlier] if told else [""] * len(compilation.because)
                reasons = tuple(
                    Reason(id, guard_failures.read(text), "", "", False)
                    for id, text in zip(ids, compilation.because, strict=True)
                )
            name = asked["function"] if asked else compilation.name
            error = compilation.error
            outcome = "compiled" if error is None else "eager" if error.ran_in_eager else "failed"
            found.append(Recompile(place, facts.id(place), name, reasons, facts.seconds(place), outcome, 0))
        earlier.insert(0, place)
    return found


def own_function(compilation: CompilationData) -> Hashable:
    """What compilations of one function of aotviz's own have in common."""
    asked = ASKED.fullmatch(compilation.name)
    name = f"{asked['function']} [{asked['id'].partition('/')[0]}]" if asked else compilation.name
    return name if compilation.frame < 0 else (compilation.frame, asked["function"] if asked else name)


def _of_dynamo(
    facts: Facts, place: int, function: str, programs: Mapping[tuple[int, str], list[int]], text: str
) -> Reason:
    """Why a program of ours that Dynamo asked for did not do, from what the backend was told."""
    match = FAILED.fullmatch(text)
    frame = facts.data.compilations[place].frame
    earlier = programs.get((frame, f"{function} [{match['id']}]"), []) if match else []
    id = facts.id(earlier[0]) if earlier else ""
    return Reason(id, guard_failures.read(match["guard"] if match else text), "", "", False)


def causes(facts: Facts, recompiles: Sequence[Recompile]) -> list[Cause]:
    """The recompiles by cause, the costliest cause first; one that ran into the limit before all others."""
    groups: dict[tuple[object, ...], list[Recompile]] = defaultdict(list)
    for recompile in recompiles:
        logged = bool(facts.data.compilations[recompile.place].compile_id)
        where = facts.frame(recompile.place) if logged else recompile.function
        groups[where, _root(recompile.main.failure.subject)].append(recompile)
    found = [Cause(tuple(group)) for group in groups.values()]
    return sorted(found, key=lambda cause: (not cause.reached_limit, -cause.seconds, -len(cause.recompiles)))


COLUMNS = {
    "compilation": "str",
    "rank": "int64",
    "function": "str",
    "earlier": "str",
    "kind": "str",
    "subject": "str",
    "before": "str",
    "after": "str",
    "why": "str",
    "code": "str",
    "place": "str",
    "seconds": "float64",
    "same_cause": "int64",
    "outcome": "str",
    "fix": "str",
}


def frame(facts: Facts) -> tables.ExplainedTable:
    """One row a recompile."""
    recompiles = find(facts)
    size = {r.id: len(cause.recompiles) for cause in causes(facts, recompiles) for r in cause.recompiles}
    rows: list[dict[str, Any]] = []
    for recompile in recompiles:
        main = recompile.main
        rows.append(
            {
                "compilation": recompile.id,
                "rank": facts.rank(recompile.place),
                "function": recompile.function,
                "earlier": main.earlier,
                "kind": main.failure.kind,
                "subject": main.failure.subject,
                "before": main.failure.before,
                "after": main.failure.after,
                "why": recompile.why,
                "code": main.code,
                "place": main.place,
                "seconds": recompile.seconds,
                "same_cause": size[recompile.id],
                "outcome": recompile.outcome,
                "fix": main.failure.fix,
            }
        )
    return tables.table(
        COLUMNS, rows, marked=("subject", "before", "after", "code"), hidden=("kind", "function", "rank")
    )


def explain_one(facts: Facts, place: int) -> list[Point]:
    """Why a compilation was made, if it was made again; else nothing."""
    points = []
    for recompile in find(facts):
        if recompile.place != place:
            continue
        main = recompile.main
        cost = f"It cost {seconds(recompile.seconds)}" if recompile.seconds else ""
        points.append(
            Point(sentence(recompile.why, cost, _reached(facts, place, main)), main.code, main.place, main.failure.fix)
        )
        others = [reason for reason in recompile.reasons if reason is not main]
        if others:
            said = list(dict.fromkeys(reason.failure.words for reason in others))
            told = "; ".join(
                f"{words} ({ids})" if (ids := _ids(others, words)) else words for words in said[:MOST_TOLD]
            )
            told += f"; and {len(said) - MOST_TOLD} others" if len(said) > MOST_TOLD else ""
            points.append(Point(sentence(f"Earlier programs that did not fit either: {told}")))
    return points


def explain_all(facts: Facts) -> Explanation:
    """The causes of all recompiles, the one that matters most first."""
    recompiles = find(facts)
    if not recompiles:
        return Explanation("No function was compiled again.", ())
    found = causes(facts, recompiles)
    functions = len({(cause.first.function, facts.frame(cause.first.place)) for cause in found})
    total = sum(recompile.seconds for recompile in recompiles)
    title = (
        f"{counted(len(recompiles), 'recompile')} of {counted(functions, 'function')}, "
        f"{seconds(total)} in all, for {counted(len(found), 'cause')}"
    )
    return Explanation(title, tuple(_cause_point(facts, cause, len(recompiles)) for cause in found))


def _cause_point(facts: Facts, cause: Cause, total: int) -> Point:
    first, last, count = cause.first, cause.recompiles[-1], len(cause.recompiles)
    telling = next((r for r in cause.recompiles if r.main.code), first)
    common = Counter(r.main.failure.kind for r in cause.recompiles).most_common(1)[0][0]
    usual = next(r for r in cause.recompiles if r.main.failure.kind == common)
    opening = first.why
    if count > 1:
        values = _values(cause)
        share = f"{count} of the {total} recompiles" if count < total else f"all {total} recompiles"
        opening = sentence(
            f"`{cause.subject}` is behind {share}: {_named(first.function)} was compiled again each time because "
            f"{first.main.failure.words}{values}"
        )
        limited = next((r for r in cause.recompiles if r.outcome == "limit"), None)
        if limited is not None:
            limit = f" of {limited.limit}" if limited.limit else ""
            opening += (
                f" At {limited.id} it reached the recompile limit{limit}: calls that fit none of its programs run in "
                "eager from then on."
            )
        elif any(r.main.dynamic for r in cause.recompiles):
            opening += f" `{cause.subject}` became symbolic on the way."
    ids = first.id if count == 1 else f"{first.id} to {last.id}"
    cost = f"Compilations {ids} cost {seconds(cause.seconds)}" if count > 1 else f"{ids} cost {seconds(cause.seconds)}"
    reached = _reached(facts, telling.place, telling.main)
    return Point(sentence(opening, cost, reached), telling.main.code, telling.main.place, usual.main.failure.fix)


def _reached(facts: Facts, place: int, reason: Reason) -> str:
    """From which function of the user's a line of a library is reached; "" for a line of the user's."""
    where = facts.frame_place(place) if LIBRARY.search(reason.place) else ""
    return f"The line below is a library's, reached from {_named(facts.function(place))} ({where})" if where else ""


def _values(cause: Cause) -> str:
    """What the value was, one after the other, where that is short."""
    seen = [r.main.failure.before for r in cause.recompiles] + [cause.recompiles[-1].main.failure.after]
    values = list(dict.fromkeys(value for value in seen if value and not re.search(r"[<>=]", value)))
    return f" (values seen: {_short(values)})" if len(values) > 2 and max(map(len, values)) <= 24 else ""


def _short(values: list[str]) -> str:
    return ", ".join(values) if len(values) <= 8 else f"{', '.join(values[:5])}, ... {values[-1]}"


def _ids(reasons: Sequence[Reason], words: str) -> str:
    ids = [reason.earlier for reason in reasons if reason.failure.words == words and reason.earlier]
    return ", ".join(ids) if len(ids) <= 4 else f"{ids[0]} and {len(ids) - 1} more"


def _reason(facts: Facts, place: int, reason: RecompileReason) -> Reason:
    guard, code, where, stack = (facts.text(n) for n in (reason.guard, reason.code, reason.place, reason.stack))
    failure = guard_failures.read(guard)
    earlier = facts.sibling(place, reason.earlier) if reason.earlier else -1
    before = _guard(facts, earlier, failure)
    if before is not None and not where:
        code, where, stack = (facts.text(number) for number in (before.code, before.place, before.stack))
    failure, dynamic = _completed(facts, place, earlier, failure)
    used = facts.first_use(earlier, facts.text(before.source)) if before else None
    if used is not None and LIBRARY.search(where):  # the guard names the library's line, the graph the user's
        code, where, stack = used.code, f"{used.place} in {used.function}", ""
    frames = user_frames(stack)
    if frames and not code:
        code, where = frames[-1].code, where or frames[-1].place
    return Reason(
        earlier=facts.id(earlier) or reason.earlier,
        failure=failure,
        code=code.partition("  # ")[0].strip(),
        place=facts.whole_place(place, where, stack) if where else "",
        dynamic=dynamic,
    )


def _completed(facts: Facts, place: int, earlier: int, failure: GuardFailure) -> tuple[GuardFailure, bool]:
    """The failure with what the new compilation says about the value, and whether the value is symbolic there."""
    if failure.kind == "global state":
        return _state(facts, place, earlier, failure), False
    if failure.kind == "unknown":
        return _from_inputs(facts, place, earlier, failure), False
    symbol = _symbol(facts, place, failure)
    if symbol is not None and failure.kind == "symbolic":
        words = f"{failure.words}: `{failure.subject}` is now {symbol}"
        return replace(failure, after=symbol, words=words), False
    if symbol is not None:
        return failure.with_after(symbol) if failure.kind == "value" else failure, failure.kind in ("value", "size")
    now = _guard(facts, place, failure)
    if now is None or failure.after:
        return failure, False
    found = guard_failures.read(facts.text(now.text))
    if found.kind == failure.kind and found.subject == failure.subject and found.before != failure.before:
        article = "a " if failure.kind == "type" and failure.before not in ("None", "something") else ""
        words = f"`{failure.subject}` was {article}{failure.before} and is now {article}{found.before}"
        return replace(failure, after=found.before, words=words), False
    return failure, False


def _symbol(facts: Facts, place: int, failure: GuardFailure) -> str | None:
    """The value of the symbol that the compilation made for what the guard is about, if it made one."""
    for record in facts.shapes.get(place, ()):
        if record.kind == "create_symbol" and spoken(facts.text(record.source)) == failure.subject:
            return facts.text(record.value)
    return None


def _counted_misfits(facts: Facts, place: int, reasons: Sequence[Reason]) -> tuple[Reason, ...]:
    """The reasons, each with how many of the values that changed its program can't take, as far as its guards tell.

    Torch names one guard a program, and of several that fail not always the same one: the order changes with use.
    """
    changed = {_root(reason.failure.subject): reason.failure for reason in reasons if reason.failure.after}
    if len(changed) < 2:
        return tuple(reasons)
    counted = []
    for reason in reasons:
        own = _root(reason.failure.subject)
        program = facts.sibling_of(place, reason.earlier)
        others = sum(_contradicts(facts, program, failure) for subject, failure in changed.items() if subject != own)
        counted.append(replace(reason, misfits=1 + others))
    return tuple(counted)


def _contradicts(facts: Facts, program: int, failure: GuardFailure) -> bool:
    """Whether a program's guards refuse what another program's failed guard found the value to be."""
    if program < 0:
        return False
    if failure.kind == "global state":
        names = failure.subject.split()
        was = _global_state(facts, program)
        return len(names) == 1 and names[0] in was and was[names[0]] != failure.after
    for guard in facts.guards_about(program, spoken(failure.source).removeprefix("len(").removesuffix(")")):
        text = facts.text(guard.text)
        if failure.kind in TENSOR_FACTS:
            held = TENSOR_FACTS[failure.kind].search(text)
            index = re.search(r"[\[(](\d+)[\])]$", failure.subject)
            value = held[1] if held else "None"
            if held and index:
                sizes = [size.strip() for size in value.split(",")]
                value = sizes[int(index[1])] if int(index[1]) < len(sizes) else "None"
            if held and value not in ("None", failure.after):
                return True
            continue
        read = guard_failures.read(text)
        if read.subject == failure.subject and read.kind == failure.kind and read.before not in ("", failure.after):
            return True
    return False


def _guard(facts: Facts, place: int, failure: GuardFailure) -> GuardRecord | None:
    """The check of a compilation that is about the same value."""
    if place < 0 or not failure.source:
        return None
    found = None
    for guard in facts.guards_about(place, spoken(failure.source).removeprefix("len(").removesuffix(")")):
        read = guard_failures.read(facts.text(guard.text))
        if read.kind == failure.kind and read.subject == failure.subject:
            return guard
        if found is None and facts.text(guard.place):
            found = guard
    return found


def _state(facts: Facts, place: int, earlier: int, failure: GuardFailure) -> GuardFailure:
    """Which way a global setting changed, from what both compilations' guards hold it to."""
    was, now = _global_state(facts, earlier), _global_state(facts, place)
    names = [name for name in failure.subject.split() if name in was and name in now and was[name] != now[name]]
    if len(names) != 1:
        return failure
    before, after = was[names[0]], now[names[0]]
    said = guard_failures.STATES.get(names[0], f"`{names[0]}`")
    return replace(failure, before=before, after=after, words=f"{said} was {before} and is now {after}")


def _global_state(facts: Facts, place: int) -> dict[str, str]:
    for guard in facts.guards.get(place, ()):
        if guard.kind == "GLOBAL_STATE":
            return guard_failures.global_state(facts.text(guard.text))
    return {}


def _from_inputs(facts: Facts, place: int, earlier: int, failure: GuardFailure) -> GuardFailure:
    """Where torch gives no reason: how the inputs of the two compilations differ, as far as they are described."""
    was, now = _inputs(facts, earlier), _inputs(facts, place)
    for name in was:
        for fact, before in was[name].items():
            after = now.get(name, {}).get(fact, before)
            if before != after:
                words = f"torch does not say why, but the {fact} of `{name}` was {before} and is now {after}"
                return replace(failure, subject=f"{name} ({fact})", before=before, after=after, words=words)
    return failure


def _inputs(facts: Facts, place: int) -> dict[str, dict[str, str]]:
    return {
        spoken(facts.text(source)): {
            "dtype": tensor.dtype,
            "device": tensor.device,
            "shape": str(tuple(tensor.shape)),
            "stride": str(tuple(tensor.stride)),
            "requires_grad": str(tensor.requires_grad),
        }
        for tensor in facts.tensors.get(place, ())
        for source in tensor.sources
    }


def _root(subject: str) -> str:
    """The value that a subject is about: sizes of one tensor, and one number's value and its ranges, are one cause."""
    return re.sub(r"(\.shape\[\d+\]|\.stride\(\d+\))", "", subject.partition(",")[0])


def _named(function: str) -> str:
    return f"`{function}`" if function else "the function"
