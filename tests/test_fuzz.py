"""Random programs in CI: a fixed set by seed, and Hypothesis, derandomised, which also shrinks what it finds.

`make fuzz N=2000` runs more of them; `python -m tests.oracle.fuzz --only 17` shows one.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.oracle import compare
from tests.oracle.compare import judge
from tests.oracle.fuzz import report, worse
from tests.oracle.strategy import from_seed, programs

SEED = 20
BATCH = 25

ours_only = pytest.mark.skipif(not compare.ours_exists(), reason="aotviz.aot_function does not exist yet")


def check(drawn) -> None:
    ours = judge(drawn.program, compare.ours_aot(), drawn.expected)
    if ours.status == "equal":
        return
    assert ours.status != "wrong", report(drawn.program, {"ours": ours})
    theirs = judge(drawn.program, compare.torch_aot(), drawn.expected)
    assert not worse(ours, theirs), report(drawn.program, {"ours": ours, "torch": theirs})


@ours_only
@pytest.mark.parametrize("start", range(0, 150, BATCH))
def test_ours_equals_eager_on_random_programs_wherever_torch_does(start):
    for index in range(start, start + BATCH):
        check(from_seed(SEED, index))


@ours_only
@settings(
    max_examples=40,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
@given(programs())
def test_hypothesis_finds_no_program_on_which_only_torch_is_right(drawn):
    check(drawn)


@settings(max_examples=40, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_every_drawn_program_is_deterministic_in_eager(drawn):
    verdict = judge(drawn.program, compare.eager_itself(), drawn.expected)
    assert verdict.status == "equal", report(drawn.program, {"eager": verdict})
