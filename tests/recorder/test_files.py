"""A file holds what was saved, and a file that doesn't is refused in one clear sentence."""

from __future__ import annotations

import gzip
import os
import pickle
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from aotviz.reading.recording import Recording, RecordingError, load
from aotviz.recording import files, log_tables
from aotviz.recording.schema import (
    NONE,
    VERSION,
    EventTable,
    LogRecord,
    Origin,
    RecompileReason,
    RecompileRecord,
    RecordingData,
)
from aotviz.recording.strings import cleaned
from tests.recorder.strategies import recordings, small

relaxed = settings(
    derandomize=True,
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def in_a_file(plain: bytes, version: int = 1) -> bytes:
    return files.MAGIC + version.to_bytes(2, "big") + gzip.compress(plain)


def outcome(path: Path, content: bytes) -> RecordingData | None:
    """The recording in a file of this content, or None if it was refused as it should be."""
    path.write_bytes(content)
    try:
        return load(path).data
    except RecordingError as error:
        message = str(error)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert len(message) < 600
    return None


@relaxed
@given(recordings())
def test_what_is_saved_is_what_is_loaded(tmp_path: Path, data: RecordingData) -> None:
    path = tmp_path / "r.aotviz"
    Recording(data).save(path)
    told = {name: getattr(data, name) for name in ("rank_differences", "why", "plain")}  # saving computes these
    assert replace(load(path).data, **told) == cleaned(data)


@relaxed
@given(recordings())
def test_every_valid_recording_can_be_looked_at(data: RecordingData) -> None:
    recording = Recording(data)
    assert "Recording of" in str(recording)
    assert len(recording.logs) == len(data.logs)
    assert len(recording.events) == len(data.events.name)
    for field in log_tables.LISTS:
        table = log_tables.rows(data, data.strings, field)
        records = getattr(data, field)
        many = sum(len(record.reasons) for record in records) if field == "recompiles" else len(records)
        assert len(table) == many, field
        assert list(table.columns[:6]) == list(log_tables.WHENCE), field
    for compilation in recording:
        assert len(compilation.stages) == len(compilation.data.stages)
        assert len(compilation.inputs) == len(compilation.data.inputs)
        assert len(compilation.outputs) == len(compilation.data.outputs)
        assert len(compilation.saved_tensors) == len(compilation.data.saved_tensors)
        for stage in compilation.data.stages:
            for role in stage.graphs:
                graph = compilation.graph(role, stage=stage.name)
                assert len(graph.nodes) == len(graph)
                assert str(graph)
                assert graph.to_graphviz().source.startswith("digraph")


@pytest.mark.parametrize("number", ["²", "0/²", "0/" + "9" * 5000], ids=("power", "count", "long"))
def test_a_recording_with_a_number_that_int_does_not_take_can_be_looked_at(number: str) -> None:
    data = small()
    frame = f'File "a.py", line {number}, in f'
    odd = [replace(one, compile_id=number, stack=len(data.strings)) for one in data.compilations]
    assert str(Recording(replace(data, compilations=odd, strings=[*data.strings, frame])).explain())


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.aotviz"
    Recording(small()).save(path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        assert outcome(path, whole[:length]) is None, length


def test_every_flipped_byte_is_refused_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "r.aotviz"
    Recording(small()).save(path)
    whole = path.read_bytes()
    for position in range(len(whole)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(whole)
            damaged[position] ^= flip
            found = outcome(path, bytes(damaged))
            assert found is None or found == small(), (position, flip)


@relaxed
@given(st.data())
def test_damage_below_the_checksum_is_refused_or_still_consistent(tmp_path: Path, data: Any) -> None:
    plain = bytearray(msgspec.msgpack.encode(small()))
    for _ in range(data.draw(st.integers(1, 3))):
        plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
    found = outcome(tmp_path / "r.aotviz", in_a_file(bytes(plain)))
    if found is not None:
        for compilation in Recording(found):
            str(compilation)
            for stage in compilation.data.stages:
                for role in stage.graphs:
                    assert compilation.graph(role, stage=stage.name).rows is not None


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"\x89PNG\r\n\x1a\n" + bytes(50), gzip.compress(b"hello"), pickle.dumps({"format": "aotviz"})],
    ids=["empty", "text", "image", "gzip", "pickle"],
)
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.aotviz"
    path.write_bytes(content)
    packed = (
        r" but gzip: a compressed file, or the bytes of `recording\.to_bytes\(\)`"
        if content.startswith(b"\x1f\x8b")
        else ""
    )
    with pytest.raises(RecordingError, match=rf"r\.aotviz: not an aotviz recording{packed}\. Open a file that"):
        load(path)


def test_a_newer_file_says_to_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "r.aotviz"
    path.write_bytes(in_a_file(b"whatever comes next", version=VERSION + 1))
    with pytest.raises(RecordingError, match=rf"written in format {VERSION + 1} by a newer aotviz.*Upgrade aotviz"):
        load(path)


def test_a_file_of_the_first_version_still_opens(tmp_path: Path) -> None:
    """It knows nothing of logs: what it lacks is empty."""
    new = msgspec.to_builtins(small())
    first = set(RecordingData.__struct_fields__[:6])
    old = {name: part for name, part in new.items() if name in first} | {"version": 1}
    for compilation in old["compilations"]:
        for name in ("compile_id", "attempts", "rank", "log", "stack", "graph_texts", "storages", "recomputed"):
            del compilation[name]
        for saved in compilation["saved_tensors"]:
            for name in ("consumers", "dies_at", "memory_of", "shares_with", "held_bytes", "held_until"):
                del saved[name]
    path = tmp_path / "r.aotviz"
    path.write_bytes(in_a_file(msgspec.msgpack.encode(old), version=1))
    assert load(path).data == small()


def test_rows_that_point_at_nothing_are_refused(tmp_path: Path) -> None:
    origin = Origin(log=0, line=1, compilation=0, attempt=0, unix_ns=0)
    log = LogRecord("a.log", NONE, 1, 1, {}, {}, [], 0, "", [])
    row = RecompileRecord(origin, [RecompileReason("0/0", 0, 0, 0, NONE, 0)])
    good = replace(small(), logs=[log], recompiles=[row])
    wrong = {
        "text": replace(good, recompiles=[replace(row, reasons=[RecompileReason("0/0", 999, 0, 0, NONE, 0)])]),
        "log": replace(good, logs=[]),
        "compilation": replace(good, recompiles=[replace(row, origin=replace(origin, compilation=1))]),
        "parent": replace(good, events=EventTable([0], [0.0], [1.0], [1], [0], [0], [1], [0], [NONE])),
        "column": replace(good, events=EventTable([0], [], [1.0], [NONE], [0], [0], [1], [0], [NONE])),
        "event": replace(good, events=EventTable([99], [0.0], [1.0], [NONE], [0], [0], [1], [0], [NONE])),
    }
    assert outcome(tmp_path / "good", in_a_file(msgspec.msgpack.encode(good))) == good
    for name, data in wrong.items():
        assert outcome(tmp_path / name, in_a_file(msgspec.msgpack.encode(data))) is None, name


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="there is no such file"):
        load(tmp_path / "none.aotviz")
    with pytest.raises(RecordingError, match="cannot be read"):
        load(tmp_path)


