"""`latest` reads the logs of the latest run; and lines that could not be read are said where a reader looks first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import aotviz
from aotviz import RecordingError
from aotviz.__main__ import main

LINE = 'V0701 12:{minute:02}:00.000000 7 a.py:1] {{"dynamo_start": {{}}, "frame_id": {frame}, "frame_compile_id": 0}}\n'
NOON = 1_782_907_200  # 1 July 2026, 12:00


def log(folder: Path, name: str, begun: int, ended: int, frame: int = 0) -> Path:
    """A log that was written from one minute after noon to another."""
    path = folder / name
    path.write_text("".join(LINE.format(minute=minute, frame=frame) for minute in (begun, ended)))
    os.utime(path, (NOON + 60 * ended, NOON + 60 * ended))
    return path


def read(folder: Path) -> list[str]:
    return [Path(one.name).name for one in aotviz.read_trace(folder, latest=True).data.logs]


def test_the_log_that_was_written_last_is_the_latest(tmp_path: Path) -> None:
    for name, begun in (("c.log", 1), ("a.log", 9), ("b.log", 5)):
        log(tmp_path, name, begun, begun + 1)
    assert read(tmp_path) == ["a.log"]
    assert aotviz.read_trace(tmp_path, latest=True).notes == ["the logs of the latest run, 1 of 3: a.log"]
    assert len(aotviz.read_trace(tmp_path).data.logs) == 3


def test_the_latest_run_of_a_job_has_a_log_of_each_of_its_ranks_and_none_of_an_earlier_run(tmp_path: Path) -> None:
    for rank in range(4):
        log(tmp_path, f"trace_rank_{rank}_old.log", 0, 10)
    for rank, ended in ((0, 30), (1, 25)):  # with two ranks, of which one ended earlier
        log(tmp_path, f"trace_rank_{rank}_new.log", 20, ended)
    assert read(tmp_path) == ["trace_rank_0_new.log", "trace_rank_1_new.log"]


def test_without_a_path_the_folder_of_torch_trace_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCH_TRACE", str(tmp_path))
    log(tmp_path, "a.log", 1, 2, frame=3)
    log(tmp_path, "b.log", 3, 4, frame=5)
    assert [c.id for c in aotviz.read_trace(latest=True)] == ["5/0"]
    assert len(aotviz.read_trace()) == 2
    assert main(["show", "--latest"]) == 0
    shown = capsys.readouterr().out
    assert "[5/0]" in shown
    assert "[3/0]" not in shown
    assert "the logs of the latest run, 1 of 2: b.log" in shown
    assert main(["explain", "--latest"]) == 0
    assert capsys.readouterr().out.startswith("1 compilation of 1 function")
    monkeypatch.delenv("TORCH_TRACE")
    with pytest.raises(RecordingError, match="TORCH_TRACE names no folder"):
        aotviz.read_trace(latest=True)
    assert main(["explain"]) == 2
    assert "PATH is missing" in capsys.readouterr().err
    assert main(["explain", "--latest", "x.aotviz"]) == 2
    assert "is a recording" in capsys.readouterr().err


def test_explain_and_show_say_how_many_lines_are_damaged_and_which_is_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(tmp_path, "a.log", 1, 2)
    path.write_text(path.read_text() + "nonsense\nmore nonsense\n")
    said = f"2 lines are damaged in {path} (line 3: not a line of torch's trace); the rest was read."
    assert main(["explain", str(path)]) == 0
    title, *points = capsys.readouterr().out.splitlines()
    assert title.endswith("; 2 damaged lines")
    assert said in " ".join(line.strip() for line in points)
    assert main(["show", str(path)]) == 0
    assert said in capsys.readouterr().out
