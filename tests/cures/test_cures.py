"""Each advice is followed: the fault is there before, `explain` advises this cure first, and afterwards it is gone."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

from aotviz.explain.cures import backward_cures, cache_cures, rank_cures
from aotviz.explain.cures.registry import CURES
from aotviz.torch_private import versions
from tests.cures.areas import programs
from tests.cures.programs import PROGRAMS, Program

ROOT = Path(__file__).resolve().parents[2]
UNTIL = {"an_odd_key": "an object is a key"}  # faults that a later torch does not have
WORDS = "its texts are those of the newer releases"  # in older ones, torch's own advice is passed on
IN_WORDS = {
    "a_module_that_is_copied",
    "a_computed_size",
    "a_branch_that_returns_its_input",
    "a_fake_kernel_that_raises",
}
OF_AREAS = [one for _, those in programs() for one in those]


@pytest.mark.every(5)
@pytest.mark.parametrize("program", OF_AREAS, ids=[one.name for one in OF_AREAS])
def test_an_advice_that_is_followed_removes_the_fault(program: Program) -> None:
    if program.name in UNTIL and versions.has(UNTIL[program.name]):
        pytest.skip(f"this torch does not have the fault: {UNTIL[program.name]}")
    if program.name in IN_WORDS and not versions.has(WORDS):
        pytest.skip("this torch says it in other words")
    before, after = (program.measure(program.calls, cured) for cured in (False, True))
    advice = program.advice(before.recording)
    assert advice is not None, str(before.recording.explain())
    assert program.cure in advice.cures, str(before.recording.explain())
    assert " ".join(program.says.split()) in advice
    assert after.count < before.count, str(after.recording.explain())
    left = [point.fix for point in after.recording.explain().points if program.cure in point.fix.cures]
    assert not left, str(after.recording.explain())
    torch.testing.assert_close(after.result, before.result)


# What is not provoked here is shown by tests/explain on logs.
ELSEWHERE = {
    backward_cures.TAKEN_SIZE,
    cache_cures.GUARDS,
    cache_cures.HIDDEN,
    rank_cures.ORDER_UNCACHED,
    rank_cures.SLOW,
}


def test_each_cure_has_a_program() -> None:
    shown = {program.cure for program in PROGRAMS}
    assert {name for name, cure in CURES.items() if cure not in shown | ELSEWHERE} == set()
    assert not shown & ELSEWHERE


def test_the_programs_have_faults_of_their_own() -> None:
    assert len({program.fault for program in PROGRAMS}) == len(PROGRAMS)


def test_each_program_is_of_an_area_and_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {one.fault for one in OF_AREAS} == {one.fault for one in PROGRAMS}
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["write_cures.py", "--check"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "docs/write_cures.py"), run_name="__main__")
    assert ended.value.code == 0


def test_the_reports_are_numbers_of_public_issues() -> None:
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", report) for one in PROGRAMS for report in one.reports)
