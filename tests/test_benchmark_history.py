"""The history of the benchmarks is what was committed: one point for each time that a figure was measured."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks import history, results


def _commit(folder: Path, day: str, **figures: float) -> None:
    """Commit a file of results with these figures."""
    rows = [results.Row(case, figure, 1.0, {"ours": figure}, "s") for case, figure in figures.items()]
    results.write(results.result("calls", "about", "ours / torch", rows, {}), folder)
    git = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b.c"]
    when = {"GIT_AUTHOR_DATE": f"{day}T12:00:00Z", "GIT_COMMITTER_DATE": f"{day}T12:00:00Z"}
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "measured"], check=True, env=when)


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in which `training` was measured three times and `inference` once."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    _commit(tmp_path, "2026-11-21", training=0.5)
    _commit(tmp_path, "2026-11-22", training=0.4, inference=0.3)
    _commit(tmp_path, "2026-11-23", training=0.6, inference=0.3)
    return tmp_path / "calls.json"


def test_each_case_has_a_point_for_each_time_that_it_was_measured(measured: Path) -> None:
    found = history.of(measured)
    assert [(point.when[:10], point.figure) for point in found["training"]] == [
        ("2026-11-21", 0.5),
        ("2026-11-22", 0.4),
        ("2026-11-23", 0.6),
    ]
    assert [(point.when[:10], point.target) for point in found["inference"]] == [("2026-11-22", 1.0)]


def test_the_command_prints_what_was_measured_more_than_once(
    measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert history.main(["calls"]) == 0
    printed = capsys.readouterr().out
    assert "training: 0.500 (2026-11-21), 0.400 (2026-11-22), 0.600 (2026-11-23)" in printed
    assert "inference" not in printed


def test_an_unknown_file_of_results_is_named(measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        history.main(["speed"])
    assert "benchmarks/results has no speed; it has calls" in capsys.readouterr().err
