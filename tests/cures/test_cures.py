"""Each advice is followed: the fault is there before, `explain` advises this cure first, and afterwards it is gone."""

from __future__ import annotations

import pytest
import torch

from aotviz.explain.cures import backward_cures, cache_cures, rank_cures
from aotviz.explain.cures.registry import CURES, Cure
from tests.cures import breaks, cuda_graphs, exports, keys, recompiles, values
from tests.cures.programs import PROGRAMS, Program

AREAS = (recompiles, values, breaks, exports, keys, cuda_graphs)


@pytest.mark.parametrize("program", PROGRAMS, ids=[one.name for one in PROGRAMS])
def test_an_advice_that_is_followed_removes_the_fault(program: Program) -> None:
    before, after = (program.measure(program.calls, cured) for cured in (False, True))
    advice = program.advice(before.recording)
    assert advice is not None, str(before.recording.explain())
    assert program.cure in advice.cures, str(before.recording.explain())
    assert " ".join(program.says.split()) in advice
    assert after.count < before.count, str(after.recording.explain())
    left = [point.fix for point in after.recording.explain().points if program.cure in point.fix.cures]
    assert not left, str(after.recording.explain())
    torch.testing.assert_close(after.result, before.result)


ELSEWHERE = (backward_cures, cache_cures, rank_cures)  # their programs are in tests/explain, on logs of the corpus


def test_each_cure_has_a_program() -> None:
    shown = {program.cure for program in PROGRAMS}
    elsewhere = {cure for area in ELSEWHERE for cure in vars(area).values() if isinstance(cure, Cure)}
    assert {name for name, cure in CURES.items() if cure not in shown | elsewhere} == set()


def test_the_programs_have_faults_of_their_own() -> None:
    assert len({program.fault for program in PROGRAMS}) == len(PROGRAMS)
