"""What went wrong in exports (`torch.export`, draft export), and how to cure it.

Torch says it in three ways. `TORCH_DTRACE=folder` and draft export log a record for each decision and each fake kernel;
`TORCH_TRACE` alone logs the graph up to the statement that raised; and an export by Dynamo (`strict=True`), or a
`torch.compile(fullgraph=True)`, logs the message of its error. All three give the same points here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from aotviz.explain import error_texts, expressions, fixed_sizes
from aotviz.explain.cures import export_cures
from aotviz.explain.cures.registry import Advice
from aotviz.explain.explanation import Point, counted, listed, sentence
from aotviz.explain.misses import own_line
from aotviz.explain.rows import DRAFT, EXPORTS, Facts
from aotviz.recording import left_out
from aotviz.recording.printed_lines import Statement, last_line, line_of_operator
from aotviz.recording.schema import NONE, CallError, ShapeRecord
from aotviz.recording.sources import UNKNOWN, SourceLine, user_frames, user_name
from aotviz.recording.spoken import spoken

MOST_LEFT_OUT = 3
WITHOUT_GUARDS = (*EXPORTS, "AOTInductor", "AOTAutograd", "precompile")  # each is a call of its own
SYMBOL = re.compile(r"\b(?:s|u|zuf|z)\d+\b")
SIZED = re.compile(r"\w+\[(?P<symbol>u\d+)\b")  # the type of a tensor whose length depends on data
COMPARES = re.compile(r"[<>=]|\bnot\b|\b(?:And|Or|Not)\(")
ASSIGNED = re.compile(r"(?P<name>[a-zA-Z_]\w*+)(?:\s*+:[^=]++)?+\s*+=\s*(?!=)")
CONDITION = re.compile(r"(?:el)?if (?P<condition>[^:#]{1,200}):(?:\s.*)?")
COMBINED = re.compile(r"\b(?:and|or|in|if)\b")
INT = re.compile(r"\bint\((?P<of>[\w.\[\]]{1,99})\)")
READS_NUMBER = re.compile(r"\.item\(|\.tolist\(|\b(?:int|float|bool)\(")  # else the size of a tensor is the number
UNDECIDED = re.compile(r"Could not (?:guard on|extract \w+ \w+ from) data-dependent expression (?P<expr>.+?) \(")
NO_FAKE = re.compile(r"no fake impl registered for <?(?:CustomOpDef\()?(?P<op>[\w:.]+)")
EQUAL = re.compile(
    r"The values of (?P<one>\w+) = (?P<first>\S+) and (?P<other>\w+) = (?P<second>\S+) must always be equal"
)
RANGE = re.compile(
    r"Not all values of \w+ = \S+ in the specified range(?: (?P<range>.+?))? satisfy the generated guard (?P<guard>.+)"
)
SUGGESTED = re.compile(r"Suggested fixes:\n(?P<lines>(?:[ \t]+\S[^\n]*(?:\n|\Z))+)")
MULTIPLE = re.compile(r"(?P<name>\w+) = (?P<of>\d{1,9})\*_\w+")
UNBOUNDED = re.compile(r", max=(?:int_)?oo\b")  # how torch prints a dimension without an upper bound
BOUND = re.compile(r"(?P<symbol>s\d{1,9}) (?P<than><=|>=|<|>) (?P<bound>\d{1,9})")  # a guard on one size
GIVEN = re.compile(r"\[(?P<least>[^,\]]{1,30}), (?P<most>[^,\]]{1,30})\]")  # the range of a size
STOPPED = re.compile(  # the last statement of the graph that was traced: `gt: "Sym(u0 > 3)" = item > 3`
    r"tracing stopped in: \w+(?:: \"(?:Sym\((?P<condition>[^\"<>=]*+[<>=][^\"]*)\)|[^\"]*)\")? = (?P<call>[^\n]*)"
)
USERS = re.compile(r"(?:from user code|User stack):\n")  # before the user's frames in a message of torch's
TORCHS = frozenset(("aten", "prims", "prim", "inductor", "quantized", "c10d", "_c10d_functional", "higher_order"))


@dataclass(frozen=True)
class Problem:
    """One cause, which an export may meet several times."""

    text: str  # a sentence without its beginning: "needs to know whether `u0 > 3`, …"
    code: str
    place: str
    fix: Advice
    stops: bool  # the export failed because of it
    brief: str  # of a title: the cause


def share(facts: Facts, places: Collection[int]) -> str:
    """How many of the exports, and of the compilations, these are: "2 of 3 exports and 1 of 2 compilations"."""
    found = []
    for noun, everyone in by_kind(facts).items():
        if mine := [place for place in everyone if place in places]:
            found.append(f"{len(mine)} of {counted(len(everyone), noun)}")
    return " and ".join(found)


def by_kind(facts: Facts) -> dict[str, list[int]]:
    """The places of the exports and of the compilations, as far as there are any."""
    found: dict[str, list[int]] = {}
    for place, compilation in enumerate(facts.data.compilations):
        if place not in facts.told_twice:
            found.setdefault("export" if compilation.kind in EXPORTS else "compilation", []).append(place)
    return dict(sorted(found.items(), reverse=True))


def explain_all(facts: Facts, only: int | None = None) -> list[Point]:
    """One point for each cause: what stopped an export first, then what makes a draft unsound."""
    met: dict[str, list[tuple[int, Problem]]] = {}
    for place, compilation in enumerate(facts.data.compilations):
        if only in (None, place) and compilation.kind in EXPORTS:
            for problem in _problems(facts, place):
                met.setdefault(problem.text, []).append((place, problem))
    points = []
    for group in sorted(met.values(), key=lambda group: not group[0][1].stops):
        places, problem = [place for place, _ in group], group[0][1]
        ids = list(dict.fromkeys(facts.id(place) for place in places))
        name = ids[0] if len(ids) == 1 else f"{ids[0]} and {counted(len(ids) - 1, 'other export')}"
        times = f" (met {len(places)} times)" if len(places) > len(ids) else ""
        told = sentence(f"{name}{times} {problem.text}")
        spent = sum(map(facts.seconds, dict.fromkeys(places)))
        title = f"{name} {'failed' if problem.stops else 'is unsound'}: {problem.brief}"
        found = Point(told, problem.code, problem.place, problem.fix, True, spent, "export", title, tuple(ids))
        points.append(found)
    return points


def without_problems(facts: Facts, only: int | None = None) -> list[Point]:
    """What a log says of the other exports: that they succeeded, or that it does not tell."""
    good: list[str] = []
    silent: list[str] = []
    points: list[Point] = []
    for place, compilation in enumerate(facts.data.compilations):
        if only in (None, place) and compilation.kind in EXPORTS and not compilation.error:
            if any(True for _ in _problems(facts, place)):
                continue
            if facts.text_of(place, "exported_program") >= 0:
                good.append(facts.id(place))
            elif fixed := _fixed(facts, place):
                points.append(_may_have_failed(facts, place, fixed))
            else:
                silent.append(facts.id(place))
    places = range(len(facts.data.compilations)) if only is None else (only,)
    points += [point for place in places for point in _left_out(facts, place)]
    points += [Point(sentence(f"{_ids(good)} succeeded"))] if good else []
    if silent:
        told = f"the {facts.source} does not say whether {_ids(silent)} succeeded, and has no exported program"
        points.append(Point(sentence(told), fix=export_cures.UNLOGGED.said()))
    return points


def _left_out(facts: Facts, place: int) -> list[Point]:
    """What `forward` sets and the exported program does not, as a watch noted it."""
    texts = facts.named(place, left_out.RECORD)
    rows = left_out.read(texts[-1]) if texts else []  # torch may trace it several times
    if not rows:
        return []
    first, more = rows[:MOST_LEFT_OUT], [f"{len(rows) - MOST_LEFT_OUT} more"] * (len(rows) > MOST_LEFT_OUT)
    set_to = [f"`{row.name}` from {_value(row.before)} to {_value(row.now)}" for row in first]
    title = f"the exported program does not set {listed([f'`{row.name}`' for row in first] + more)}, as eager does"
    text = sentence(title, f"a call in eager changes {listed(set_to + more)}")
    fix = export_cures.LEFT_OUT.said(name=rows[0].name, own=rows[0].name.rpartition(".")[2])
    return [Point(text, rows[0].code, rows[0].place, fix, kind="export", title=title, ids=(facts.id(place),))]


def _value(said: str) -> str:
    return said if said.startswith("a ") else f"`{said}`"


def _fixed(facts: Facts, place: int) -> fixed_sizes.Fixed | None:
    """The first size that a line made a constant."""
    return next((one for one in fixed_sizes.found(facts, place) if one.line.line), None)


def _may_have_failed(facts: Facts, place: int, fixed: fixed_sizes.Fixed) -> Point:
    """For a log that has neither the error nor the program: TORCH_TRACE writes what was decided while tracing."""
    name, code, at = facts.id(place), fixed.line.code, str(fixed.line)
    made = f"this line made `{fixed.size}` the constant {fixed.value}"
    brief = f"{name} may have failed: {made}"
    text = sentence(brief, "If `dynamic_shapes` makes that size dynamic, the export failed for it")
    fix, ids = fixed_sizes.keeping(fixed), (name,)
    return Point(text, code, at, fix, kind="export", title=brief, ids=ids)


def of_message(facts: Facts, place: int, reason: str, at: SourceLine | None = None) -> Problem | None:
    """The same, from the message of an error; None if it is about something else. `at`: the line, where it is known."""
    if USERS.search(reason):
        at = line_of(reason)
    elif at is None:
        at = own_line(user_frames(facts.text(facts.data.compilations[place].stack)))
    if match := UNDECIDED.search(reason):
        return _undecided(facts, place, match["expr"], at)
    if match := NO_FAKE.search(reason):
        return _no_fake(match["op"].replace("::", "."), at)
    if match := EQUAL.search(reason):
        return _separate(match, at)
    if match := RANGE.search(reason):
        return _too_wide(match, at)
    return None


def brief(reason: str) -> str:
    """What `of_message` says in its title, where only the message is known: a symbol then has torch's name.

    >>> brief("Could not guard on data-dependent expression u0 > 3 (unhinted: u0 > 3).")
    'it is not known while tracing whether `u0 > 3`'
    """
    if match := UNDECIDED.search(reason):
        what = expressions.as_python(match["expr"])
        return f"{_unknown(what)} `{what}`"
    if match := STOPPED.fullmatch(reason):
        decides = f"it is not known while tracing whether `{match['condition']}`"
        return decides if match["condition"] else f"tracing stopped at `{match['call']}`"
    if match := NO_FAKE.search(reason):
        return _no_fake(match["op"].replace("::", "."), UNKNOWN).brief
    if match := EQUAL.search(reason):
        return _separate(match, UNKNOWN).brief
    if match := RANGE.search(reason):
        return _too_wide(match, UNKNOWN).brief
    if match := fixed_sizes.VIOLATED.search(reason):
        return f"`{spoken(match['source'])}` was marked as dynamic, and a line of the program made it a constant"
    return ""


def line_of(reason: str) -> SourceLine:
    """The user's line in the message of an error."""
    return own_line(user_frames("\n".join(part.partition("\n\n")[0] for part in USERS.split(reason)[1:])))


