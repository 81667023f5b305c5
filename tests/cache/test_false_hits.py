"""A process whose code is not that of the process before gets no program of it, wherever the code differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import processes
from tests.tiers import slow

NOT_CAPTURED = ("a backward hook of a module", "a backward pre-hook of a module")  # Dynamo leaves these to eager
NOT_IN_THE_PROGRAM = ("a hook of the argument", "a hook of a parameter")  # Dynamo registers them after the call
BYPASSED = {  # program -> a part of the reason
    "an operator of torch overridden": "gave aten::tanh for AutogradCPU a kernel",
    "a method of a pytree that nonstrict_trace gets": "is part of the graph",
    "a function of nonstrict_trace": "is part of the graph",
    "the CPU kernel of a library's operator": "has a kernel for Meta whose source is not known",
    "the CPU kernel of a library's operator, of a constant": "has a kernel for Meta whose source is not known",
    "a file that is opened": "by_open reads a file (open)",
    "a file that a path reads": "reads a file (read_text)",
    "a file that numpy reads": "reads a file (loadtxt)",
    "a file's size": "reads the module os",
    "the time": "reads the module time",
    "a fallback for all operators": "gave all operators for AutogradPrivateUse1 a kernel",
}


def run(folder: Path, factor: float) -> dict[str, Any]:
    """What one process found, for each program."""
    found = {}
    for module in ("changed", "changed_around"):
        done = processes.run(["-m", f"tests.cache.{module}", folder, factor])
        assert done.returncode == 0, done.stderr[-4000:]
        found |= {one["name"]: one for one in map(json.loads, done.stdout.splitlines())}
    return found


@pytest.fixture(scope="module", params=[slow("fresh processes")])
def turns(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What three processes with one cache found; the last has another factor."""
    folder = tmp_path_factory.mktemp("cache")
    return [run(folder, factor) for factor in (2.0, 2.0, 3.0)]


def test_each_process_computes_what_eager_does(turns: list[dict[str, Any]]) -> None:
    assert [name for turn in turns for name, found in turn.items() if not found["is eager's"]] == []


def test_the_same_code_is_found_and_other_code_is_not(turns: list[dict[str, Any]]) -> None:
    left_out = (*BYPASSED, *NOT_CAPTURED, *NOT_IN_THE_PROGRAM)
    outcomes = [{name: one["outcomes"] for name, one in turn.items() if name not in left_out} for turn in turns]
    assert len(outcomes[0]) >= 30
    for found, expected in zip(outcomes, ("miss", "hit"), strict=False):
        assert {name: one for name, one in found.items() if set(one) != {expected}} == {}
    assert {name: one for name, one in outcomes[2].items() if "miss" not in one} == {}


@pytest.mark.parametrize("name", BYPASSED)
def test_what_a_key_cannot_contain_is_not_cached(turns: list[dict[str, Any]], name: str) -> None:
    for turn in turns:
        assert turn[name]["outcomes"] == ["bypass"]
        assert BYPASSED[name] in turn[name]["reasons"][0]
