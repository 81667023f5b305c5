"""The table of aliasing and mutation programs: ours equals eager wherever torch's aot_function does, and on more."""

from __future__ import annotations

from functools import cache

import pytest

from tests.oracle import compare
from tests.oracle.compare import judge
from tests.oracle.fuzz import worse
from tests.oracle.programs import PROGRAMS

pytestmark = pytest.mark.skipif(not compare.ours_exists(), reason="aotviz.aot_function does not exist yet")

# Programs that ours may refuse, and what the error must then say.  Anything else must run.
REFUSED: dict[str, str] = {}

# Torch's aot_function gets these wrong or raises; ours must equal eager, up to details.
RIGHT_WHERE_TORCH_IS_NOT = [
    "moving_average_is_read_then_updated",
    "moving_average_with_a_nonlinear_use",
    "parameter_takes_a_step_after_its_use",
    "value_is_read_before_the_mutation",
]


@cache
def expected(name):
    return compare.expect(PROGRAMS[name])


def test_every_output_kind_has_a_program():
    tags = {tag for p in PROGRAMS.values() for tag in p.tags}
    assert tags >= {
        "non_alias", "alias_of_input", "is_input", "alias_of_intermediate_save_as_output", "alias_of_intermediate",
        "alias_of_intermediate_base_is_user_output", "unsafe_view_alias", "custom_function_view",
    }  # fmt: skip


@pytest.mark.parametrize("partition", ["min_cut", "default"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_ours_equals_eager_wherever_torch_does(name, partition):
    ours = judge(PROGRAMS[name], compare.ours_aot(partition), expected(name))
    if name in REFUSED and ours.failure:
        assert REFUSED[name] in str(ours.failure)
        return
    if ours.status == "equal":
        return
    theirs = judge(PROGRAMS[name], compare.torch_aot(partition), expected(name))
    assert not worse(ours, theirs), f"ours: {ours}\ntorch: {theirs}\n{PROGRAMS[name].source}"


@pytest.mark.parametrize("candidate", ["ours", "ours-default", "ours-keep", "ours-compile"])
@pytest.mark.parametrize("name", RIGHT_WHERE_TORCH_IS_NOT)
def test_a_buffer_updated_after_its_use_gives_eagers_gradients(name, candidate):
    verdict = judge(PROGRAMS[name], compare.CANDIDATES[candidate](), expected(name))
    assert verdict.status in ("equal", "details"), str(verdict)


@pytest.mark.parametrize("name", [n for n, p in PROGRAMS.items() if "mutation" in p.tags])
def test_mutations_kept_in_the_graph_are_no_worse_than_torchs(name):
    ours = judge(PROGRAMS[name], compare.ours_aot(keep_mutations=True), expected(name))
    if ours.status == "equal" or (name in REFUSED and ours.failure):
        return
    theirs = judge(PROGRAMS[name], compare.torch_aot(keep_mutations=True), expected(name))
    assert not worse(ours, theirs), f"ours: {ours}\ntorch: {theirs}\n{PROGRAMS[name].source}"
