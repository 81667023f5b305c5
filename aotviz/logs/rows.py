"""One function for each type of record. It reads the record's content and adds a row to the right list.

A function may raise if the content is not in torch's format. The assembler then keeps the record as an artifact and
reports its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from aotviz.ir.lookup import LookUp, Outcome
from aotviz.logs import entries, known, stages, whole_backwards
from aotviz.logs.assembler import LATEST_S, Assembler, Handler, keep
from aotviz.logs.chromium_events import ChromiumEvent
from aotviz.logs.lines import Record
from aotviz.logs.stacks import stack_text
from aotviz.logs.streams import Compilation, Place
from aotviz.logs.texts import LONG_BYTES
from aotviz.recording import captured_visits, guard_texts, own_lookups
from aotviz.recording.schema import (
    NONE,
    CacheLookup,
    CollectiveSchedule,
    ErrorRecord,
    FailedGuard,
    GraphBreak,
    GuardRecord,
    MetricsRecord,
    RecompileReason,
    RecompileRecord,
    ShapeRecord,
    StorageDescription,
    TensorDescription,
)
from aotviz.recording.sources import FRAME, innermost
from aotviz.recording.strings import clean

COMPONENT = re.compile(r"\[([^\]\s]*)\] (.*)", re.S)
DEVICE = re.compile(r"device\(type='(\w+)'(?:, index=(\d+))?\)")
BREAK_PLACE = re.compile(r"Graph [Bb]reak (?:in user code at|from .*? at) (?P<place>.*:\d+)")
BREAK_HEAD = 4000  # a graph break's location is in the first so many characters of its text
NO_ID = frozenset({"", "None"})

_event = msgspec.json.Decoder(ChromiumEvent).decode


def interned(assembler: Assembler, record: Record, place: Place) -> None:
    text, number = record.content
    place.stream.files.add(int(number), clean(str(text)))


def started(assembler: Assembler, record: Record, place: Place) -> None:
    frames = record.content.get("stack") or []
    compilation = place.compilation
    if compilation is None:
        keep(assembler, record, place)
        return
    compilation.started = True
    if frames:
        compilation.stack = assembler.text(stack_text(frames, place.stream.files))
        compilation.name = compilation.name or str(frames[-1].get("name", ""))
    # a record without a stack only says that the compilation began, which the assembler has already noted


def event(assembler: Assembler, record: Record, place: Place) -> None:
    if record.payload is None:
        return keep(assembler, record, place)
    found = _event(record.payload)
    assembler.clock(place, found.ts)
    said: dict[str, Any] = {}
    raw = bytes(found.args)
    if len(raw) < LONG_BYTES:
        said = (msgspec.json.decode(raw) if raw else None) or {}
        compile_id = str(said.pop("compile_id", "") or "")
        args = assembler.json(said)
    else:  # usually a cache key of 70 kB: leave it in the file
        compile_id = str(msgspec.json.decode(raw, type=_CompileId).compile_id or "")
        at = record.payload.find(raw)
        args = assembler.texts.add_long(raw, record.at + at)
    compilation = place.compilation
    if compilation is None and compile_id not in NO_ID:
        compilation = place.stream.latest.get(compile_id)
    number = compilation.number if compilation is not None else NONE
    name = assembler.text(found.name)
    assembler.timeline.add(found, name, args, place.stream.number, number, record.line)


class _CompileId(msgspec.Struct):
    compile_id: str | None = None


def metrics(assembler: Assembler, record: Record, place: Place) -> None:
    content: dict[str, Any] = record.content
    if place.compilation is None and isinstance(content.get("compile_id"), str):
        place.compilation = place.stream.latest.get(content["compile_id"])
    if place.compilation is None:  # Dynamo captured for an export, whose metrics have no compile id
        place.compilation = next(reversed(place.stream.latest.values()), None)
    numbers: dict[str, int | float] = {}
    texts: dict[str, int] = {}
    for name, value in content.items():
        if type(value) in (float, int):
            numbers[clean(name)] = value if fits(value) else float(value)
        elif value is not None:
            texts[clean(name)] = assembler.text(value) if type(value) is str else assembler.json(value)
    start = numbers.get("start_time_us", 0) / 1e6 or float(numbers.get("start_time", 0))
    end = numbers.get("end_time_us", 0) / 1e6
    if not end and start:
        end = start + numbers.get("duration_us", 0) / 1e6
    failed, reason = content.get("fail_type"), content.get("fail_reason")
    file, line = content.get("fail_user_frame_filename"), content.get("fail_user_frame_lineno")
    kind = "compilation" if record.kind == "compilation_metrics" else "backward"
    kind = "runtime" if record.kind.endswith("_runtime") else kind
    assembler.data.metrics.append(
        MetricsRecord(
            origin=place.origin,
            kind=kind,
            start_unix_s=start,
            end_unix_s=end,
            fail_type=clean(str(failed)) if failed else "",
            fail_reason=assembler.text(str(reason)) if reason else NONE,
            fail_place=assembler.text(f"{file}:{line}") if file else NONE,
            numbers=numbers,
            texts={name: number for name, number in texts.items() if number >= 0},
        )
    )
    compilation = place.compilation
    if compilation is not None and kind == "compilation":
        if content.get("co_name"):
            captured = compilation.compile_id.startswith("!") and content["co_name"] == "forward"
            compilation.name = f"{whole_backwards.NAME}, by Dynamo" if captured else str(content["co_name"])
        if 0 < start < LATEST_S:
            compilation.started_unix_ns = int(start * 1e9)
        if failed:
            compilation.error = ErrorRecord(
                compilation.kind if compilation.kind in entries.KINDS else "torch.compile",
                clean(str(failed)),
                clean(str(reason or "")),
            )


def shape(assembler: Assembler, record: Record, place: Place) -> None:
    content: dict[str, Any] = dict(record.content)
    stacks = [stack_text(content.pop(key, None) or [], place.stream.files) for key in ("user_stack", "stack")]
    expression = first(content, "symbol", "expr", "result", "op")
    value = first(content, "val", "value", "result", "vr")
    source = first(content, "source", "sources", "symbol_to_sources", "arguments")
    reason = first(content, "reason", "method", "prefix")
    if record.kind == "create_symbol" and place.compilation is not None:
        size = number_in(value or "")
        if expression and size is not None:
            place.compilation.sizes[clean(expression)] = size
    assembler.data.shapes.append(
        ShapeRecord(
            origin=place.origin,
            kind=record.kind,
            expression=assembler.text(expression),
            value=assembler.text(value if value != expression else None),
            source=assembler.text(source),
            reason=assembler.text(reason),
            stack=assembler.text(stacks[0] or None),
            framework_stack=assembler.text(stacks[1] or None),
            fields=assembler.json(content),
        )
    )


def first(content: Mapping[str, Any], *names: str) -> str | None:
    """The first of these fields that is not empty, as text."""
    for name in names:
        value = content.get(name)
        if value not in (None, "", [], {}):
            return value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return None


def number_in(text: str) -> int | None:
    """The size that a text of a log is; None if it is none that a recording can store.

    >>> number_in("128"), number_in("1.5"), number_in("9" * 30)
    (128, None, None)
    """
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def fits(number: Any) -> bool:
    """Whether `number` is an integer that a recording can store."""
    return type(number) is int and -(1 << 63) <= number < 1 << 63


def whole(number: Any) -> int:
    """The number. Raises ValueError if it does not fit."""
    if not fits(number):
        raise ValueError(f"{number!r} is not a number")
    return int(number)


def storage(assembler: Assembler, record: Record, place: Place) -> None:
    content: dict[str, Any] = record.content
    nbytes = content["size"] if fits(content["size"]) else NONE
    left_out = ("id", "describer_id") if nbytes == NONE else ("id", "describer_id", "size")
    more = {key: value for key, value in content.items() if key not in left_out}
    describer, number = whole(content["describer_id"]), whole(content["id"])
    assembler.data.storages.append(StorageDescription(place.origin, describer, number, nbytes, assembler.json(more)))


def tensor(assembler: Assembler, record: Record, place: Place) -> None:
    content: dict[str, Any] = dict(record.content)
    describer, number = content.pop("describer_id"), content.pop("id")
    kept, base = content.pop("storage", None), content.pop("base", None)
    device = str(content.pop("device", ""))
    match = DEVICE.fullmatch(device)
    key = whole(describer), whole(number)
    described = TensorDescription(
        place.origin,
        *key,
        storage=kept if fits(kept) else NONE,
        base=base if fits(base) else NONE,
        sources=place.stream.sources.setdefault(key, []),  # which later records fill
        dtype=clean(str(content.pop("dtype", ""))),
        device=clean(":".join(part for part in match.groups() if part) if match else device),
        shape=sizes(content.pop("size", None)),
        stride=sizes(content.pop("stride", None)),
        offset=size_of(content.pop("storage_offset", 0)),
        is_leaf=content.pop("is_leaf", False) is True,
        requires_grad=content.pop("requires_grad", False) is True,
        fields=assembler.json(content),
    )
    assembler.data.tensors.append(described)


def source(assembler: Assembler, record: Record, place: Place) -> None:
    key = (record.content["describer_id"], record.content["id"])
    place.stream.sources.setdefault(key, []).append(assembler.text(str(record.content["source"])))


def sizes(found: Any) -> list[int | str]:
    parts = found if isinstance(found, list) else []
    return [size_of(part) for part in parts]


def size_of(part: Any) -> int | str:
    """A size as a number, or as text if it is symbolic."""
    return part if fits(part) else clean(str(part))


def guard_list(assembler: Assembler, record: Record, place: Place) -> None:
    """The guards that Dynamo checks in addition to its tree, each with the user's stack."""
    keep(assembler, record, place)
    for item in msgspec.json.decode(record.payload or b"[]", type=list[dict[str, Any]]):
        made = guard_texts.made(str(item.get("code", "")))
        stack = stack_text(item.get("user_stack") or item.get("stack") or [], place.stream.files)
        _guard(assembler, place, str(item.get("type") or "SHAPE_ENV"), "", made, stack)