def _separate(match: re.Match[str], at: SourceLine) -> Problem:
    """Two dimensions with names of their own that the program takes for one."""
    sizes = f"`{spoken(match['second'])}` and `{spoken(match['first'])}`"
    brief = f"{sizes} have to be equal, and `dynamic_shapes` names them `{match['other']}` and `{match['one']}`"
    fix = export_cures.ONE_DIMENSION.said(one=match["one"], other=match["other"])
    return Problem(f"failed because {brief}", at.code, str(at), fix, True, brief)


def _too_wide(match: re.Match[str], at: SourceLine) -> Problem:
    """A dimension for which the program does not hold in all of its range."""
    guard, allowed = spoken(match["guard"].rstrip(".")), f"`{match['range']}`" if match["range"] else "any size"
    brief = f"the program needs `{guard}`, and `dynamic_shapes` allows {allowed}"
    fix, suggested = export_cures.GUARDED.said(), SUGGESTED.search(match.string, match.end())
    if suggested is not None:
        lines = [UNBOUNDED.sub("", line.strip()) for line in suggested["lines"].splitlines()]
        if multiple := next(filter(None, map(MULTIPLE.fullmatch, lines)), None):
            brief = f"the program needs a multiple of {multiple['of']} for `{multiple['name']}`, and `dynamic_shapes` "
            brief += f"allows {allowed}"
        fix = export_cures.SUGGESTED.said(dimensions="; ".join(f"`{line}`" for line in lines))
    return Problem(f"failed because {brief}", at.code, str(at), fix, True, brief)


