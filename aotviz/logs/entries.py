"""Records without a compile id: exports, AOTInductor, `torch.compiler.precompile`, and AOTAutograd called directly.

Only Dynamo numbers its compilations. A record that another entry point wrote has the whole Python stack instead, and
the outermost frame that belongs to an entry point says which one it was, and which line of the user called it. Draft
export writes a log file of its own, in which some records have no stack; these belong to the entry that is open.

An export with `strict=True` lets Dynamo capture its graph. Dynamo numbers that capture as if it were the first
compilation of the process (0/0), between two events without an id. It is a part of the export, not a compilation.

Since torch 2.15 an export without Dynamo has a number, as if it were a compilation, and its records have no stack. It
has no `dynamo_start`, which is the first record of a compilation.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

from aotviz.logs import known
from aotviz.logs.lines import Record
from aotviz.logs.resets import BEGIN_BYTES
from aotviz.logs.stacks import stack_text
from aotviz.logs.streams import Compilation, Open, Place, Stream
from aotviz.recording import left_out
from aotviz.recording.printed_lines import last_line
from aotviz.recording.schema import NONE, ErrorRecord
from aotviz.recording.strings import clean

EXPORT, DRAFT, AOTI, AOT, PRECOMPILE = "export", "draft export", "AOTInductor", "AOTAutograd", "precompile"
NAMES = {
    EXPORT: "torch.export",
    DRAFT: "torch.export.draft_export",
    AOTI: "AOTInductor",
    AOT: "AOTAutograd",
    PRECOMPILE: "torch.compiler.precompile",
}
KINDS = frozenset(NAMES)
FUNCTIONS = (  # the files and the functions of an entry point; the first that matches a frame counts
    (DRAFT, re.compile(r"(?:^|/)torch/export/"), re.compile(r"draft_export")),
    (EXPORT, re.compile(r"(?:^|/)torch/export/"), re.compile(r"export(?:_for_\w+)?|_export")),
    (PRECOMPILE, re.compile(r"(?:^|/)torch/_precompile\.py$"), re.compile(r"__call__")),
    (AOTI, re.compile(r"(?:^|/)torch/_inductor/"), re.compile(r"aoti_compile_and_package|aot_compile|compile_fx_aot")),
    (AOT, re.compile(r"(?:^|/)torch/_functorch/"), re.compile(r"aot_(?:module|export_|compile_)\w*|returned_function")),
)
OURS = re.compile(r"(?:^|/)aotviz/(?:frontends|pipeline|stages|tracing|whole_backward)\b")
LATER = known.SHAPES | {"exported_program", f"artifact/{left_out.RECORD}"}  # records of an export that is open
DESCRIBED = frozenset(("describe_storage", "describe_tensor", "describe_source"))
NUMBERED = DESCRIBED | known.SHAPES | {"export", "exported_program"}  # the first record of an export with a number
CAPTURE_EVENT = b'"name": "fullgraph_capture"'
AOTI_EVENT, BEGINS = b'"name": "compile_fx_aot"', b'"ph": "B"'
ABOUT_PROCESS = frozenset(("str", "artifact/torch_version"))


class Assembler(Protocol):
    """What these records need of the assembler."""

    def begin(self, stream: Stream, compile_id: str, kind: str) -> Compilation: ...
    def text(self, text: str | None) -> int: ...


def compilation_of(assembler: Assembler, stream: Stream, record: Record) -> Compilation | None:
    """The compilation of a record without a compile id, which is new if the record begins one; None if it has none."""
    content = record.content if isinstance(record.content, dict) else {}
    label = f"artifact/{content.get('name')}" if record.kind == "artifact" else record.kind
    if label in ABOUT_PROCESS:
        return None
    if record.kind == "chromium_event":
        return _timed(assembler, stream, record)
    entry, depth, frames = _entry(stream, record.head.get("stack"))
    opened = stream.entry
    if not entry:
        if label in known.SHAPES and _is_of_aotviz(stream, content.get("stack")):
            return None
        if record.head.get("stack") and opened is not None and opened.captured and not opened.call:
            return _no_export(stream, opened)
        if opened is not None and label in LATER and opened.compilation.kind in (EXPORT, DRAFT):
            return opened.compilation
        if label not in LATER and record.kind != "export":
            return None
        entry = DRAFT if not stream.log.torch and record.kind != "export" else EXPORT
    own_lines = int(entry in (EXPORT, DRAFT, AOTI))  # the others write records from several of their lines
    call = tuple((frame.get("filename"), frame.get("line")) for frame in frames[: depth + own_lines])
    describer = content.get("describer_id") if record.kind in DESCRIBED else None
    if opened is not None and opened.compilation.kind == entry and record.kind != "export":
        again = entry == EXPORT and None not in (describer, opened.describer) and describer != opened.describer
        again |= label == opened.first
        if not again and (opened.call == call or not opened.call):
            opened.call, opened.describer = call, opened.describer if describer is None else describer
            opened.fresh = False
            _called(assembler, stream, opened.compilation, frames[:depth])
            return opened.compilation
    fresh = record.kind == "export"
    first = "" if own_lines else label
    stream.entry = Open(_begin(assembler, stream, entry), call, describer=describer, fresh=fresh, first=first)
    _called(assembler, stream, stream.entry.compilation, frames[:depth])
    return stream.entry.compilation


def _timed(assembler: Assembler, stream: Stream, record: Record) -> Compilation | None:
    """The compilation of an event, which has no stack. AOTInductor's, and Dynamo's captures, begin and end with one."""
    head, opened = (record.payload or b"")[:BEGIN_BYTES], stream.entry
    if CAPTURE_EVENT in head and BEGINS in head:
        if opened is None or not opened.fresh:
            opened = stream.entry = Open(_begin(assembler, stream, EXPORT), ())
        opened.fresh, opened.capturing = False, True
        return opened.compilation
    if opened is not None and opened.capturing:
        opened.capturing = CAPTURE_EVENT not in head
        return opened.compilation
    if AOTI_EVENT in head and BEGINS in head and (opened is None or opened.compilation.kind != AOTI or opened.timed):
        opened = stream.entry = Open(_begin(assembler, stream, AOTI), ())
    if opened is None or opened.ended or opened.compilation.kind != AOTI:
        return None
    opened.timed = True
    opened.ended = AOTI_EVENT in head and BEGINS not in head
    return opened.compilation


def capturing(stream: Stream, compile_id: str) -> Compilation | None:
    """The export for which Dynamo captures a graph under this id now, or None."""
    opened = stream.entry
    if opened is None or not opened.capturing or opened.captured not in ("", compile_id):
        return None
    found = opened.compilation
    if not opened.captured:
        opened.captured, found.called, found.compile_id = compile_id, found.compile_id, compile_id
    return found


def numbered(assembler: Assembler, stream: Stream, record: Record, compile_id: str) -> Compilation | None:
    """The export that begins with this record, which has a compile id, or None."""
    content = record.content if isinstance(record.content, dict) else {}
    describer = content.get("describer_id") if record.kind in DESCRIBED else None
    found, opened = stream.latest.get(compile_id), stream.entry
    if found is not None and opened is not None and opened.compilation is found:
        again = None not in (describer, opened.describer) and describer != opened.describer
        begins = again or record.kind == "export"
    elif found is not None:  # after a reset of Dynamo, another export may have the number of an earlier one
        begins = found.kind in (EXPORT, DRAFT) and record.kind == "export"
    else:
        begins = record.kind in NUMBERED and not compile_id.startswith("!")
    if begins:
        found = _begin(assembler, stream, DRAFT if not stream.log.torch and record.kind in known.SHAPES else EXPORT)
        found.called, found.compile_id = found.compile_id, compile_id
        stream.latest[compile_id], stream.entry = found, Open(found, (), describer=describer)
    opened = stream.entry
    if found is not None and opened is not None and opened.compilation is found:
        opened.describer = describer if opened.describer is None else opened.describer
        _located(assembler, stream, found, content.get("stack"))
    return found if begins else None


def _located(assembler: Assembler, stream: Stream, compilation: Compilation, stack: Any) -> None:
    """Note the call of a numbered export, of which the records of sizes have the stack."""
    if stack and compilation.stack == NONE:
        _, depth, frames = _entry(stream, stack)
        _called(assembler, stream, compilation, frames[: max(depth, 0)])


def _no_export(stream: Stream, opened: Open) -> Compilation:
    """What Dynamo captured turns out to be a compilation of another kind, such as `aot_compile`."""
    found, stream.entry = opened.compilation, None
    del stream.compilations[found.reset, found.called]
    found.kind = found.called = found.name = ""
    stream.compilations[found.reset, found.compile_id] = stream.latest[found.compile_id] = found
    return found


def _entry(stream: Stream, stack: Any) -> tuple[str, int, list[dict[str, Any]]]:
    """(kind of the entry point, index of its frame, the frames); "" if no frame belongs to one."""
    frames = [frame for frame in stack if isinstance(frame, dict)] if isinstance(stack, list) else []
    for depth, frame in enumerate(frames):
        file, name = stream.files.name(frame.get("filename")), str(frame.get("name"))
        for kind, files, functions in FUNCTIONS:
            if functions.fullmatch(name) and files.search(file.replace("\\", "/")):
                return kind, depth, frames
    return "", NONE, []


def _is_of_aotviz(stream: Stream, stack: Any) -> bool:
    """Whether a size was met in a trace of aotviz's, which is of no entry point."""
    frames = stack if isinstance(stack, list) else []
    files = (stream.files.name(frame.get("filename")) for frame in frames if isinstance(frame, dict))
    return any(OURS.search(file.replace("\\", "/")) for file in files)