def guard_tree(assembler: Assembler, record: Record, place: Place) -> None:
    keep(assembler, record, place)
    for kind, about, check in guard_texts.tree(record.text):
        _guard(assembler, place, kind, about, guard_texts.made(check))


def _guard(assembler: Assembler, place: Place, kind: str, about: str, made: guard_texts.Made, stack: str = "") -> None:
    source, numbers = assembler.text(about or None), made.numbers(assembler.text, stack)
    assembler.data.guards.append(GuardRecord(place.origin, clean(kind), source, *numbers))


def graph(assembler: Assembler, record: Record, place: Place) -> None:
    """Keep a printed graph as text. It is parsed when the user looks at it (contents.py)."""
    keep(assembler, record, place)
    if place.compilation is not None and place.compilation.kind not in entries.KINDS:
        if record.kind == "aot_inference_graph" and not place.compilation.kind:
            place.compilation.kind = "inference"
        elif record.kind == "compiled_autograd_graph":
            _whole_backward(record, place.compilation)
        elif record.kind in ("aot_joint_graph", "aot_forward_graph", "aot_backward_graph"):
            place.compilation.kind = "training"


def _whole_backward(record: Record, compilation: Compilation) -> None:
    """A backward that torch's compiled autograd captured, and how it differs from those that it captured before."""
    printed = (record.payload or b"").decode("utf-8", "replace")
    done = [visit.done() for visit in whole_backwards.visits(printed)]
    lifts, earlier = whole_backwards.lifts_sizes(printed), compilation.stream.captures
    hooks = tuple(dict.fromkeys(whole_backwards.HOOKS.values()))
    told = [captured_visits.differences(before, done, hooks)[: guard_texts.MOST_TOLD] for _, before in earlier]
    compilation.kind, compilation.name = whole_backwards.KIND, whole_backwards.NAME
    compilation.frame = whole_backwards.KIND
    same = captured_visits.SIZES if lifts else captured_visits.ANOTHER_KEY
    own = record.content.get(stages.OURS) if isinstance(record.content, dict) else None
    compilation.because = [guard_texts.ALSO.join(texts) or same for texts in reversed(told)]
    if own is not None:  # aotviz captured it, and says how it differs
        compilation.because = [clean(text) for text in msgspec.convert(own["because"], list[str])]
    earlier.append((compilation.compile_id, done))