def _out_of_bounds(facts: Facts, rows: Sequence[ShapeRecord]) -> Iterator[Problem]:
    """The guards that cut the range which `dynamic_shapes` gives a dimension, for which torch refuses the export."""
    ranges = {facts.text(row.expression): row for row in rows if row.kind == "create_symbol"}
    for row in rows:
        guard = BOUND.fullmatch(facts.text(row.expression)) if row.kind.startswith("guard_added") else None
        made = ranges.get(guard["symbol"]) if guard else None
        given = GIVEN.fullmatch(_mapping(facts.text(made.fields)).get("vr", "")) if made else None
        if guard is None or made is None or given is None:
            continue
        at, is_upper = _user_line(facts, row), guard["than"].startswith("<")
        bound = int(guard["bound"]) + {"<": -1, ">": 1}.get(guard["than"], 0)
        if at.line and (_limit(given["most"]) > bound if is_upper else _limit(given["least"]) < bound):
            most = given["most"]
            allowed = f"sizes up to {most}" if most.isdecimal() else "any size"
            allowed = allowed if is_upper else f"sizes from {given['least']}"
            size = spoken(facts.text(made.source))
            brief = (
                f"this line needs `{size} {'<=' if is_upper else '>='} {bound}`, and `dynamic_shapes` allows {allowed}"
            )
            fix = export_cures.BOUND.said(bound=f"{'max' if is_upper else 'min'}={bound}")
            yield Problem(f"did not finish: {brief}", at.code, str(at), fix, True, brief)


