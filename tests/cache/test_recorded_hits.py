"""From the cache's folder, a second process records what the first one did, and says why it misses."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

import aotviz
from aotviz.reading.recording import Recording
from tests.processes import run_script
from tests.recorder.test_replayed import comparable

SCRIPT = """
import os, sys
os.environ["AOTVIZ_CACHE_DIR"] = os.path.abspath("cache")
import torch, aotviz, aotviz.frontends.backend

def step(x, w):
    y = (x @ w).relu()
    return (y * {factor}).sum()

x, w = torch.ones(4, 8, dtype=torch.{dtype}), torch.ones(8, 2, dtype=torch.{dtype}, requires_grad=True)
with aotviz.record() as recording:
    torch.compile(step, backend="aotviz_eager")(x, w).backward()
recording.save(sys.argv[1])
"""


def run(folder: Path, name: str, dtype: str = "float32", factor: int = 2) -> Recording:
    (folder / "step.py").write_text(textwrap.dedent(SCRIPT.format(dtype=dtype, factor=factor)))
    done = run_script(folder / "step.py", name, cwd=folder)
    assert done.returncode == 0, done.stderr
    return aotviz.load(folder / name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hits")
    run(folder, "first.aotviz")
    return folder


def test_a_second_process_records_what_the_first_did(folder: Path) -> None:
    first, second = aotviz.load(folder / "first.aotviz"), run(folder, "second.aotviz")
    assert [row.outcome for row in second.cache_lookups.itertuples()] == ["hit"]
    one, other = comparable(first[0]), comparable(second[0])
    late = [stage.name for stage in one["stages"]].index("lower backward")  # it runs in each process
    assert other["stages"][:late] == one["stages"][:late]
    assert {key: other["graphs"][key] for key in one["graphs"]} == one["graphs"]
    assert other["wrapper"] == one["wrapper"]
    assert second[0].data.replayed is not None
    assert second[0].data.replayed.saved_ns > 0
    assert second.explain().sentences[0].startswith("1 program came from aotviz's cache, which saved ")


def test_another_dtype_is_named_with_the_users_line(folder: Path) -> None:
    (point,) = [one for one in run(folder, "dtype.aotviz", dtype="float64").explain().points if "cached" in one.text]
    assert "the dtype of `x` was `float32`, now `float64`" in point.text
    assert "the dtype of `w` was `float32`, now `float64`" in point.text


def test_other_code_is_named_with_the_line_that_changed(folder: Path) -> None:
    (point,) = [one for one in run(folder, "code.aotviz", factor=3).explain().points if "cached" in one.text]
    assert point.code == "return (y * 3).sum()"
    assert point.place.endswith("step.py:8")
