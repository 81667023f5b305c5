"""Compilations that failed, or ran in eager: why, where, and what to do."""

from __future__ import annotations

import re

from aotviz.explain import call_errors, error_texts, exports, fixed_sizes, graph_breaks, misses, recompiles
from aotviz.explain.cures import backward_cures, break_cures, export_cures
from aotviz.explain.cures.registry import NO_ADVICE, Advice
from aotviz.explain.explanation import Point, counted, sentence
from aotviz.explain.rows import EXPORTS, Facts
from aotviz.recording import guard_texts
from aotviz.recording.sources import UNKNOWN, SourceLine, user_frames

NOT_ALLOWED = "RecompileError"  # of `torch._dynamo.config.error_on_recompile`
USERS = "from user code:"  # before the user's lines in a message of torch's
FAKE_KERNELS = re.compile(r"torch/_library/")  # the files through which torch calls a fake kernel
FORMULAS = re.compile(r"torch/_library/autograd\.py")  # the file through which it calls a backward formula
ENTRY = re.compile(r"torch/_dynamo/eval_frame\.py")  # a call of a compiled function passes through it
DYNAMO_ERROR = "dynamo_error"  # the artifact that has the traceback of a compilation's error
TRACES = "trace_structured"  # torch's function that writes its trace
BY_BACKEND = re.compile(r"backend='(?P<name>.*?)' raised:\s*(?P<error>.*)")
LONG = 160  # characters of a title
MOST_NAMED = 3  # compilations of one cause