def _limit(text: str) -> float:
    """An end of a range, which is a number or a kind of infinity."""
    return float(text) if text.isdecimal() else float("inf")


def _problems(facts: Facts, place: int) -> Iterator[Problem]:
    compilation = facts.data.compilations[place]
    rows = facts.about(place, facts.data.shapes)
    failed, undecided = facts.failure(place), False
    if failed is not None and (found := of_message(facts, place, facts.text(failed.fail_reason))):
        yield found  # torch also logs it as the rows below
        return
    program = facts.text(facts.text_of(place, "exported_program"))
    partial = last_line(_partial(facts, place))
    for row in rows:
        expression, at = facts.text(row.expression), _user_line(facts, row)
        if row.kind == "guard_on_data_dependent_error":
            undecided = True
            length = None if COMPARES.search(expression) else _unknown_length(partial)
            yield length or _undecided(facts, place, expression, _made_at(facts, rows, expression) or _line(partial))
        elif row.kind == "propagate_real_tensors_provenance":
            yield _undecided(facts, place, expression, at, facts.text(row.value))
        elif row.kind == "missing_fake_kernel":
            yield _no_fake(expression, _line_of(program, expression), stops=False)
        elif row.kind == "mismatched_fake_kernel":
            yield _wrong_fake(expression, facts.text(row.reason), _line_of(program, expression))
        elif row.kind == "guard_added" and compilation.kind == DRAFT:
            yield _guarded(expression, facts.text(row.source), at)
    if partial.code and not undecided:
        yield _stopped(facts, place, partial)
    elif compilation.error is not None and not compilation.error.type:
        guards = dict.fromkeys(facts.text(row.expression) for row in rows if row.kind.startswith("guard_added"))
        met = f" Torch had added the guards {', '.join(f'`{guard}`' for guard in guards)}." if guards else ""
        if (bound := next(_out_of_bounds(facts, rows), None)) is not None:
            yield bound
            return
        if fixed := _fixed(facts, place):
            told = f"did not finish: this line made `{fixed.size}` the constant {fixed.value}, which was dynamic"
            brief = f"this line made `{fixed.size}` the constant {fixed.value}, which was dynamic"
            cure = fixed_sizes.keeping(fixed)
            yield Problem(f"{told}.{met}", fixed.line.code, str(fixed.line), cure, True, brief)
            return
        if (ended := _error_that_ended(facts, place)) is not None:  # otherwise call_errors.py tells what it says
            found = of_message(facts, place, ended.message)
            yield from [found] if found else []
            return
        called = user_frames(facts.text(compilation.stack))
        unlogged = f"the {facts.source} has no exported program, so an error was raised that torch does not log"
        yield Problem(
            f"did not finish: {unlogged}.{met}",
            called[-1].code if called else "", str(called[-1]) if called else "",
            export_cures.UNFINISHED.said(), True, "an error was raised that torch does not log",
        )  # fmt: skip


