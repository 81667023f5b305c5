"""Recordings on disk: written atomically, and validated when read.

A file is eight bytes of magic, a two-byte format version, and then gzip over msgpack of a RecordingData. It contains
no executable code. It may come from a stranger, a broken download or a later release, so reading checks these things
in order: the file exists; it starts with our magic; we know its version; it decompresses completely, to a bounded
size; it matches the schema (msgspec); its texts are made harmless (strings.py); every number refers to something that
exists, and nothing is nested too deep (`check`), so that readers need not check again. The first failure becomes a
RecordingError that names the file and says what to do.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from aotviz.recording import numbers
from aotviz.recording.listing import one_line
from aotviz.recording.schema import (
    FORMAT,
    NONE,
    VERSION,
    CompilationData,
    EventTable,
    GraphSnapshot,
    RecordingData,
)
from aotviz.recording.strings import clean, cleaned

MAGIC = b"\x93AOTVIZ\n"
HEADER_BYTES = len(MAGIC) + 2
LIMIT_BYTES = 1 << 28  # of msgpack, after decompression
USUAL_BYTES, USUAL_TIMES = 1 << 25, 100  # what a file may decompress to, whichever is more; ours, to 15 times its size
MOST_PARTS = 1 << 24  # texts, lists and records of a recording: each takes up to 70 bytes of memory, and 1 in the file
HEADS = bytes([*range(0x80, 0xC0), *range(0xD9, 0xE0)])  # the bytes with which msgpack begins each of them
OPS = frozenset("pfmcao")
GZIP = 16 + zlib.MAX_WBITS
MOST_OF_DAMAGE = 300  # characters of its description
MOST_NESTED = 200  # lists in lists, of a node's arguments; readers recurse into them


class RecordingError(ValueError):
    """A recording could not be read or written. The message names the file and says what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(clean(message))  # it may quote the file


class Damage(Exception):
    """What is wrong inside a recording. `read` turns it into a RecordingError that names the file."""


class _Envelope(msgspec.Struct):
    """The two fields that every version has. They are checked before the rest is decoded."""

    format: str = ""
    version: int = 0


def pack(data: RecordingData) -> bytes:
    """The recording as gzip(msgpack): what a widget or page receives, and what follows the header in a file."""
    return zlib.compress(msgspec.msgpack.encode(data), 6, GZIP)


