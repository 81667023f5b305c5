"""The promise of the house: a new stage is one file and one line. The file is the one that the docs print."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

import aotviz
from aotviz import pipeline
from aotviz.pipeline import Stage

PAGE = Path(__file__).resolve().parents[1] / "docs" / "adding-a-stage.md"


def from_the_docs() -> tuple[ModuleType, str]:
    """The page's stage, as a module, and the line that names it."""
    file, line = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    module = ModuleType("count_matmuls")
    exec(compile(file, str(PAGE), "exec"), module.__dict__)
    return module, line


def test_one_file_and_one_line_make_a_stage_that_runs_and_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    count_matmuls, line = from_the_docs()
    added = eval(f"({line})", {"Stage": Stage, "count_matmuls": count_matmuls})
    stages = list(pipeline.TRAINING)
    position = [stage.name for stage in stages].index("partition")
    stages[position:position] = added
    monkeypatch.setattr(pipeline, "TRAINING", tuple(stages))

    weight = torch.randn(3, 3, requires_grad=True)
    compiled = aotviz.compile(lambda x, w: (x @ w).sin(), backend="eager", debug=True)
    x = torch.randn(2, 3)
    assert torch.allclose(compiled(x, weight), (x @ weight).sin())
    rows = compiled.recording[0].stages.set_index("stage")
    assert not rows.loc["count matmuls", "changed"]
    assert rows.loc["count matmuls", "form"] == "JointGraph"
    assert list(rows.index).index("count matmuls") == list(rows.index).index("partition") - 1