def _error_that_ended(facts: Facts, place: int) -> CallError | None:
    """The error of this export, if a watch or a recording noted that it ended its block."""
    if place != max(other for other, one in enumerate(facts.data.compilations) if one.kind in EXPORTS):
        return None
    return next((error for error in facts.data.call_errors if error.during in ("export", "outside")), None)


def _undecided(facts: Facts, place: int, expression: str, at: SourceLine, decided: str = "") -> Problem:
    """A condition on a value that is not known while tracing. `decided`: what a draft export took it for."""
    origins = [_origin(facts, place, symbol) for symbol in dict.fromkeys(SYMBOL.findall(expression))]
    said, names = [words for words, _, _ in origins if words], {symbol: name for _, symbol, name in origins if name}
    expression = expressions.as_python(expression)
    spoken = SYMBOL.sub(lambda match: names.get(match[0], match[0]), expression)
    from_where = f" {'; '.join(said)}." if said else ""
    known = "whether" if COMPARES.search(expression) else "the number"
    before = "export" if facts.data.compilations[place].kind in EXPORTS else "call"
    asked, at = _condition_of(facts, place, expression, at)
    if asked and not decided and not names:
        text = f"failed because it has to know whether `{asked}` holds while tracing. That depends on the values of a "
        text += "tensor, which are not known before the program runs"
        brief = f"it is not known while tracing whether `{asked}` holds"
        return Problem(text, at.code, str(at), export_cures.BRANCH.said(before=before), True, brief)
    if decided:
        text = (
            f"took `{spoken}` for {decided}, as it is for the example inputs, and asserts that it stays so. The "
            f"exported program raises an error for other inputs. A `torch.export.export` would fail here.{from_where}"
        )
    else:
        text = f"failed because it has to know {known} `{spoken}` (`{expression}`) while tracing.{from_where}"
        text = text.replace(f"`{spoken}` (`{expression}`)", f"`{spoken}`") if spoken == expression else text
    condition, named = _named(spoken)
    yes, no = f"`torch._check({condition})`", f"`torch._check(not ({condition}))`"
    check = {"": f"{yes} or {no}", "True": yes, "False": no}.get(decided, f"`torch._check({condition} == {decided})`")
    if COMPARES.search(expression):
        fix = export_cures.UNDECIDED.said(named=named, check=check, before=before)
    else:
        if read := INT.search(from_where):  # which asks for the number at once
            named = f", with `{condition} = {read['of']}.item()` in place of `{read[0]}`"
        fix = export_cures.UNKNOWN_NUMBER.said(named=named, check=f"`torch._check({condition} == ...)`")
    taken = f"it holds only where `{spoken}` is {decided}" if decided else ""
    brief = taken or f"{_unknown(expression)} `{spoken}`"
    return Problem(text, at.code, str(at), fix, not decided, brief)


def _condition_of(facts: Facts, place: int, expression: str, at: SourceLine) -> tuple[str, SourceLine]:
    """The condition of an `if` that itself reads the numbers out of tensors, as the program has it, or ""; and the
    line, which torch does not say of all of these errors."""
    symbols = dict.fromkeys(SYMBOL.findall(expression))
    rows = [row for row in facts.about(place, facts.data.shapes) if row.kind.startswith("create_unbacked")]
    read = {facts.text(row.expression): _user_line(facts, row) for row in rows}
    lines = {read.get(one, UNKNOWN) for one in symbols}
    made = lines.pop() if len(lines) == 1 else UNKNOWN
    match = CONDITION.fullmatch(made.code)
    if not match or READS_NUMBER.search(match["condition"]):  # a number that can be named, and checked
        return "", at
    if COMBINED.search(match["condition"]) or not COMPARES.search(expression):
        return "", at
    return (match["condition"], made) if not at.line or str(at) == str(made) else ("", at)


