"""The stage "dynamo", which comes first in compilations that Dynamo asked for: its summary, evidence and rows.

What Dynamo reports is recorded unprocessed and packed, since most recordings are never read. A reader gets a summary,
the evidence (why Dynamo restarted, where the graph ends, the guards and the line that made each), and the same rows
in `Recording.guards`, `.graph_breaks` and `.shapes` as from a watch or from torch's logs. This module does not import
torch.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from aotviz.recording.guard_texts import LONGEST, made
from aotviz.recording.schema import (
    NONE,
    CacheLookup,
    Evidence,
    GraphBreak,
    GuardRecord,
    Origin,
    ShapeRecord,
    StageRecord,
)
from aotviz.recording.sources import innermost, user_name
from aotviz.recording.spoken import spoken
from aotviz.recording.strings import StringTable

NAME, ROLE = "dynamo", "dynamo"
REST = re.compile(r"torch_dynamo_resume_in_(?P<function>[\w<>]+)_at_(?P<line>\d{1,9})")
QUOTED_REST = re.compile(f"`{REST.pattern}`")
MARKS = "DIMENSION_DYNAMIC_MARKING_GUARD"  # several per tensor, and no line of the user's program causes them
OF_TORCH = {  # by the kind of a guard on torch's own state
    "GLOBAL_STATE": "torch's settings, such as autocast, gradient mode and precision, are as they were",
    "TORCH_FUNCTION_STATE": "the same torch function modes are active",
    "TORCH_FUNCTION_MODE_STACK": "the same torch function modes are active",
    "DEFAULT_DEVICE": "the default device is the same",
}
CHECKED = {  # by the kind of a guard that torch writes with the number of an object
    "TYPE_MATCH": "its type is the same",
    "ID_MATCH": "it is the same object",
    "OBJECT_ALIASING": "it is the same object",
    "DICT_CONTAINS": "it has the same keys",
    "DICT_VERSION": "it has not changed",
    "WEAKREF_ALIVE": "it still exists",
    "TUPLE_ITERATOR_LEN": "it has the same length",
    "RANGE_ITERATOR_MATCH": "it has the same range",
}
SHARES, OF_CALL = "it has the memory of ", ", which this call ran before"  # between them: "output[0] of f [0/0]"
GONE, RETURNED = "nothing holds it when this graph begins", "the function returns it"
ORIGIN = Origin(NONE, 0, NONE, 0, 0)

GuardText = tuple[str, str, str]  # kind, source, text with its comment


class Captured(msgspec.Struct, frozen=True):
    """What Dynamo reported about one graph."""

    function: str
    place: str
    compile_id: str
    nodes: int
    elapsed_ns: int
    attempts: int
    restarts: list[str]
    broken: bool
    ended: str
    ended_at: str  # the user's stack frames
    symbols: list[tuple[str, str, str]]  # name, source, value
    guards: list[GuardText] | None = None
    waiting: bool = True  # the guards have not been read yet
    kept: str = ""  # what Dynamo's own cache has to do with it
    earlier: bool = False  # an earlier process captured it
    of_call: list[tuple[str, str]] = []  # an input, and the tensor of a graph that this call ran, of its memory
    others: list[tuple[str, str]] = []  # the same, with a tensor of an earlier call
    gone: list[str] = []  # tensors of the graphs that this call ran, which nothing holds any more
    returned: list[str] = []  # inputs that the function returns


class Rows(msgspec.Struct, frozen=True):
    """What a compilation adds to the lists of a recording. The origins do not refer to a compilation yet."""

    guards: list[GuardRecord] = []
    graph_breaks: list[GraphBreak] = []
    shapes: list[ShapeRecord] = []
    cache_lookups: list[CacheLookup] = []


def stage(captured: Captured, graph: int) -> StageRecord:
    """The stage as the outline shows it, without the evidence and texts that `told` adds.

    `graph` is NONE if there is no number for it.
    """
    return StageRecord(
        name=NAME,
        form="Dynamo's graph",
        summary=summary(captured),
        changed=True,
        late=False,
        started_ns=0,
        elapsed_ns=captured.elapsed_ns,
        graphs={} if graph == NONE else {ROLE: graph},
        evidence=[],
        code={},
    )


def summary(captured: Captured) -> str:
    what = "captured by an earlier process" if captured.earlier else "captured"
    parts = [f"{_function(captured)} {what}: {captured.nodes:,} node{'' if captured.nodes == 1 else 's'}"]
    if captured.attempts > 1:
        parts.append(f"started {captured.attempts} times")
    if captured.broken:
        line = innermost(captured.ended_at).line
        parts.append(f"ends at a graph break{f' in line {line}' if line else ''}")
    if captured.guards is not None:
        parts.append(f"{len(captured.guards):,} guards")
    return "; ".join(parts)


def told(record: StageRecord, captured: Captured, failed: bool) -> StageRecord:
    """The stage with its evidence and texts. `failed`: the compilation ended in an error."""
    code = {}
    if captured.guards is not None:
        code["guards"] = "\n".join(f"{kind}: {text}" for kind, _, text in captured.guards)
    if captured.broken:
        code["graph break"] = f"{captured.ended_at}\n{captured.ended}".strip()
    return replace(record, evidence=list(_evidence(captured, failed)), code=code)


def rows(captured: Captured, table: StringTable) -> Rows:
    """The rows for the lists of a recording. Their texts are added to `table`."""
    add, found = table.add, Rows()
    for kind, source, text in captured.guards or ():
        found.guards.append(GuardRecord(ORIGIN, kind, add(source or None), *made(text).numbers(add)))
    if captured.broken:
        reason, where = add(_first(captured.ended)), add(str(innermost(captured.ended_at)) or None)
        stack = add(captured.ended_at or None)
        found.graph_breaks.append(GraphBreak(ORIGIN, reason, where, stack, add(captured.ended)))
    for name, source, value in captured.symbols:
        texts = add(name), add(value), add(source)
        found.shapes.append(ShapeRecord(ORIGIN, "create_symbol", *texts, NONE, NONE, NONE, NONE))
    return found


def _evidence(captured: Captured, failed: bool) -> Iterator[Evidence]:
    frame = f"{_function(captured)} at {captured.place}; Dynamo's number for it is {captured.compile_id}"
    yield Evidence("frame", frame)
    if captured.kept:
        yield Evidence("Dynamo's cache", captured.kept)
    for reason in captured.restarts:
        why = f": {_sentences(reason)}"
        if reason == captured.ended:
            why = ", to end its graph before the line that causes the graph break"
        yield Evidence("restart", f"Dynamo restarted the function from its first line{why}")
    if captured.broken:
        at = innermost(captured.ended_at)
        where = f" at {at}, `{at.code}`" if at.line else ""
        then = "Python runs this line; the rest of the function is a compilation of its own"
        yield Evidence("graph break", f"the graph ends{where}: {_sentences(captured.ended)}. {then}")
    yield from (Evidence(name, f"{SHARES}{earlier}{OF_CALL}") for name, earlier in captured.of_call)
    yield from (Evidence(name, f"{SHARES}{earlier}") for name, earlier in captured.others)
    yield from (Evidence(name, GONE) for name in captured.gone)
    yield from (Evidence(name, RETURNED) for name in captured.returned)
    for name, source, value in captured.symbols:
        yield Evidence(user_name(source), f"symbolic, as {name}; it was {value} in the call that was compiled")
    yield from _guards(captured, failed)


def _guards(captured: Captured, failed: bool) -> Iterator[Evidence]:
    if captured.guards is None:
        if captured.earlier:
            yield Evidence("guards", "those of the earlier process, which Dynamo checks at each call")
            return
        why = "Dynamo has deleted this program, so its guards are not known"
        if captured.waiting:
            why = "not known yet: Dynamo creates the guards last, and aotviz reads them at the first call"
        yield Evidence("guards", "none, because the compilation failed" if failed else why)
        return
    marks: Counter[str] = Counter()
    for kind, source, text in captured.guards:
        if kind == MARKS:
            marks[source] += 1
            continue
        parts = made(text)
        place = plain_name(parts.place)
        by = f" (made by `{parts.code}`, {place})" if parts.code else f" ({place})" if place else ""
        subject = spoken(user_name(source)) or (
            "torch" if kind in OF_TORCH or "torch." in parts.guard else "several values"
        )
        yield Evidence(subject, f"guard: {_said(kind, parts.guard)}{by}")
    for source, count in marks.items():
        why = f"{count} guards: none of its sizes was marked as dynamic or static by hand"
        yield Evidence(spoken(user_name(source)), why)


def _said(kind: str, guard: str) -> str:
    """A guard as the user would write it, or what it is about: some of torch's checks have no such form.

    >>> _said("LAMBDA_GUARD", "L['n'] == 2"), _said("TYPE_MATCH", "___check_type_id(L['n'], 9400080)")
    ('n == 2', 'its type is the same')
    """
    if kind in OF_TORCH:
        return OF_TORCH[kind]
    if "top_saved_tensors_hooks" in guard:
        return "the same hooks for saved tensors are active"
    if "___" in guard or "0x" in guard:
        return CHECKED.get(kind, "it is as it was")
    return spoken(guard)[:LONGEST]


COMPILE_ID = re.compile(r" \[([\d/!_]+)\]$")  # Dynamo's, at the end of the name of a compilation of our own


def plain_name(text: str) -> str:
    """A text in which no function has the name that Dynamo gives to what follows a graph break.

    >>> plain_name("1/0 torch_dynamo_resume_in_f_at_7")
    '1/0 f after line 7'
    """
    return REST.sub(r"\g<function> after line \g<line>", text)


def rests_named(text: str) -> str:
    """A text in which Dynamo's names of what follows a graph break are told in words.

    >>> rests_named("`torch_dynamo_resume_in_f_at_7` ran twice")
    'the rest of `f` after line 7 ran twice'
    """
    return QUOTED_REST.sub(r"the rest of `\g<function>` after line \g<line>", text)


def _function(captured: Captured) -> str:
    """The captured function in the user's terms.

    >>> from msgspec.structs import replace
    >>> one = Captured("torch_dynamo_resume_in_f_at_7", "m.py:7", "1/0", 3, 0, 1, [], False, "", "", [])
    >>> _function(one), _function(replace(one, function="f"))
    ('the rest of `f` after line 7', '`f`')
    """
    return rests_named(f"`{captured.function}`")


def _first(text: str) -> str:
    return text.strip().partition("\n")[0]


def _sentences(text: str) -> str:
    """Dynamo's reason in one line: the first line of the text, and its explanation."""
    explained = re.search(r"Explanation: (.*)", text)
    return ": ".join(part.strip().rstrip(".") for part in (_first(text), explained[1] if explained else "") if part)


def packed(captured: Captured) -> bytes:
    """Compressed for storage: guards are many and repetitive."""
    return zlib.compress(msgspec.msgpack.encode(captured), 1)


def unpacked(content: bytes) -> Captured:
    return msgspec.msgpack.decode(zlib.decompress(content), type=Captured)