def unpack(packed: bytes, limit_bytes: int = LIMIT_BYTES) -> RecordingData:
    """The inverse of `pack`. Raises Damage if the bytes are not a valid recording."""
    plain = decompressed(packed, min(limit_bytes, max(USUAL_BYTES, USUAL_TIMES * len(packed))))
    if len(plain) - len(plain.translate(None, HEADS)) > MOST_PARTS:  # at least so many, as texts have such bytes too
        raise Damage(f"it has more than {MOST_PARTS >> 20} million texts, lists and records")
    try:
        envelope = msgspec.msgpack.decode(plain, type=_Envelope)
        if envelope.format != FORMAT:
            raise Damage("its content is not a recording")
        if not 1 <= envelope.version <= VERSION:
            raise Damage(f"its content has format {envelope.version}, and this aotviz reads format {VERSION}")
        data = cleaned(replace(msgspec.msgpack.decode(plain, type=RecordingData), version=VERSION))
        check(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damage(str(error)[:200] or type(error).__name__) from None
    return replace(data, overview=None, peaks=[], step=None)  # they are found again, from what is read


def decompressed(packed: bytes, limit_bytes: int, form: int = GZIP) -> bytes:
    """The content of compressed bytes, of which nothing is left over. Raises Damage, also if it is longer."""
    stretch = zlib.decompressobj(form)
    try:
        plain = stretch.decompress(packed, limit_bytes + 1)
    except zlib.error as error:
        raise Damage(f"it cannot be decompressed ({error})") from None
    if len(plain) > limit_bytes:
        raise Damage(f"its decompressed size is more than {limit_bytes >> 20} MiB")
    if not stretch.eof:
        raise Damage("it ends too early")
    if stretch.unused_data:
        raise Damage(f"{len(stretch.unused_data)} bytes follow its end")
    return plain


def write(data: RecordingData, path: str | os.PathLike[str]) -> None:
    """Write a recording to a file, atomically: an existing file stays until the new one is on disk."""
    replace_file(path, MAGIC + VERSION.to_bytes(2, "big") + pack(data))


def replace_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to `path` atomically. Raises RecordingError if the path cannot be written."""
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with open(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o666 & ~_umask())  # mkstemp's own mode would hide the file from colleagues
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise RecordingError(
            f"{target}: cannot be written ({reason}). Choose a folder that you can write to."
        ) from error


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def read(path: str | os.PathLike[str], limit_bytes: int = LIMIT_BYTES) -> RecordingData:
    """Read a recording from a file. Raises RecordingError for anything that is wrong with the file."""
    target = Path(path)
    try:
        with open(target, "rb") as file:
            header = file.read(HEADER_BYTES)
            packed = file.read(limit_bytes + 1) if header.startswith(MAGIC) else b""
    except FileNotFoundError:
        raise RecordingError(f"{target}: there is no such file. Check the path that you passed to `save`.") from None
    except OSError as error:
        raise RecordingError(f"{target}: cannot be read ({error.strerror or error}).") from error
    if header and len(header) < HEADER_BYTES and MAGIC.startswith(header[: len(MAGIC)]):
        raise RecordingError(f"{target}: the file ends too early. Copy it again, or save the recording again.")
    if not header.startswith(MAGIC):
        what = (
            " but gzip: a compressed file, or the bytes of `recording.to_bytes()`"
            if header.startswith(b"\x1f\x8b")
            else ""
        )
        raise RecordingError(f"{target}: not an aotviz recording{what}. Open a file that `recording.save(path)` wrote.")
    version = int.from_bytes(header[len(MAGIC) :], "big")
    if version > VERSION:
        raise RecordingError(
            f"{target}: written in format {version} by a newer aotviz; this one reads up to {VERSION}. Upgrade aotviz."
        )
    try:
        if version < 1:
            raise Damage("its header says format 0")
        return unpack(packed, limit_bytes)
    except Damage as damage:
        what = one_line(str(damage)[:MOST_OF_DAMAGE])  # it may have names from the file
        raise RecordingError(
            f"{target}: the recording is damaged: {what}. Copy the file again, or save the recording again."
        ) from None


def check(data: RecordingData) -> None:
    """Check that every number refers to something that exists, and that column lengths agree. Raises Damage."""
    texts = len(data.strings)
    ids = [compilation.id for compilation in data.compilations]
    if len(set(ids)) != len(ids):
        raise Damage("two compilations have the same id")
    if data.dropped < 0:
        raise Damage("its number of dropped compilations is negative")
    for compilation in data.compilations:
        _check_compilation(compilation, texts, f"compilation {compilation.id}")
        _within([compilation.log], len(data.logs), f"compilation {compilation.id}, log")
    _check_logged(data, texts)
    for painting in data.paintings:
        columns = [painting.stages, painting.graphs, painting.numbers or painting.texts]
        if any(len(column) != len(painting.names) for column in columns):
            raise Damage(f"painting {painting.label}: a column has not one entry for each of its names")


def _check_compilation(compilation: CompilationData, texts: int, where: str) -> None:
    for number, value in enumerate(compilation.values):
        at = f"{where}, value {number}"
        _within(numbers.of(value), texts, at)
        _within(value.parts, number, f"{at}, parts")  # only earlier values, so that no value contains itself
    for number, graph in enumerate(compilation.graphs):
        _check_graph(graph, texts, len(compilation.values), f"{where}, graph {number}")
    for stage in compilation.stages:
        _within(stage.graphs.values(), len(compilation.graphs), f"{where}, stage {stage.name}", least=0)
    _within(numbers.of(replace(compilation, graphs=[], values=[])), texts, where)  # those were checked above
    for number, storage in enumerate(compilation.storages):
        at, tensors = f"{where}, storage {number}", len(storage.tensors)
        for index, tensor in enumerate(storage.tensors):  # only earlier tensors, so that no chain of views is a cycle
            _within([tensor.view_of], index, f"{at}, tensor {index}")
        _within([write.tensor for write in storage.writes], tensors, f"{at}, writes", least=0)
    run = compilation.run
    if run is not None:
        _within((n for event in run.events for n in (event.tensor, event.of)), len(run.tensors), f"{where}, run")
    for visit in compilation.visits:
        _within(visit.waits_for, len(compilation.visits), f"{where}, visits", least=0)
    notes = compilation.wrapper.notes if compilation.wrapper else []
    if any(not 1 <= note.first <= note.last for note in notes):
        raise Damage(f"{where}: a note of the wrapper is about a line that does not exist")


def _check_logged(data: RecordingData, texts: int) -> None:
    """Check the rows of the lists (texts, logs and compilations exist), and the columns of the timeline."""
    for field in RecordingData.__struct_fields__:
        rows = getattr(data, field)
        if field in ("strings", "compilations", "notes") or not isinstance(rows, list):
            continue
        for number, row in enumerate(rows):
            _within(numbers.of(row), texts, f"{field}, row {number}")
            origin = getattr(row, "origin", None)
            if origin is not None:
                _within([origin.log], len(data.logs), f"{field}, row {number}, log")
                _within([origin.compilation], len(data.compilations), f"{field}, row {number}, compilation")
    events = data.events
    rows = len(events.name)
    for column in EventTable.__struct_fields__:
        if len(getattr(events, column)) != rows:
            raise Damage(f"events: {column} has {len(getattr(events, column))} entries for {rows} events")
    _within(numbers.of(events), texts, "events")
    _within(events.parent, rows, "events, parent")
    _within(events.compilation, len(data.compilations), "events, compilation")
    _within(events.log, len(data.logs), "events, log")


def _check_graph(graph: GraphSnapshot, texts: int, values: int, where: str) -> None:
    nodes = len(graph.op)
    for column in ("name", "target", "args", "value", "stack", "module", "sequence", "backward"):
        if len(getattr(graph, column)) != nodes:
            raise Damage(f"{where}: {column} has {len(getattr(graph, column))} entries for {nodes} nodes")
    if not OPS.issuperset(graph.op) or not {"0", "1"}.issuperset(graph.backward):
        raise Damage(f"{where}: a node of an unknown kind")
    _within(graph.name, texts, f"{where}, name", least=0)
    _within(graph.target, texts, f"{where}, target", least=0)
    for column in ("stack", "module", "output_descriptors"):
        _within(getattr(graph, column), texts, f"{where}, {column}")
    _within(graph.descriptor.values(), texts, f"{where}, descriptor")
    _within(graph.value, values, f"{where}, value")
    _within(graph.sequence, 1 << 63, f"{where}, sequence")
    _within(graph.descriptor, nodes, f"{where}, descriptor", least=0)
    _within(graph.kwargs, nodes, f"{where}, kwargs", least=0)
    _within(graph.checkpoint, nodes, f"{where}, checkpoint", least=0)
    if any(len(tag) != 2 for tag in graph.checkpoint.values()):
        raise Damage(f"{where}: a checkpoint is a tag and a region")
    for index, args in enumerate(graph.args):
        if type(args) is not list:
            raise Damage(f"{where}, node {index}: its arguments are not a list")
        for arg in args:
            _check_argument(arg, index, texts, where)
    for index, named in graph.kwargs.items():
        _check_named(named, index, texts, where)


def _check_argument(arg: Any, index: int, texts: int, where: str, depth: int = 0) -> None:
    """Check an argument of node `index`: its form is known, and it refers only to earlier nodes and existing texts."""
    if depth > MOST_NESTED:
        raise Damage(f"{where}, node {index}: an argument is nested more than {MOST_NESTED} deep")
    kind = type(arg)
    if arg is None or kind is int or kind is bool or kind is float or kind is str:
        return
    if kind is list and len(arg) == 1 and type(arg[0]) is int:
        if 1 <= arg[0] <= index:
            return
        raise Damage(f"{where}, node {index}: an argument refers to a node {arg[0]} nodes before it")
    if kind is list and arg and arg[0] == "L":
        for part in arg[1:]:
            _check_argument(part, index, texts, where, depth + 1)
        return
    if kind is dict and len(arg) == 1:
        ((tag, content),) = arg.items()
        if tag == "r" and type(content) is int and 0 <= content < texts:
            return
        if tag == "d":
            return _check_named(content, index, texts, where, depth + 1)
        if tag == "s" and type(content) is list and len(content) == 3:
            for part in content:
                _check_argument(part, index, texts, where, depth + 1)
            return
    raise Damage(f"{where}, node {index}: an argument of an unknown form")


def _check_named(named: Any, index: int, texts: int, where: str, depth: int = 0) -> None:
    if type(named) is not dict or not all(type(key) is str for key in named):
        raise Damage(f"{where}, node {index}: named arguments without names")
    for arg in named.values():
        _check_argument(arg, index, texts, where, depth)


def _within(indices: Iterable[int], size: int, where: str, least: int = NONE) -> None:
    indices = list(indices)
    if indices and not (least <= min(indices) and max(indices) < size):
        wrong = next(index for index in indices if not least <= index < size)
        raise Damage(f"{where}: points at {wrong}, of {size}")