def cache(assembler: Assembler, record: Record, place: Place) -> None:
    match = known.CACHES.fullmatch(record.content["name"])
    assert match is not None, "called for the artifacts that it matches"
    said: dict[str, Any] = msgspec.json.decode(record.payload or b"{}", type=dict[str, Any])
    own = own_lookups.read(said)
    if own is not None:
        return _own_cache(assembler, own, place)
    components = [_component(assembler, component) for component in said.pop("components", None) or []]
    reason = said.get("cache_bypass_reason") or said.get("reason")
    assembler.data.cache_lookups.append(
        CacheLookup(
            origin=place.origin,
            cache={"fx_graph": "fx", "fx_graph_bundled": "fx bundled"}.get(match["cache"], match["cache"]),
            outcome=match["outcome"],
            key=clean(str(said.pop("key", None) or "")),
            components=[name for _, name in components],
            component_hashes=[hashed for hashed, _ in components],
            reason=assembler.text(str(reason)) if reason else NONE,
            fields={clean(key): assembler.json(value) for key, value in said.items() if value not in (None, [], {})},
        )
    )


def _component(assembler: Assembler, component: str) -> tuple[int, int]:
    """The numbers of a component's hash and of what it is. Most are in the keys of all look-ups of a log."""
    known = assembler.components.get(component)
    if known is None:
        parts = COMPONENT.fullmatch(component)
        known = assembler.text(parts[1] if parts else None), assembler.text(parts[2] if parts else component)
        assembler.components[component] = known
    return known