def found(facts: Facts, only: int | None = None, ran_in_eager: bool | None = None) -> list[Point]:
    """Compilations that raised or ran in eager, or only one of the two. Those of one cause are one point.

    Compilations beyond the recompile limit are left out: the recompiles report them.
    """
    causes: dict[tuple[str, str, str, bool], list[int]] = {}
    points: list[Point] = []
    again = {one.place for one in recompiles.find(facts)}
    broken = {facts.text(one.place) for one in facts.data.graph_breaks}
    for place, compilation in enumerate(facts.data.compilations):
        record, error = facts.failure(place), compilation.error
        if only not in (None, place) or (record is None and error is None):
            continue
        if record is not None:
            kind, reason, where = record.fail_type, facts.text(record.fail_reason), facts.text(record.fail_place)
        elif error is not None:
            kind, reason, where = error.type, error.message, error.place
        in_eager = error is not None and error.ran_in_eager
        if kind == "Unsupported" and facts.about(place, facts.data.graph_breaks):
            continue  # the graph break says it: the function ran in eager
        if in_eager and where.partition(" in ")[0] in broken:
            continue  # so it does of the call that Dynamo left to eager
        if compilation.kind in EXPORTS and exports.explain_all(facts, place):
            continue
        if fixed := fixed_sizes.violated(facts, place, reason):
            points += fixed if ran_in_eager is not True else []
            continue
        if not kind or (kind == recompiles.LIMIT_ERROR and place in again):
            continue
        if recompiles.LIMIT.search(reason) or ran_in_eager not in (None, in_eager):
            continue
        if kind == NOT_ALLOWED:
            setting, source = "setting `error_on_recompile`", facts.frame_place(place)
            guards, name, id = guard_texts.refused(reason), facts.function(place), facts.id(place)
            points.append(call_errors.refused(facts, name, guards, setting, source, (id,)))
            continue
        cause = kind, reason, where or misses.users_place(facts, place), in_eager
        if kind == "Unsupported" and break_cures.TRANSFORM in graph_breaks.meaning(reason)[1].cures:
            if _is_transformed_inside(facts, place):
                continue  # the graph break says why the transform runs in eager
            cause = next((known for known in causes if known[:2] == cause[:2]), cause)  # it is the caller's
        causes.setdefault(cause, []).append(place)
    for (kind, reason, where, in_eager), places in causes.items():
        said = _with_users_line(facts, places[0], reason)
        is_export = facts.data.compilations[places[0]].kind in EXPORTS
        found, (words, brief, fix) = exports.of_message(facts, places[0], said), told(kind, reason, is_export)
        in_trace = any(frame.function == TRACES for frame in _raised_through(facts, places[0]))
        if in_trace:
            found, (words, brief, fix) = None, _in_trace(kind, reason)
        names = [facts.called(place) for place in places[:MOST_NAMED]]
        more = f" and {counted(len(places) - MOST_NAMED, 'other')}" if len(places) > MOST_NAMED else ""
        named, code = f"{', '.join(names)}{more}", _code(facts, places[0], where)
        which = named if len(places) == 1 else exports.share(facts, places)
        title = f"{which} failed: {brief}"
        line = exports.line_of(said) if is_export or misses.LIBRARY.search(where) else UNKNOWN
        if in_trace:
            line = misses.own_line(user_frames(facts.text(facts.data.compilations[places[0]].stack)))
        if line.line:
            where, code = str(line), line.code
        of_backend = not in_trace and (break_cures.OF_BACKEND in fix.cures or BY_BACKEND.match(reason))
        if of_backend and (frame := _raised_at(facts, places[0])) is not None:
            where, code = str(frame), frame.code
        fake = None if in_trace else _in_fake_kernel(facts, places[0])
        if fake is not None:
            brief = f"a fake kernel raised {kind}: {reason.strip().partition(chr(10))[0]}"
            called = f". The operator is called at {where}" if where else ""
            words, title = f" because {brief}{called}", f"{which} failed: {brief}"
            where, code, fix = str(fake), fake.code, export_cures.FAKE_RAISES.said()
        formula = None if fake is not None else _in_formula(facts, places[0])
        if formula is not None and (backend := BY_BACKEND.match(reason)):
            brief = f"the backward formula of an operator raised {backend['error'].strip()}"
            words, title = f" because {brief}", f"{which} failed: {brief}"
            where, code, fix = str(formula), formula.code, backward_cures.FORMULA_RAISES.said()
        if in_eager:
            text, title = f"{named} ran in eager: {reason}", f"{which} ran in eager: {reason}"
            fix = break_cures.CONTEXT.said() if reason.startswith(graph_breaks.ENTERED) else NO_ADVICE
            title = title if len(title) <= LONG else ""
        elif found is not None:
            title = f"{which} failed: {found.brief}"
            text, code, where, fix = f"{named} {found.text}", found.code or code, found.place or where, found.fix
        else:
            text = f"{named} failed{words}"
        if _is_suppressed(facts, places[0]):
            text += ". It ran in eager, because `torch._dynamo.config.suppress_errors` is set"
        spent, ids = sum(map(facts.seconds, places)), tuple(map(facts.id, places))
        kind = "eager" if in_eager else "export" if is_export else "failed"
        points.append(Point(sentence(text), code, where, fix, True, spent, kind=kind, title=title, ids=ids))
    return points


def _in_trace(kind: str, reason: str) -> tuple[str, str, Advice]:
    """The same as `told`, of an error that was raised while torch wrote its trace."""
    backend = BY_BACKEND.match(reason)
    raised = backend["error"].partition(":")[0] if backend else kind
    brief = "torch could not print a tensor for its trace (`TORCH_TRACE` or a watch)"
    return f" because {brief}: printing it raised {raised}", brief, break_cures.TRACE_PRINTS.said()


def _code(facts: Facts, place: int, where: str) -> str:
    """The code of the user's line, from the log's text of the error."""
    frames = _raised_through(facts, place)
    return next((one.code for one in frames if where.endswith(str(one)) or str(one).endswith(where)), "")


def _with_users_line(facts: Facts, place: int, reason: str) -> str:
    """The message with the part that torch leaves out in some records."""
    texts = (facts.text(one.text) for one in facts.about(place, facts.data.artifacts))
    said = next((text for text in texts if USERS in text), "") if USERS not in reason else ""
    return f"{reason}\n\n{USERS}{said.partition(USERS)[2]}" if said else reason


