"""The table of aliasing and mutation programs: ours equals eager wherever torch's aot_function does, and on more."""

from __future__ import annotations

from functools import cache

import pytest

from tests.oracle import compare
from tests.oracle.compare import judge
from tests.oracle.fuzz import worse
from tests.oracle.programs import PROGRAMS
from tests.tiers import in_turns

# Programs that ours may refuse, and what the error must then say.
REFUSED = {
    "dynamic_siblings": "x and y do not overlap in memory as they did when this was compiled",
}

# The min-cut partitioner must not recompute from a buffer that the call has since overwritten (docs/design/measured.md,
# "The pipeline").
OVERWRITTEN_BUFFERS = ["moving_average_is_read_then_updated", "moving_average_with_a_nonlinear_use"]

# Torch 2.13's aot_function gets these wrong or refuses them; ours must not fall back to that.
RIGHT_WHERE_TORCH_IS_NOT = [
    *OVERWRITTEN_BUFFERS,
    "autocast_inside",
    "both_siblings_are_mutated",
    "called_under_autocast",
    "complex_arithmetic",
    "disjoint_detached_halves_of_one_storage",
    "duplicates_and_siblings_together",
    "dynamic_size_is_needed_by_the_backward",
    "input_is_filled_from_a_result",
    "input_is_set_then_mutated",
    "input_is_set_to_an_intermediate",
    "input_is_set_to_another_input",
    "input_is_squeezed_in_place",
    "intermediate_is_transposed_in_place",
    "intermediate_is_unbound_and_returned",
    "leaf_and_its_view",
    "mutated_sibling_views_are_returned",
    "non_leaf_base_and_view_mutated_both",
    "non_leaf_input_is_mutated_by_a_parameter",
    "output_whose_gradient_is_zero",
    "outputs_with_disjoint_inputs",
    "parameter_is_set_under_no_grad",
    "plain_input_gains_a_gradient_by_mutation",
    "second_of_three_duplicates_is_mutated",
    "trained_first_then_called_under_no_grad",
    "view_of_a_mutated_intermediate",
    "view_of_a_sibling_is_returned",
    "view_of_input_taken_under_no_grad",
    "view_of_intermediate_returned_twice",
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


@pytest.mark.parametrize(("name", "partition"), in_turns(PROGRAMS, ["min_cut", "default"], every=2))
def test_ours_equals_eager_wherever_torch_does(name, partition):
    ours = judge(PROGRAMS[name], compare.ours_aot(partition), expected(name))
    if name in REFUSED and ours.failure:
        assert REFUSED[name] in str(ours.failure)
        return
    if ours.status == "equal":
        return
    theirs = judge(PROGRAMS[name], compare.torch_aot(partition), expected(name))
    assert not worse(ours, theirs), f"ours: {ours}\ntorch: {theirs}\n{PROGRAMS[name].source}"


@pytest.mark.parametrize("name", RIGHT_WHERE_TORCH_IS_NOT)
def test_ours_stays_right_where_torch_is_not(name):
    verdict = judge(PROGRAMS[name], compare.ours_aot(), expected(name))
    assert verdict.status in ("equal", "details"), str(verdict)


@pytest.mark.parametrize(
    ("name", "candidate"),
    in_turns(OVERWRITTEN_BUFFERS, ["ours-compile", "ours-inductor", "ours-default", "ours-keep"]),
)
def test_a_buffer_updated_after_its_use_gives_eagers_gradients(name, candidate):
    verdict = judge(PROGRAMS[name], compare.CANDIDATES[candidate](), expected(name))
    assert verdict.status in ("equal", "details"), str(verdict)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n, p in PROGRAMS.items() if "mutation" in p.tags])
def test_mutations_kept_in_the_graph_are_no_worse_than_torchs(name):
    ours = judge(PROGRAMS[name], compare.ours_aot(keep_mutations=True), expected(name))
    if ours.status == "equal" or (name in REFUSED and ours.failure):
        return
    theirs = judge(PROGRAMS[name], compare.torch_aot(keep_mutations=True), expected(name))
    assert not worse(ours, theirs), f"ours: {ours}\ntorch: {theirs}\n{PROGRAMS[name].source}"
