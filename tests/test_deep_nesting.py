"""Deep nesting in a log or a recording is read or refused in a sentence; there is no RecursionError."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

import aotviz
from aotviz import RecordingError
from aotviz.recording import files
from aotviz.recording.schema import VERSION, EventTable
from tests.recorder.strategies import small

START = 'V0701 12:00:00.000000 7 a.py:1] {"dynamo_start": {}, "frame_id": 0, "frame_compile_id": 0}\n'
IDS = '"frame_id": 0, "frame_compile_id": 0'


def looked_at(recording: aotviz.Recording, folder: Path) -> None:
    assert str(recording)
    assert str(recording.explain())
    assert len(recording.timeline())
    assert recording.plot_timeline()
    for compilation in recording:
        assert recording.explain(compilation.id).title
        for stage in compilation.data.stages:
            for role in stage.graphs:
                assert compilation.graph(role, stage=stage.name).rows
    recording.to_html(folder / "page.html")
    recording.save(folder / "saved.aotviz")
    assert len(aotviz.load(folder / "saved.aotviz")) == len(recording)


def log(folder: Path, lines: str) -> aotviz.Recording:
    path = folder / "a.log"
    path.write_text(START + lines)
    return aotviz.read_trace(path, index=False)


@pytest.mark.parametrize("depth", [600, 3000])
def test_spans_in_spans(depth: int, tmp_path: Path) -> None:
    events = [("B", n, n) for n in range(depth)] + [("E", n, 2 * depth - n) for n in reversed(range(depth))]
    lines = "".join(
        f'V0701 12:00:00.000000 7 a.py:1] {{"chromium_event": {{}}, {IDS}}}\n'
        f"\t{json.dumps({'name': f'span {n}', 'ph': ph, 'ts': float(at)})}\n"
        for ph, n, at in events
    )
    recording = log(tmp_path, lines)
    assert len(recording.events) == depth
    assert len(recording.timeline("0/0")) >= 600
    looked_at(recording, tmp_path)


@pytest.mark.parametrize("depth", [80, 900, 50_000])
def test_arguments_in_arguments_of_a_printed_graph(depth: int, tmp_path: Path) -> None:
    graph = (
        f"class G:\n    def forward(self, x):\n        y = f({'[' * depth}x{']' * depth});  x = None\n        return y"
    )
    payload = graph.replace("\n", "\n\t")
    looked_at(
        log(tmp_path, f'V0701 12:00:00.000000 7 a.py:1] {{"aot_joint_graph": {{}}, {IDS}}}\n\t{payload}\n'), tmp_path
    )


@pytest.mark.parametrize("depth", [150, 900, 50_000])
@pytest.mark.parametrize("kind", ['"artifact": {"name": "fx_graph_cache_miss"}', '"artifact": {"name": "x"}', '"x": 3'])
def test_json_in_json(kind: str, depth: int, tmp_path: Path) -> None:
    deep = '{"key": "k", "components": [], "inductor_config": %s}' % ("[" * depth + "]" * depth)
    looked_at(log(tmp_path, f"V0701 12:00:00.000000 7 a.py:1] {{{kind}, {IDS}}}\n\t{deep}\n"), tmp_path)
    looked_at(log(tmp_path, f'V0701 12:00:00.000000 7 a.py:1] {{{kind}, "y": {deep}, {IDS}}}\n'), tmp_path)


@pytest.mark.parametrize(("depth", "is_read"), [(100, True), (199, True), (300, False), (900, False), (20_000, False)])
@pytest.mark.parametrize("tag", ["L", "d", "s"])
def test_arguments_in_arguments_of_a_recording(tag: str, depth: int, is_read: bool, tmp_path: Path) -> None:
    data = small()
    graph = data.compilations[0].graphs[0]
    args = [*graph.args[:-1], ["HERE"]]
    compilation = replace(data.compilations[0], graphs=[replace(graph, args=args), *data.compilations[0].graphs[1:]])
    before, after = {"L": (b"\x92\xa1L", b""), "d": (b"\x81\xa1d\x81\xa1k", b""), "s": (b"\x81\xa1s\x93\xc0", b"\xc0")}[
        tag
    ]
    plain = msgspec.msgpack.encode(replace(data, compilations=[compilation]))
    plain = plain.replace(b"\xa4HERE", before * depth + b"\x91\x01" + after * depth)
    path = tmp_path / "deep.aotviz"
    path.write_bytes(files.MAGIC + VERSION.to_bytes(2, "big") + gzip.compress(plain))
    if is_read:
        looked_at(aotviz.load(path), tmp_path)
        return
    with pytest.raises(RecordingError, match=r"nested more than 200 deep|recursion"):
        aotviz.load(path)


def test_spans_of_a_recording_that_are_each_others_parents(tmp_path: Path) -> None:
    """A chain of 5000, and a circle."""
    for parents in ([-1, *range(4999)], [(number + 1) % 5000 for number in range(5000)]):
        same, zeros = [-1] * 5000, [0.0] * 5000
        columns = ([0] * 5000, zeros, zeros, parents, same, same, same, same, same)
        data = replace(small(), events=EventTable(*columns))
        path = tmp_path / "deep.aotviz"
        files.write(data, path)
        looked_at(aotviz.load(path), tmp_path)