def _begin(assembler: Assembler, stream: Stream, kind: str) -> Compilation:
    count = sum(found.kind == kind for (_, found) in stream.compilations.items())
    found = assembler.begin(stream, f"{kind} {count + 1}" if count else kind, kind)
    found.name = NAMES[kind]
    return found


def _called(assembler: Assembler, stream: Stream, compilation: Compilation, frames: list[dict[str, Any]]) -> None:
    if frames and compilation.stack == NONE:
        compilation.stack = assembler.text(stack_text(frames, stream.files))


def note(record: Record, place: Place) -> None:
    """What a record says of how its export ended."""
    compilation = place.compilation
    if compilation is None or compilation.kind not in (EXPORT, DRAFT):
        return
    content = record.content if isinstance(record.content, dict) else {}
    name = content.get("name") if record.kind == "artifact" else ""
    if record.kind == "export":
        compilation.logs_result = True
    elif record.kind == "exported_program":
        compilation.finished = True
    elif record.kind == "guard_on_data_dependent_error":
        said = f"could not decide {content.get('expr')}"
        compilation.error = ErrorRecord("torch.export", "GuardOnDataDependentSymNode", clean(said))
    elif name == "make_fx_fail_partial":
        last = last_line(record.text)
        message = f"tracing stopped in: {last.code}" if last.code else "tracing stopped"
        error = compilation.error or ErrorRecord("torch.export", "", clean(message))
        compilation.error = ErrorRecord(error.stage, error.type, error.message, place=clean(last.place))


def unfinished(compilation: Compilation) -> ErrorRecord | None:
    """The compilation's error, also of an export that logs its program and has logged none: it raised something."""
    logs_result = compilation.kind == DRAFT or compilation.logs_result
    if not logs_result or compilation.finished or compilation.error is not None:
        return compilation.error
    return ErrorRecord("torch.export", "", "it did not finish: the log has no exported program")
