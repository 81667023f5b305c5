"""Nothing of a stranger's log or recording that a terminal would obey reaches one: not printed, and not in an error."""

from __future__ import annotations

import gzip
from pathlib import Path

import pandas as pd
import pytest

import aotviz
from aotviz import RecordingError
from aotviz.__main__ import main
from aotviz.reading.recording import Recording
from aotviz.recording import files, log_tables
from aotviz.recording.schema import VERSION
from tests import corpus, hostile
from tests.recorder.strategies import small


def cells(table: pd.DataFrame) -> str:
    """All that a table may print, without the time that laying it out takes."""
    return "\n".join(map(str, [*table.index, *table.columns, *table.to_numpy().ravel()]))


def said(recording: Recording) -> str:
    """All that a reader may print of a recording."""
    data, texts = recording.rows
    parts = [str(recording), repr(recording), str(recording.notes), str(recording.data_producer), str(recording.logs)]
    for table in (recording.recompiles(), recording.cache_misses(), recording.rank_differences(), recording.timeline()):
        parts.append(cells(table))
    for field in log_tables.LISTS:
        parts.append(cells(log_tables.rows(data, texts, field)))
    told = recording.explain()
    parts += [str(told), told.source, told.fix, *told.sentences]
    first = recording.overview()
    parts += [str(first), cells(first.causes), cells(first.functions), str(first.times)]
    for wrong in (recording.explain, recording.__getitem__):
        with pytest.raises(LookupError) as caught:
            wrong("no such id")
        parts.append(str(caught.value))
    for compilation in recording.compilations[:3]:
        parts += [compilation.name, compilation.id, repr(compilation), str(compilation), str(compilation.data)]
        parts += [str(recording.explain(compilation.id)), cells(compilation.stages)]
        parts += [cells(compilation.inputs), cells(compilation.outputs)]
        with pytest.raises(LookupError) as caught:
            compilation.graph("no such graph")
        parts.append(str(caught.value))
        for stage in compilation.data.stages:
            for role in stage.graphs:
                graph = compilation.graph(role, stage=stage.name)
                parts += [repr(graph), graph.code, cells(graph.nodes)]
    return "\n".join(parts)


def check(path: Path, capsys: pytest.CaptureFixture[str], where: str) -> None:
    for command in ("show", "explain"):
        status = main([command, str(path)])
        out, err = capsys.readouterr()
        assert not hostile.obeyed(out + err), (where, command)
        assert status in (0, 2), (where, command)
    try:
        recording = aotviz.load(path) if path.suffix == ".aotviz" else aotviz.read_trace(path, index=False)
    except RecordingError as error:
        told = str(error)
    else:
        told = said(recording)
    assert not hostile.obeyed(told), where


@pytest.mark.parametrize("name", ["", pytest.param("errors", marks=pytest.mark.slow)])
def test_each_text_of_a_recording_is_shown_and_not_sent(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a small recording, and of one with all that a log says."""
    path = tmp_path / "evil.aotviz"
    places = 0
    data = aotviz.read_trace(corpus.folder(name), index=False).data if name else small()
    for where, plain in hostile.recordings(data, each_string=not name):
        path.write_bytes(files.MAGIC + VERSION.to_bytes(2, "big") + gzip.compress(plain))
        check(path, capsys, where)
        places += 1
    assert places > 40


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("graph_breaks", 20),
        *(
            pytest.param(n, step, marks=pytest.mark.slow)
            for n, step in (("errors", 1), ("graph_breaks", 1), ("ranks", 4))
        ),
    ],
)
def test_each_text_of_a_log_is_shown_and_not_sent(
    name: str, step: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "evil.log"
    content = hostile.shortened(sorted(corpus.folder(name).iterdir())[0].read_text())
    for where, text in list(hostile.logs(content))[::step]:
        path.write_text(text)
        check(path, capsys, where)


def test_the_name_of_a_file_is_shown_and_not_sent(tmp_path: Path) -> None:
    path = tmp_path / f"a{hostile.EVIL}.log"
    with pytest.raises(RecordingError) as missing:
        aotviz.read_trace(path)
    assert not hostile.obeyed(str(missing.value))
    path.write_text('V0701 12:00:00.000000 7 a.py:1] {"dynamo_start": {}, "frame_id": 0, "frame_compile_id": 0}\n')
    (tmp_path / f"b{hostile.EVIL}").write_text("nothing")
    recording = aotviz.read_trace(tmp_path)
    assert not hostile.obeyed(said(recording))
    assert "\\u001b[2J" in recording.notes[0]