def _raised_at(facts: Facts, place: int) -> SourceLine | None:
    """The user's innermost line in the traceback of a compilation's error."""
    return next((one for one in _raised_through(facts, place) if not misses.LIBRARY.search(str(one))), None)


def _in_fake_kernel(facts: Facts, place: int) -> SourceLine | None:
    """The line of a fake kernel of the user's that raised, which Dynamo calls while it traces the user's program."""
    frames = [frame for text in facts.named(place, DYNAMO_ERROR) for frame in user_frames(text.partition(USERS)[0])]
    through = any(FAKE_KERNELS.search(frame.file) for frame in frames[-4:-1])
    return frames[-1] if through and not misses.LIBRARY.search(str(frames[-1])) else None


def _in_formula(facts: Facts, place: int) -> SourceLine | None:
    """The line of an operator's backward formula that raised, which AOTAutograd calls while it traces the backward."""
    frames = _raised_through(facts, place)
    through = next((number for number, frame in enumerate(frames) if FORMULAS.search(frame.file)), 0)
    return next((frame for frame in frames[:through] if not misses.LIBRARY.search(str(frame))), None)


def _is_transformed_inside(facts: Facts, place: int) -> bool:
    """Whether a compiled function calls the transform that calls this function, and not the caller of both."""
    through = [frame.file for frame in user_frames(facts.text(facts.data.compilations[place].stack))]
    entered = max((number for number, file in enumerate(through) if ENTRY.search(file)), default=len(through))
    return any("torch/_functorch/" in file for file in through[entered:])


def _is_suppressed(facts: Facts, place: int) -> bool:
    record = facts.failure(place)
    return record is not None and facts.text(record.texts.get("config_suppress_errors", -1)) == "true"


def _raised_through(facts: Facts, place: int) -> list[SourceLine]:
    """The lines of the traceback of a compilation's error, the innermost first."""
    return [frame for text in facts.named(place, DYNAMO_ERROR) for frame in reversed(user_frames(text))]


def told(kind: str, reason: str, is_export: bool) -> tuple[str, str, Advice]:
    """What failed as the end of a sentence that begins with "failed", the error alone, and what to do.

    >>> told("BackendCompilerFailed", "backend='mine' raised:\\nKeyError: 'sum'", False)[0]
    " because the backend `mine` raised KeyError: 'sum'"
    """
    if kind == "Unsupported":
        words, fix = graph_breaks.meaning(reason)
        if break_cures.TRANSFORM in fix.cures:
            return f" because {words}", words, fix
        whole = "an export" if is_export else "`fullgraph=True`"
        return f" because {words}, and {whole} allows no graph break", words, fix
    if "out of memory" in reason and (needed := call_errors.needed(reason)):
        words = f"the device is out of memory{needed}"
        return f" because {words}", words, NO_ADVICE
    if backend := BY_BACKEND.match(reason):
        words = f"the backend `{backend['name']}` raised {backend['error'].strip()}"
        return f" because {words}", words, error_texts.known_cure(backend["error"]) or break_cures.OF_BACKEND.said()
    if kind == "InductorError":
        words = f"Inductor raised {reason.strip().partition(chr(10))[0]}"
        return f" because {words}", words, break_cures.OF_BACKEND.said()
    lines = [line.strip() for line in reason.strip().splitlines() if line.strip()] or ["no message"]
    said = lines[0] if not lines[0].endswith(":") or len(lines) == 1 else f"{lines[0]} {lines[1]}"
    explained = graph_breaks.explanation(reason)
    if words := graph_breaks.of_operator(explained):
        fix = graph_breaks.hinted("" if is_export else reason, explained)
        return f" because {words}", words, fix or (export_cures.STOPPED if is_export else break_cures.RAISES).said()
    brief = explained or said
    fix = error_texts.known_cure(reason if is_export else said, is_export) or graph_breaks.hinted(reason)
    return f" with {kind}: {said}. {explained}".rstrip(". "), brief.rstrip(". "), fix