def _own_cache(assembler: Assembler, lookup: LookUp, place: Place) -> None:
    """A look-up of a job that ran on aotviz. The last answer about a compilation replaces an earlier one."""
    whole(lookup.saved_ns)
    row = own_lookups.Asked(lookup, place.unix_ns).row(assembler.text, place.origin)
    rows = assembler.data.cache_lookups
    asked = row.cache, place.origin.compilation
    if lookup.outcome is Outcome.BYPASS and place.compilation is not None:  # what was compiled could not be saved
        rows[:] = [one for one in rows if (one.cache, one.origin.compilation) != asked or one.outcome == "hit"]
    rows.append(row)


def recompile(assembler: Assembler, record: Record, place: Place) -> None:
    keep(assembler, record, place)
    reasons = []
    said = guard_texts.reasons(record.text)
    kept = guard_texts.telling(said)
    for raw in kept:
        earlier, guard = guard_texts.of_program(raw)
        numbers = guard_texts.made(guard).numbers(assembler.text)
        reasons.append(RecompileReason(clean(earlier), *numbers, assembler.text(raw)))
        if place.compilation is not None:
            place.compilation.because.append(clean(guard_texts.told(raw)))
    left_out = len(said) - len(kept)
    if place.compilation is not None:
        place.compilation.because += _likewise(left_out)
    assembler.data.recompiles.append(RecompileRecord(place.origin, reasons, left_out))


def failed_guards(assembler: Assembler, record: Record, place: Place) -> None:
    """Add what a watch recorded to torch's reasons for a recompile: every guard that failed, for each program."""
    keep(assembler, record, place)
    recompiles = assembler.data.recompiles
    if not recompiles or place.compilation is None or recompiles[-1].origin.compilation != place.compilation.number:
        return
    kept = {reason.earlier for reason in recompiles[-1].reasons}
    programs = msgspec.json.decode(record.payload or b"[]", type=list[_Program])
    programs = [program for program in programs if program.compile_id in kept]
    failed = {program.compile_id: [_failed(assembler, guard) for guard in program.failed] for program in programs}
    reasons = [replace(one, failed=failed.get(one.earlier, [])) for one in recompiles[-1].reasons]
    recompiles[-1] = replace(recompiles[-1], reasons=reasons)
    told = [
        clean(guard_texts.told_all(program.compile_id, [(guard.guard, guard.now) for guard in program.failed]))
        for program in programs
        if program.failed
    ]
    if told:
        place.compilation.because = [*told, *_likewise(recompiles[-1].left_out)]


