"""A new stage is one file and one line: both are run exactly as docs/adding-a-stage.md prints them."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

import aotviz
from aotviz import pipeline
from aotviz.pipeline import Role, Stage

PAGE = Path(__file__).resolve().parents[1] / "docs" / "adding-a-stage.md"


def from_the_docs() -> tuple[ModuleType, str, str]:
    """The page's stage, as a module; the line that names it; what a user runs to see what it found."""
    file, line, use = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[:3]
    module = ModuleType("count_matmuls")
    exec(compile(file, str(PAGE), "exec"), module.__dict__)
    return module, line, use


@pytest.fixture
def count_matmuls(monkeypatch: pytest.MonkeyPatch) -> str:
    """The stage of the page is in the pipeline. Returns what a user runs."""
    module, line, use = from_the_docs()
    added = eval(f"({line})", {"Stage": Stage, "Role": Role, "count_matmuls": module})
    stages = list(pipeline.TRAINING)
    position = [stage.name for stage in stages].index("partition")
    stages[position:position] = added
    monkeypatch.setattr(pipeline, "TRAINING", tuple(stages))
    return use


def test_the_file_and_the_line_of_the_page_make_a_stage_that_runs_and_is_recorded(count_matmuls: str) -> None:
    weight = torch.randn(3, 3, requires_grad=True)
    compiled = aotviz.compile(lambda x, w: (x @ w).sin(), backend="eager", debug=True)
    x = torch.randn(2, 3)
    assert torch.allclose(compiled(x, weight), (x @ weight).sin())
    rows = compiled.recording[0].stages.set_index("stage")
    assert not rows.loc["count matmuls", "changed"], "it counts, and leaves the graph as it is"
    assert rows.loc["count matmuls", "form"] == "JointGraph"
    assert rows.loc["count matmuls", "evidence"] == 1
    assert list(rows.index).index("count matmuls") == list(rows.index).index("partition") - 1


def test_the_recording_shows_the_count_as_the_page_prints_it(
    count_matmuls: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(count_matmuls, str(PAGE), "exec"), {"torch": torch, "aotviz": aotviz})
    printed = re.findall(r"print\(.*\)  # (.*)", count_matmuls)
    assert capsys.readouterr().out.splitlines() == printed == ["2 matrix multiplications"]