def test_an_error_is_a_value_error() -> None:
    assert issubclass(RecordingError, ValueError)


def test_a_bomb_is_not_unzipped() -> None:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = squeeze.compress(bytes(40_000_000)) + squeeze.flush()
    with pytest.raises(files.Damage, match="its decompressed size is more than 1 MiB"):
        files.unpack(bomb, limit_bytes=1 << 20)


def test_a_file_in_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.aotviz"
    Recording(small()).save(path)
    path.write_bytes(path.read_bytes() + path.read_bytes())
    with pytest.raises(RecordingError, match="bytes follow its end"):
        load(path)


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    tree = broken(args=[[], ["HERE"], [], []])
    head, tail = msgspec.msgpack.encode(tree).split(msgspec.msgpack.encode("HERE"))
    opened = msgspec.msgpack.encode(["L", None])[:-1]
    content = head + opened * 5000 + msgspec.msgpack.encode(["L"]) + tail
    assert outcome(tmp_path / "r.aotviz", in_a_file(content)) is None


def broken(**where: Any) -> dict[str, Any]:
    """The small recording as a plain tree, with fields of its first graph replaced."""
    tree = msgspec.msgpack.decode(msgspec.msgpack.encode(small()), strict=False)
    tree["compilations"][0]["graphs"][0].update(where)
    return tree


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ({"name": [0, 1, 6, 99]}, "name: points at 99, of 13"),
        ({"name": [0, 1, 6]}, "name has 3 entries for 4 nodes"),
        ({"target": [0, -1, 7, 3]}, "target: points at -1"),
        ({"value": [0, 1, 3, -1]}, "value: points at 3, of 3"),
        ({"args": [[], [[2]], [], []]}, "node 1: an argument refers to a node 2 nodes before it"),
        ({"args": [[], [[0]], [], []]}, "node 1: an argument refers to a node 0 nodes before it"),
        ({"args": [[], [{"r": 13}], [], []]}, "node 1: an argument of an unknown form"),
        ({"args": [[], [{"x": 1}], [], []]}, "node 1: an argument of an unknown form"),
        ({"args": [[], [[]], [], []]}, "node 1: an argument of an unknown form"),
        ({"args": [[], 3, [], []]}, "node 1: its arguments are not a list"),
        ({"op": "pxfo"}, "a node of an unknown kind"),
        ({"backward": "01"}, "backward has 2 entries for 4 nodes"),
        ({"backward": "0012"}, "a node of an unknown kind"),
        ({"kwargs": {4: {}}}, "kwargs: points at 4, of 4"),
        ({"kwargs": {0: {"a": [1]}}}, "node 0: an argument refers to a node 1 nodes before it"),
        ({"descriptor": {9: 0}}, "descriptor: points at 9"),
        ({"output_descriptors": [13]}, "output_descriptors: points at 13"),
        ({"sequence": ["a", 1, 2, 3]}, "Expected `int`"),
        ({"unheard_of": 1}, "unknown field"),
        ({"a\nb\x1b[31m": 1}, r"unknown field `a\nb\x1b[31m`"),
        ({"a" * 1000: 1}, "unknown field `aaa"),
    ],
)
def test_a_number_that_points_nowhere_is_refused(tmp_path: Path, where: dict[str, Any], what: str) -> None:
    path = tmp_path / "r.aotviz"
    path.write_bytes(in_a_file(msgspec.msgpack.encode(broken(**where))))
    with pytest.raises(RecordingError) as caught:
        load(path)
    assert what in str(caught.value)
    assert "Copy the file again, or save the recording again." in str(caught.value)


def test_a_value_that_contains_itself_is_refused(tmp_path: Path) -> None:
    tree = broken()
    tree["compilations"][0]["values"][1][8] = [1]
    assert outcome(tmp_path / "r.aotviz", in_a_file(msgspec.msgpack.encode(tree))) is None


def test_a_save_that_fails_leaves_the_earlier_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.aotviz"
    Recording(small()).save(path)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordingError, match=r"cannot be written \(No space left on device\)"):
        Recording(small("g")).save(path)
    assert load(path).data == small()
    assert os.listdir(tmp_path) == ["r.aotviz"]


def test_saving_into_no_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="Choose a folder"):
        Recording(small()).save(tmp_path / "none" / "r.aotviz")
