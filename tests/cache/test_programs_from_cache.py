"""Programs that another process compiled are what they were: equal to eager, with the same wrapper, and not traced."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import processes
from tests.tiers import slow

SELECTIONS = {
    "random programs": ("7000", "0", "25"),
    "the table": ("table",),
    "deep random programs": ("8000", "0", "30", "deep"),
    "random programs with symbolic sizes": ("9000", "0", "30", "dynamic"),
}
TRACED = {"metadata", "joint", "trace", "partition"}


def run_twice(module: str, folder: Path, backend: str, *selection: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Program by program: what two processes with one cache found. Their seeds of hashes and addresses differ."""
    command = ["-m", f"tests.cache.{module}", folder, backend, *selection]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    found = []
    for forked in (False, True):
        done = processes.run(command, environment, forked=forked)
        assert done.returncode == 0, done.stderr[-4000:]
        found.append([json.loads(line) for line in done.stdout.splitlines()])
    return list(zip(*found, strict=True))


@pytest.fixture(scope="module", params=map(slow, SELECTIONS))
def turns(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What two processes with one cache found, program by program."""
    folder = tmp_path_factory.mktemp("cache")
    turns = run_twice("warm", folder, "aotviz_eager", *SELECTIONS[request.param])
    assert len(turns) > 20
    return turns


def test_the_second_process_finds_what_the_first_one_compiled(turns: list[Any]) -> None:
    answers = [(answer, now["name"]) for _, now in turns for answer in now["outcomes"]]
    hits = [name for answer, name in answers if answer == "hit"]
    assert len(hits) > 0.95 * len(answers), [one for one in answers if one[0] != "hit"]


def test_a_program_from_the_cache_compares_with_eager_as_it_did_before(turns: list[Any]) -> None:
    assert [now["verdict"] for _, now in turns] == [before["verdict"] for before, _ in turns]


def test_its_wrapper_is_the_same_text(turns: list[Any]) -> None:
    only_hits = [(before, now) for before, now in turns if set(now["outcomes"]) == {"hit"}]
    assert [now["wrappers"] for _, now in only_hits] == [before["wrappers"] for before, _ in only_hits]


def test_nothing_is_traced_and_nothing_is_cut(turns: list[Any]) -> None:
    traced = {now["name"]: now["stages"] for _, now in turns if set(now["outcomes"]) == {"hit"}}
    found = {name: stages for name, stages in traced.items() if TRACED & set(stages) and not _again(stages)}
    assert found == {}


def _again(stages: list[str]) -> bool:
    """Whether a second derivative was asked for, which is traced when it is first needed."""
    return "differentiate" in stages


@pytest.fixture(scope="module", params=["eager", slow("inductor")])
def steps(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The same for training steps: missing gradients, retained graphs, second derivatives, hooks, two batch sizes."""
    folder = tmp_path_factory.mktemp("cache")
    steps = run_twice("steps", folder, request.param)
    assert len(steps) > 10
    return steps


def test_every_step_is_found(steps: list[Any]) -> None:
    assert {now["name"]: now["outcomes"] for _, now in steps if set(now["outcomes"]) != {"hit"}} == {}


def test_every_step_equals_eager(steps: list[Any]) -> None:
    for _, now in steps:
        torch.testing.assert_close(now["found"], now["eager"], rtol=1e-3, atol=1e-3, msg=now["name"])


def test_a_step_runs_no_stage_but_for_second_derivatives(steps: list[Any]) -> None:
    ran = {now["name"]: set(now["stages"]) - {"dynamo", "cache"} for _, now in steps}
    assert {name for name, stages in ran.items() if stages} == {"second_derivative", "hook_on_a_result"}


def test_the_wrappers_of_steps_are_the_same_text(steps: list[Any]) -> None:
    assert [now["wrappers"] for _, now in steps] == [before["wrappers"] for before, _ in steps]
