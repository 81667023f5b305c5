"""Calls of compiled functions that raised: an error of the program, memory that ran out, or a new program that was
needed where none may be made.

A recording has such an error where the call was made inside of `aotviz.watch()` or `aotviz.record()`, or to a function
of `aotviz.compile` (recorder/call_errors.py).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from aotviz.explain import allocations, error_texts, exports, misses, unlike_eager
from aotviz.explain.cures import backward_cures, break_cures, export_cures, guard_cures, rank_cures, result_cures
from aotviz.explain.cures.registry import NO_ADVICE
from aotviz.explain.explanation import Point, counted, listed, sentence
from aotviz.explain.rows import Facts
from aotviz.recording import saved, sizes
from aotviz.recording.error_messages import INFERENCE, OF_OPERATOR
from aotviz.recording.schema import CallError

STANCE = re.compile(r"\bfail_on_recompile\b")  # not `fail_on_recompile_limit_hit`, a setting
OUTSIDE = "outside"  # no compiled function raised it
HOOK = "hook"  # no error: a hook that no program calls
OF_EXPORTS = ("UserError", "ConstraintViolationError")  # an export says which line made a size a constant
DURING = {
    "program": "Its compiled program raised it as it ran",
    "backward": "The compiled program of the backward raised it as it ran",
    "eager": "This line runs in eager",
    "compile": "",
    "export": "",
}
ITS_VALUES, ITS_HOOKS = re.compile(r"\._(?:parameters|buffers)\["), re.compile(r"\._(?:forward_hooks)")
ORIG_MOD = "_orig_mod."
INPUT_CLASS = re.compile(r"Unsupported input type <class '(?P<name>[^']+)'>")
SHAPES = re.compile(
    r"top-level keys must be the arg names \[(?P<names>[^\]]{0,999})\] of `inputs`, "
    r"but here they are \[(?P<given>[^\]]{0,999})\]"
)
TIMEOUT = re.compile(r"Timed out waiting|collective operation timeout")
SECOND = re.compile(r"(?<=[^.])\. (?=[A-Z])| Hint: ")  # what follows the first sentence of a message
KERNELS = re.compile(r"^kernel, \S+?:\d+, ")  # before a message of a kernel for the CPU
LONGEST = 400  # characters that are shown of a message
WANTED = re.compile(
    r"(?:Tried to allocate|tried to allocate) (?P<wanted>[\d.]+ \w+)"
    r"(?:.*?total capacity of (?P<all>[\d.]+ \w+) of which (?P<free>[\d.]+ \w+) is free)?"
)


def points(facts: Facts) -> Iterator[Point]:
    for error in facts.data.call_errors:
        if STANCE.search(error.message):
            yield refused(facts, error.function, error.guards, "stance `fail_on_recompile`", error.source, ())
        elif not error.during:
            yield _out_of_memory(facts, error)
        elif error.during == HOOK:
            yield from _late_hook(facts, error)
        elif error.during == OUTSIDE:
            yield from _ended(facts, error)
        elif shapes := SHAPES.search(error.message):
            yield _misnamed(error, re.findall(r"'(\w+)'", shapes["names"]), re.findall(r"'(\w+)'", shapes["given"]))
        elif error.type in OF_EXPORTS and (made := [one for one in exports.without_problems(facts) if one.fix]):
            yield _export_failed(made[0])
        elif (wrong := OF_OPERATOR.search(error.message)) and wrong["name"] not in exports.TORCHS:
            yield _wrong_fake(facts, error, f"{wrong['name']}.{wrong['op']}")
        elif not _is_told(facts, error):
            yield _raised(facts, error)


def _ended(facts: Facts, error: CallError) -> Iterator[Point]:
    """An error that ended the block, which no compiled function raised. Compiling may explain it."""
    where, _, code = error.source.partition(" ")
    message = _first_sentence(error.message)
    raised = f"the block ended with {error.type}" + (f": {message}" if message else "")
    if ORIG_MOD in error.message:
        names = f"the names of one side are those of a compiled module, which begin with `{ORIG_MOD}`"
        title = f"the names of a checkpoint do not match: {names}"
        fix = result_cures.ORIG_MOD.said()
        yield Point(sentence(title, f"{raised}"), code, where, fix, True, kind="failed", title=title)
        return
    if match := INPUT_CLASS.search(error.message):
        name = match["name"].rpartition(".")[2]
        title = f"the export failed: an input is of class `{name}`, of which torch does not know which tensors it holds"
        fix = export_cures.INPUT_CLASS.said(name=name)
        yield Point(sentence(title), code, where, fix, True, kind="export", title=title)
        return
    if TIMEOUT.search(error.message):
        title = "this rank waited in a collective for longer than the timeout of its process group"
        why = "Another rank may compile meanwhile what this one does not call, which its own log or watch tells"
        fix = rank_cures.ALONE.said(function="it")
        yield Point(sentence(title, why, raised), code, where, fix, True, kind="failed", title=title)
        return
    for reason in unlike_eager.reasons(facts) if error.type == "AssertionError" else ():
        title = f"the block ended with an AssertionError, and results may differ from eager's: {reason.text}"
        if reason.line.line:
            where, code = str(reason.line), reason.line.code
        said = f"the error is: {message}" if message else ""
        yield Point(sentence(title, said), code, where, reason.fix, True, kind="failed", title=title)
        return
    if not _is_told(facts, error):
        fix = error_texts.cure_of(error.message)
        text = sentence(raised, "No compiled function raised it")
        yield Point(text, code, where, fix, True, kind="failed", title=raised)


def _late_hook(facts: Facts, hook: CallError) -> Iterator[Point]:
    """A hook that was registered after a module was compiled, if Dynamo captured what the module does.

    It did where it guards on the module's parameters. If it guards on the hooks too, as for a backend of ours, the
    function is compiled again.
    """
    id = hook.guards[0]
    place = facts.place_of(id)
    if place < 0:
        return
    frame = facts.frame(place)
    at = "".join(f"._modules[{part!r}]" for part in hook.function.split("."))
    sources = [
        facts.text(guard.source)
        for place in facts.frames.get(frame, ())
        for guard in facts.about(place, facts.data.guards)
    ]
    rests = [source.partition(at)[2] for source in sources if at in source]
    if not hook.function or not any(map(ITS_VALUES.match, rests)) or any(map(ITS_HOOKS.fullmatch, rests)):
        return
    name = f"`{hook.message}`, a {hook.type} of `{hook.function}` (`{hook.kernel}`)"
    title = f"{name}, is not called by what was compiled before it was registered"
    fix = guard_cures.MODULE_HOOKS.said()
    yield Point(sentence(title), "", hook.source, fix, True, kind="failed", title=title, ids=(id,))


def _misnamed(error: CallError, names: Sequence[str], given: Sequence[str]) -> Point:
    """An export whose `dynamic_shapes` are of other names than the arguments."""
    where, _, code = error.source.partition(" ")
    wrong = listed([f"`{name}`" for name in given if name not in names]) or "less than all of them"
    right = listed([f"`{name}`" for name in names])
    title = f"the export failed: `dynamic_shapes` has {wrong}, and the arguments of `forward` are {right}"
    fix = export_cures.NAMES_OF_SHAPES.said(names=right)
    return Point(sentence(title), code, where, fix, True, kind="export", title=title)


def _is_told(facts: Facts, error: CallError) -> bool:
    """Whether the recording has the same error as that of a compilation."""
    compiles = error.during in ("compile", "export") or error.type in OF_EXPORTS
    for place, compilation in enumerate(facts.data.compilations):
        record = facts.failure(place)
        types = {record.fail_type if record else "", compilation.error.type if compilation.error else ""}
        reason = facts.text(record.fail_reason) if record else ""
        if error.type in types and (compiles or _first_sentence(error.message) in " ".join(reason.split())):
            return True
    return (error.type in OF_EXPORTS or error.during == "export") and bool(exports.explain_all(facts))


def _wrong_fake(facts: Facts, error: CallError, operator: str) -> Point:
    """A custom operator whose result is not what its fake kernel promised, for which the program was compiled."""
    name = operator.replace(".", "::")
    line = allocations.of_operator(facts, operator)
    at, _, defined = error.about[0].partition(" ") if error.about else ("", "", "")
    stands = f"That kernel stands at {at}: `{defined}`" if at else ""
    title = f"`{name}` returned a tensor of another shape or layout than its fake kernel (`register_fake`) promises"
    said = f"the program was compiled for what it promises, and checks it: {_first_sentence(error.message)}"
    fix = export_cures.UNLIKE_FAKE.said(name=name, at=f" ({at})" if at else "")
    text = sentence(title, stands, said)
    return Point(text, line.code, str(line) if line.line else at, fix, True, kind="failed", title=title)


def _export_failed(made: Point) -> Point:
    """What a log says of an export that may have failed, where it is known that it did."""
    title = made.text.partition(". ")[0].replace(" may have failed: ", " failed: ")
    return replace(made, text=sentence(title), title=title, failed=True, kind="export")


def _raised(facts: Facts, error: CallError) -> Point:
    """An error of a program that ran, of its backward, or of what runs in eager between programs."""
    where, _, code = error.source.partition(" ")
    lines = allocations.of_kernel(facts, error.kernel) if error.kernel else []
    if lines:
        where, code = str(lines[0]), lines[0].code
    function = lines[0].function if lines else error.function
    name = f"`{function}`" if function and not function.startswith("<module") else ""
    message = _first_sentence(error.message)
    what = f"{error.type}: {message}" if message else error.type
    if error.during == "backward":
        who = f"the backward of {name}" if name else "the backward"
    else:
        who = {"compile": "compiling ", "export": "exporting "}.get(error.during, "") + (name or "a compiled function")
    title = f"{who} raised {what}"
    kernel = ""
    if len(lines) > 1:
        kernel = f"The kernel `{error.kernel}` computes {counted(len(lines), 'line')}, of which this is the first"
    if INFERENCE.search(error.message):
        known = [f"`{one}`" for one in error.about]
        kernel = f"{listed(known)} {'is' if len(known) == 1 else 'are'} made in inference mode" if known else ""
        what, one = listed(known) or "such a tensor", error.about[0] if error.about else "x"
        fix = backward_cures.SAVED_INFERENCE.said(what=what, name=one)
    else:
        fix = error_texts.cure_of(error.message, error.during == "export")
    if not fix and error.during == "export":
        fix = export_cures.UNFINISHED.said()
    elif not fix and error.during not in ("backward", "compile"):
        fix = break_cures.RAISES.said()
    return Point(sentence(title, DURING[error.during], kernel), code, where, fix, True, kind="failed", title=title)


def _first_sentence(message: str) -> str:
    """
    >>> _first_sentence("kernel, /tmp/x.cpp:7, index out of bounds. Use `clamp`.")
    'index out of bounds'
    """
    first = error_texts.plain(message).strip().partition("\n")[0]
    told = KERNELS.sub("", SECOND.split(" ".join(first.split()))[0])
    return textwrap.shorten(told, LONGEST, placeholder=" …").rstrip(".")


def needed(said: str) -> str:
    """How much memory was asked for and free, as far as an error says it.

    >>> needed("DefaultCPUAllocator: can't allocate memory: you tried to allocate 2147483648 bytes.")
    ': 2.00 GiB were needed at once'
    """
    found = WANTED.search(said)
    if found is None:
        return ""
    count, _, unit = found["wanted"].partition(" ")
    wanted = sizes.told(int(count)) if unit == "bytes" and count.isdecimal() else found["wanted"]
    free = f", and {found['free']} of {found['all']} were free" if found["free"] else ""
    return f": {wanted} were needed at once{free}"


def _out_of_memory(facts: Facts, error: CallError) -> Point:
    where, _, code = error.source.partition(" ")
    during = f"while `{error.function}` ran" if error.function.isidentifier() else "during a call"
    title = f"Memory ran out {during}{needed(error.message)}"
    programs = enumerate(facts.data.compilations)
    kept = {facts.id(place): sum(saved.held(program.saved_tensors)) for place, program in programs}
    most = max(kept, key=lambda id: kept[id], default="")
    keeps = ""
    if total := sum(kept.values()):
        program = facts.called(facts.find(most))
        keeps = f"The compiled programs keep {sizes.told(total)} for the backward"
        keeps += f", {sizes.told(kept[most])} of it {program}" if kept[most] < total else f": that is {program}"
    ids = (most,) if most and kept[most] else ()
    wanted = WANTED.search(error.message)
    found = allocations.lines(facts, wanted["wanted"]) if wanted else []
    made = "This line makes a tensor of that size" if len(found) == 1 else ""
    if len(found) == 1:
        where, code = str(found[0]), found[0].code
    return Point(sentence(title, made, keeps), code, where, NO_ADVICE, True, kind="failed", title=title, ids=ids)


def refused(
    facts: Facts, function: str, guards: Sequence[str], setting: str, source: str, ids: tuple[str, ...]
) -> Point:
    """A call that needed a new program, which the setting forbids to make."""
    where, _, code = source.partition(" ")
    title = f"`{function}` raised an error in place of a recompile"
    fix = guard_cures.STANCE.said()
    if not guards:
        why = f"it had no program yet, and the {setting} allows none to be made"
        return Point(sentence(f"{title}: {why}"), code, where, fix, True, kind="failed", title=f"{title}: {why}")
    id, _, guard = guards[0].partition(": ")
    miss = misses.of_error(facts, id, guard.partition("  # ")[0].strip())
    if miss.place:
        where, code = miss.place, miss.code
    title = f"{title}: {miss.failure.words}"
    fix = miss.failure.fix.together_with(fix)
    text = sentence(title, f"The {setting} allows no further program")
    return Point(text, code, where, fix, True, kind="failed", title=title, ids=ids)
