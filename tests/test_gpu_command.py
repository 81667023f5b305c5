"""What of `make gpu` can be tried without a GPU: what it says is missing, and what it keeps."""

from __future__ import annotations

import time

from benchmarks import results
from tests.gpu import __main__ as command
from tests.gpu import figures


def test_what_is_missing_is_named_with_the_command_that_brings_it(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(command, "NEEDED", ("torch", "a_package_that_nobody_wrote"))
    monkeypatch.setattr(command, "WHEELS", tmp_path)
    assert command.main([]) == 2
    said = capsys.readouterr().out
    assert "Missing here: a_package_that_nobody_wrote." in said
    assert "pip download" in said
    assert "-d .whl a_package_that_nobody_wrote" in said


def test_without_a_gpu_it_says_so_and_leaves_the_figures_alone(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("tests.gpu.THERE", False)
    monkeypatch.setattr(command, "WHEELS", tmp_path)
    assert command.main(["--folder", str(tmp_path / "figures")]) == 2
    assert "torch sees no GPU here" in capsys.readouterr().out
    assert not (tmp_path / "figures").exists()


def test_a_part_replaces_its_own_figures_and_leaves_the_others(monkeypatch, tmp_path):
    def part(case, figure):
        return lambda limit_s: iter([(results.Row(case, figure, None, {}, "ms"), figure > 1)])

    monkeypatch.setattr(figures, "PARTS", {"tests": part("tests: pass", 1.0), "step": part("step: gpt2", 2.0)})
    assert figures.gather(["tests", "step"], tmp_path) == 1
    monkeypatch.setattr(figures, "PARTS", {"step": part("step: gpt2", 0.9)})
    assert figures.gather(["step"], tmp_path) == 0
    rows = results.read(tmp_path / "gpu.json").rows
    assert {row.case: row.figure for row in rows} == {"tests: pass": 1.0, "step: gpt2": 0.9}


def test_tests_are_counted_from_pytests_report(tmp_path):
    report = tmp_path / "junit.xml"
    report.write_text('<testsuites><testsuite tests="7" failures="1" errors="1" skipped="2"/></testsuites>')
    assert figures.counted(report) == {"passed": 3.0, "failed": 2.0, "skipped": 2.0}


def test_a_part_that_takes_too_long_is_ended_with_its_children(tmp_path):
    started = time.monotonic()
    tests = tmp_path / "test_long.py"
    tests.write_text("import time\ndef test():\n    time.sleep(300)\n")
    assert figures._run("pytest", str(tests), limit_s=1) < 0
    assert time.monotonic() - started < 100
