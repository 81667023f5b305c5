"""`aotviz explain` and `aotviz report` on a bare folder of logs; and that neither they nor the answers need torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aotviz.__main__ import main
from aotviz.explain import answers, page
from aotviz.explain.timeline import Span
from tests import corpus
from tests.explain.logs import recording


def test_explain_prints_the_costliest_cause_of_a_bare_folder_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(corpus.folder("recompile_limit"))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("22 compilations of 2 functions, 20 of them recompiles")
    assert lines[2].startswith("- `self.steps_done` caused 16 of the 20 recompiles")


def test_explain_tells_of_one_compilation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(corpus.folder("recompile_limit")), "-c", "1/2"]) == 0
    assert "`batch.dtype` was float32 and is now float64" in capsys.readouterr().out
    assert main(["explain", str(corpus.folder("recompile_limit")), "-c", "9/9"]) == 2
    assert capsys.readouterr().err.startswith("aotviz explain: no compilation '9/9' in this recording")


def test_explain_compares_two_runs(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = str(corpus.folder("cache_first")), str(corpus.folder("cache_second"))
    assert main(["explain", second, "--earlier", first]) == 0
    assert "the shape of `x` was `(5,)` and is now" in " ".join(capsys.readouterr().out.split())


def test_explain_says_how_much_it_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(corpus.folder("recompiles_values"))]) == 0
    printed = capsys.readouterr().out
    left = printed.splitlines()[-1]
    assert left.endswith("more: --all)")
    assert main(["explain", str(corpus.folder("recompiles_values")), "--all"]) == 0
    assert len(capsys.readouterr().out) > len(printed)


def test_report_of_a_folder_refuses_to_write_over_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "report.html"
    command = ["report", str(corpus.folder("ranks")), "-o", str(target)]
    assert main(command) == 0
    written = target.read_text()
    assert "different collectives in <code>reduce_loss</code>" in written
    target.write_text("mine")
    assert main(command) == 2
    assert "--force" in capsys.readouterr().err
    assert target.read_text() == "mine"
    assert main([*command, "--force"]) == 0
    assert target.read_text() == written


def test_report_of_a_bare_folder_is_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "one.log").write_bytes(next(corpus.folder("errors").iterdir()).read_bytes())
    assert main(["report", str(folder)]) == 0
    assert (tmp_path / "traces.html").exists()


@pytest.mark.parametrize("command", ["explain", "report", "show"])
def test_a_folder_without_logs_is_a_line_a_list_of_what_to_do_and_status_2(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"aotviz {command}: ")
    first, todo, *items = said.splitlines()
    assert "not a log of torch's structured trace" in first
    assert todo.startswith("What to do")
    assert len(items) > 3
    assert all(item.startswith(("- ", "  ")) for item in items)


def test_explaining_needs_no_torch() -> None:
    program = (
        "import sys, aotviz\n"
        f"recording = aotviz.read_trace({str(corpus.folder('ranks'))!r}, index=False)\n"
        "print(len(str(recording.explain())), len(recording.recompiles()), len(recording.cache_misses()))\n"
        "recording.timeline(), recording.rank_differences(), recording.plot_timeline()\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_page_escapes_what_a_log_says() -> None:
    top = Span("all", ("all",), 1.0)
    top.child("<script>alert(1)</script>").seconds = 0.9
    drawn = page.icicle(top)
    assert "<script>" not in drawn
    assert "&lt;script&gt;" in drawn


def test_the_page_of_a_recording_holds_the_tables_and_the_drawing() -> None:
    above = page.preamble(recording("training"), answers.facts_of(recording("training")))
    for part in ("<svg", "All recompiles", "All cache lookups", "entire_frame_compile", "What to do:"):
        assert part in above
    assert "<script" not in above


def test_the_text_of_a_page_begins_as_explain_does() -> None:
    for one in (recording("training"), recording("errors")):
        above = page.preamble(one, answers.facts_of(one))
        first = answers.overall(answers.facts_of(one))
        assert above.index(first._repr_html_()) < 200
