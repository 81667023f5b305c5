"""A new stage is one file and one line: both are run exactly as docs/adding-a-stage.md prints them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

import aotviz
from aotviz import pipeline
from aotviz.ir.forms import Form
from aotviz.pipeline import Stage

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
    added = eval(f"({line})", {"Stage": Stage, "count_matmuls": module})
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


@pytest.mark.parametrize("after", ["partition", "donated buffers", "lower", "link"])
@pytest.mark.parametrize("training", [True, False])
def test_a_stage_in_any_place_leaves_the_cache_on(
    after: str, training: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = []

    def run(form: Form) -> Form:
        seen.append(type(form).__name__)
        return replace(form, evidence=())

    for name in ("TRAINING", "INFERENCE"):
        stages = list(getattr(pipeline, name))
        position = next((i for i, stage in enumerate(stages) if stage.name == after), None)
        if position is not None:
            stages.insert(position + 1, Stage("added", run))
            monkeypatch.setattr(pipeline, name, tuple(stages))
    outcomes = []
    for _ in range(2):
        torch._dynamo.reset()
        compiled = aotviz.compile(lambda x: x.sin() * 2, backend="eager", cache=tmp_path)
        x = torch.ones(3, requires_grad=training)
        result = compiled(x)
        assert torch.equal(result, x.sin() * 2)
        if training:
            result.sum().backward()
            assert torch.allclose(x.grad, x.cos() * 2)
        outcomes += list(compiled.recording.cache_lookups.outcome)
    assert outcomes == ["miss", "hit"]
    if training or after in ("lower", "link"):
        assert len(seen) == (2 if after in ("lower", "link") else 1), "a hit runs the stages from 'lower' on"