def _likewise(left_out: int) -> list[str]:
    return [f"guards of {left_out} more programs failed likewise"] if left_out else []


class _Guard(msgspec.Struct):
    guard: str
    source: str
    now: str
    stack: str


class _Program(msgspec.Struct):
    compile_id: str
    failed: list[_Guard]


def _failed(assembler: Assembler, guard: _Guard) -> FailedGuard:
    text, made = assembler.text, guard_texts.made(guard.guard)
    return FailedGuard(
        text(made.guard), text(guard.now or None), text(guard.source or None), text(made.code or None),
        text(made.place or None), text(guard.stack or made.stack or None),
    )  # fmt: skip


def graph_break(assembler: Assembler, record: Record, place: Place) -> None:
    keep(assembler, record, place)
    user, _, _ = record.text.partition("\nTraceback (most recent call last)")
    stack = "\n".join(frames_of(user.split("\n")))
    match = BREAK_PLACE.search(user[:BREAK_HEAD])
    where = match["place"] if match else str(innermost(stack))
    marker = "Graph Break Reason: "
    reason = user.partition(marker)[2] if marker in user else user
    lines = [line for line in reason.split("\n") if line.strip()]
    if lines and lines[0].startswith("Encountered graph break when") and len(lines) > 1:
        lines.pop(0)  # this line only names the bytecode; the next line says what was wrong
    assembler.data.graph_breaks.append(
        GraphBreak(
            origin=place.origin,
            reason=assembler.text(lines[0].strip() if lines else ""),
            place=assembler.text(where or None),
            stack=assembler.text(stack or None),
            text=assembler.payload(record),
        )
    )


def frames_of(lines: Iterable[str]) -> list[str]:
    """The frames in a text that contains a stack, each with its line of code."""
    frames: list[str] = []
    inside = False
    for line in lines:
        if line.startswith("  ") and FRAME.fullmatch(line, 2):
            frames.append(line)
            inside = True
        elif inside and line.startswith("    "):
            frames[-1] += "\n" + line
        else:
            inside = False
    return frames


def dynamo_error(assembler: Assembler, record: Record, place: Place) -> None:
    keep(assembler, record, place)
    text = record.text.rstrip()
    if place.compilation is not None and place.compilation.error is None and text:
        kind, _, message = text.rpartition("\n")[2].partition(": ")
        place.compilation.error = ErrorRecord("torch.compile", clean(kind), clean(message))


def torch_version(assembler: Assembler, record: Record, place: Place) -> None:
    keep(assembler, record, place)
    place.log.torch = str(msgspec.json.decode(record.payload or b"{}").get("pytorch_version", ""))


def collectives(assembler: Assembler, record: Record, place: Place) -> None:
    keep(assembler, record, place)
    schedule = msgspec.json.decode(record.payload or b"[]", type=list[str | None])
    operations = [assembler.text(operation or "") for operation in schedule]
    assembler.data.collectives.append(CollectiveSchedule(place.origin, clean(record.content["name"]), operations))


HANDLERS: dict[str, Handler] = {
    "str": interned,
    "dynamo_start": started,
    "chromium_event": event,
    "dynamo_guards": guard_list,
    "dynamo_cpp_guards_str": guard_tree,
    "describe_storage": storage,
    "describe_tensor": tensor,
    "describe_source": source,
    **dict.fromkeys(known.METRICS, metrics),
    **dict.fromkeys(known.SHAPES, shape),
    **dict.fromkeys((name for name in known.GRAPHS if "/" not in name), graph),
}
ARTIFACTS: dict[str, Handler] = {
    "cache": cache,
    "recompile_reasons": recompile,
    "aotviz_failed_guards": failed_guards,
    "dynamo_graph_break_reason": graph_break,
    "dynamo_error": dynamo_error,
    "torch_version": torch_version,
    "inductor_collective_schedule": collectives,
}