def _unknown(expression: str) -> str:
    is_condition = COMPARES.search(expression)
    return "it is not known while tracing whether" if is_condition else "this number is not known while tracing:"


def _named(condition: str) -> tuple[str, str]:
    """A condition in names that the user can write, and what these stand for where the program has no name for it.

    >>> _named("u0 > 3")
    ('n > 3', ', with `n` for the number u0')
    """
    symbols = list(dict.fromkeys(SYMBOL.findall(condition)))
    if not symbols:
        return condition, ""
    names = dict(zip(symbols, ["n"] if len(symbols) == 1 else [f"n{i}" for i in range(len(symbols))], strict=True))
    said = " and ".join(f"`{name}` for the number {symbol}" for symbol, name in names.items())
    return SYMBOL.sub(lambda match: names[match[0]], condition), f", with {said}"


def _origin(facts: Facts, place: int, symbol: str) -> tuple[str, str, str]:
    """(where a symbol comes from, the symbol, the user's name for it)."""
    log = facts.data.compilations[place].log
    apart = (row for row in facts.about(NONE, facts.data.shapes) if row.origin.log == log)  # of no compilation
    for row in reversed([*apart, *facts.about(place, facts.data.shapes)]):  # each compilation has symbols of its own
        if not row.kind.startswith("create_") or facts.text(row.expression) != symbol:
            continue
        source, at = user_name(facts.text(row.source)), _user_line(facts, row)
        if row.kind == "create_symbol":
            value = facts.text(row.value)
            return f"`{symbol}` is `{source}`" + (f", {value} in the example" if value else ""), symbol, source
        match = ASSIGNED.match(at.code) if ".tolist(" not in at.code else None  # it names all of the numbers
        where = f" by `{at.code}` ({at})" if at.code else ""
        said = f"`{symbol}` is read out of a tensor{where}, so its value is not known before the program runs"
        name = match["name"] if match else ""
        return said, symbol, name if not name or READS_NUMBER.search(at.code) else f"{name}.shape[0]"
    return "", symbol, ""


def _no_fake(operator: str, at: SourceLine, stops: bool = True) -> Problem:
    name = _operator(operator)
    told = "failed because" if stops else "had to run the real kernel because"
    return Problem(
        f"{told} the operator `{name}` has no fake kernel, which says the shape and dtype of its results without "
        "computing them",
        at.code, str(at),
        export_cures.NO_FAKE.said(name=name),
        stops, f"the operator `{name}` has no fake kernel",
    )  # fmt: skip


def _wrong_fake(operator: str, reason: str, at: SourceLine) -> Problem:
    name = _operator(operator)
    return Problem(
        f"found that the fake kernel of `{name}` does not say what the real kernel does ({reason.strip()}), so "
        "programs exported with it may be wrong",
        at.code, str(at),
        export_cures.WRONG_FAKE.said(name=name),
        False, f"the fake kernel of `{name}` does not say what the real kernel does",
    )  # fmt: skip


def _guarded(expression: str, sources: str, at: SourceLine) -> Problem:
    named = ", ".join(f"`{symbol}` is `{user_name(source)}`" for symbol, source in _mapping(sources).items())
    return Problem(
        f"added the guard `{expression}`{f' ({named})' if named else ''}: the program is valid only for sizes for "
        "which it holds, which may contradict the `dynamic_shapes` that you gave",
        at.code, str(at),
        export_cures.GUARDED.said(),
        False, f"it is valid only where the added guard `{expression}` holds",
    )  # fmt: skip


def _stopped(facts: Facts, place: int, last: Statement) -> Problem:
    """From the graph up to the error, when the log says nothing else."""
    if SYMBOL.search(last.condition) and re.search(r"[<>=]|Eq|Ne", last.condition):
        return _undecided(facts, place, last.condition, _line(last))
    namespace, message = last.operator.partition(".")[0], _raised(facts, place)
    found = _unknown_length(last) or of_message(facts, place, message, _line(last))
    if found is not None:
        return found
    if last.operator and not last.type and namespace not in TORCHS:
        return _no_fake(last.operator, _line(last))
    types = ", ".join(f"`{name}`: {type}" for name, type in last.types.items() if type)
    unlogged = message or "an error that torch does not log"
    brief = f"after this line, with {unlogged}"
    if last.type:
        told = f"failed after this line was traced{f' with {message}' if message else '; torch does not log the error'}"
    else:
        brief = f"`{last.operator or last.code}` raised {unlogged}"
        told = f"failed in `{last.code.partition(' = ')[2] or last.code}`" + (f" ({types})" if types else "")
        told += f" with {message}" if message else "; torch does not log the error's message"
    returned = last.type and re.match(r"return\b", last.source)  # the trace was complete
    fix = error_texts.cure_of(message) or (export_cures.RETURNED if returned else export_cures.STOPPED).said()
    return Problem(told, last.source, last.place, fix, True, brief)


def _unknown_length(last: Statement) -> Problem | None:
    """If tracing stopped where the entries of a tensor are taken one by one, by `tolist()`, a loop or unpacking, and
    data decides how many there are."""
    lengths = [(name, found["symbol"]) for name, type in last.types.items() if (found := SIZED.match(type))]
    if last.operator != "aten.unbind" or last.type or not lengths:
        return None
    (name, symbol), at = lengths[0], _line(last)
    needs = "this line needs one value for each of its entries"
    return Problem(
        f"failed because the length of `{name}` ({symbol}) depends on data, and {needs}, as `tolist()`, a loop and "
        "unpacking do",
        at.code, str(at), export_cures.LENGTH.said(name=name), True,
        f"the length of `{name}` depends on data, and {needs}",
    )  # fmt: skip


def _raised(facts: Facts, place: int) -> str:
    """The error that ended this export, as a watch knows it: that of the last one ended the block."""
    errors = [one for one in facts.data.call_errors if one.during == "export"]
    last = max(place for place, one in enumerate(facts.data.compilations) if one.kind in EXPORTS)
    if not errors or place != last:
        return ""
    return f"{errors[-1].type}: {(error_texts.sentences(errors[-1].message) or ['no message'])[0].rstrip('.')}"


def _partial(facts: Facts, place: int) -> str:
    """The graph that was traced until an export failed; "" if the log has no such graph."""
    return next(iter(facts.named(place, "make_fx_fail_partial")), "")


def _user_line(facts: Facts, row: ShapeRecord) -> SourceLine:
    """The innermost line of a row's stack that is not a library's."""
    frames = user_frames(facts.text(row.stack))
    return own_line(frames)


def _made_at(facts: Facts, rows: Sequence[ShapeRecord], expression: str) -> SourceLine | None:
    """The line that computed an expression."""
    made = (
        _user_line(facts, row)
        for row in rows
        if row.kind == "expression_created" and facts.text(row.expression) == expression
    )
    return next((line for line in made if line.line), None)


def _line(statement: Statement) -> SourceLine:
    file, _, line = statement.place.rpartition(":")
    return SourceLine(file, int(line), "", statement.source) if line.isdigit() else UNKNOWN


def _line_of(program: str, operator: str) -> SourceLine:
    place, code = line_of_operator(program, operator)
    return _line(Statement(place=place, source=code))


def _operator(name: str) -> str:
    """As `torch.library` writes it.

    >>> _operator("corpus.no_fake.default"), _operator("torch.ops.my.op.out")
    ('corpus::no_fake', 'my::op')
    """
    parts = name.removeprefix("torch.ops.").split(".")
    return "::".join(parts[:2])


def _mapping(text: str) -> dict[str, str]:
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return {name: str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _ids(ids: list[str]) -> str:
    return ", ".join(ids) if len(ids) <= 3 else f"{', '.join(ids[:2])} and {len(ids) - 2} more"
