"""metadata: the facts about a call, read off one run of it."""

from __future__ import annotations

import pytest
import torch

from aotviz.ir.view_and_mutation import MutationType, OutputType
from tests.stages.support import evidence, stage_alone, targets

torch.set_num_threads(1)


def leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


def facts(fn, *args, **options):
    return stage_alone("metadata", fn, *args, **options)[1]


class ViewOf(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view(-1)

    @staticmethod
    def backward(ctx, grad):
        return grad.view(2, 2)


def two_views(x):
    y = x * 2
    return y.view(-1), y.t()


def view_and_base(x):
    y = x * 2
    return y, y.view(-1)


KINDS = {
    "non_alias": (lambda x: x * 2, ["non_alias"]),
    "alias_of_input": (lambda x: x.view(-1), ["alias_of_input"]),
    "is_input": (lambda x: x, ["is_input"]),
    "two views of one intermediate": (
        two_views,
        ["alias_of_intermediate_save_as_output", "alias_of_intermediate"],
    ),
    "a view and its base": (view_and_base, ["non_alias", "alias_of_intermediate_base_is_user_output"]),
    "the only view": (lambda x: (x * 2).view(-1), ["alias_of_intermediate_save_as_output"]),
    "a custom function's view": (lambda x: ViewOf.apply(x), ["custom_function_view"]),
}


@pytest.mark.parametrize("name", KINDS)
def test_each_output_kind_is_recognised(name):
    fn, wanted = KINDS[name]
    call = facts(fn, leaf(2, 2))
    assert [info.output_type.name for info in call.meta.output_info] == wanted


def test_a_view_whose_size_is_known_only_at_the_call_stands_alone():
    call = facts(lambda x: (x * 2).view(x.shape[1], x.shape[0]), leaf(2, 3), dynamic=True)
    assert [info.output_type.name for info in call.meta.output_info] == ["unsafe_view_alias"]


def test_the_kinds_above_are_all_kinds():
    known = {kind for _, wanted in KINDS.values() for kind in wanted} | {"unsafe_view_alias"}
    assert known == {kind.name for kind in OutputType}


def test_an_output_returned_twice_is_one_object():
    def f(x):
        y = x * 2
        return y, y

    call = facts(f, leaf(2))
    assert [info.same_object_as for info in call.meta.output_info] == [None, 0]
    assert evidence(call)["output[1]"] == "it is the same object as output[0]"


def test_the_view_chain_repeats_the_users_own_views():
    call = facts(lambda x: x.view(4, 2).t()[0], leaf(2, 4))
    (info,) = call.meta.output_info
    assert [str(step) for step in info.view_chain] == ["view((4, 2))", "t()", "select(0, 0)"]
    assert info.base_index == 0


def test_a_piece_of_a_multi_output_view_has_its_number_in_the_chain():
    def f(x):
        y = x * 2
        _, second = y.chunk(2)
        return y, second

    info = facts(f, leaf(4)).meta.output_info[1]
    assert info.view_chain[-1].item == 1


def test_constants_and_none_are_kept_as_they_are():
    infos = facts(lambda x: (x + 1, None, 3, "text"), leaf(2)).meta.output_info
    assert [(info.is_constant, info.constant) for info in infos[1:]] == [(True, None), (True, 3), (True, "text")]


def test_outputs_are_named_by_their_path():
    call = facts(lambda x: {"loss": x.sum(), "logits": [x + 1]}, leaf(2))
    assert [d.name for d in call.outputs] == ["output['loss']", "output['logits'][0]"]


def info_of(fn, *args, **options):
    return facts(fn, *args, **options).meta.input_info[0]


def test_an_input_that_is_only_read_is_not_mutated():
    info = info_of(lambda x: x + 1, torch.ones(2))
    assert (info.mutated, info.version_bumps, info.mutation_type) == (False, 0, MutationType.NOT_MUTATED)


def test_each_write_of_data_counts_as_a_version():
    info = info_of(lambda x: x.mul_(2).add_(1), torch.ones(2))
    assert (info.mutates_data, info.mutates_metadata, info.version_bumps) == (True, False, 2)
    assert not info.requires_grad_after


def test_a_write_through_a_view_is_a_write_of_the_input():
    assert info_of(lambda x: x[0].fill_(3).sum(), torch.ones(2)).mutates_data


def test_a_metadata_mutation_has_the_layout_that_it_leaves():
    info = info_of(lambda x: x.t_() + 1, torch.ones(2, 3))
    assert (info.mutates_data, info.mutates_metadata) == (False, True)
    assert (info.layout_after.size, info.layout_after.stride) == ((3, 2), (1, 3))


def test_a_write_under_no_grad_is_told_from_one_that_autograd_sees():
    def quiet(x):
        with torch.no_grad():
            x.mul_(2)
        return x.sum()

    def seen(x):
        x.mul_(2)
        return x.sum()

    assert info_of(quiet, leaf(2)).mutations_under_no_grad_or_inference_mode
    info = info_of(seen, leaf(2).clone())
    assert not info.mutations_under_no_grad_or_inference_mode
    assert not info.mutations_hidden_from_autograd
    assert not info.is_leaf


def test_a_write_through_a_detached_alias_is_hidden_from_autograd():
    info = info_of(lambda x: (x.detach().mul_(2), x.sum())[1], leaf(2))
    assert info.mutates_data
    assert info.mutations_hidden_from_autograd


def test_a_plain_input_gains_a_gradient_by_mutation():
    info = info_of(lambda x, w: x.mul_(w).sum(), torch.ones(2), leaf(2))
    assert (info.requires_grad, info.requires_grad_after) == (False, True)


def test_set_replaces_the_storage_and_the_evidence_says_so():
    def f(x, y):
        with torch.no_grad():
            x.set_(y * 2)
        return x + 1

    call = facts(f, torch.ones(2), torch.ones(2))
    assert call.meta.input_info[0].mutates_storage_metadata
    assert "its storage is replaced by set_" in evidence(call)["x"]


def test_a_write_may_stay_in_the_graph_only_where_it_is_allowed_and_invisible():
    def f(x):
        return x.mul_(2).sum()

    assert info_of(f, torch.ones(2)).mutation_type is MutationType.MUTATED_OUT_GRAPH
    allowed = {"keep_inference_input_mutations": True}
    assert info_of(f, torch.ones(2), **allowed).mutation_type is MutationType.MUTATED_IN_GRAPH
    assert info_of(f, leaf(2).clone(), **allowed).mutation_type is MutationType.MUTATED_OUT_GRAPH
    assert info_of(lambda x: x.t_() + 1, torch.ones(2, 2), **allowed).mutation_type is MutationType.MUTATED_OUT_GRAPH


def test_a_grad_mode_that_the_call_leaves_behind_is_a_fact_and_tracing_restores_it():
    def f(x):
        torch.set_grad_enabled(False)
        return x + 1

    call = facts(f, leaf(2))
    assert torch.is_grad_enabled()
    assert (call.meta.grad_enabled, call.meta.grad_enabled_after) == (True, False)
    assert evidence(call)["grad mode"] == "the call leaves it off"


def test_autocast_and_determinism_are_noted():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert facts(lambda x: x @ x, torch.ones(2, 2)).meta.autocast
    plain = facts(lambda x: x @ x, torch.ones(2, 2)).meta
    assert (plain.autocast, plain.deterministic) == (False, False)


def test_the_forward_is_functional():
    call = facts(lambda x: x.mul_(2).add_(1), torch.ones(2))
    assert targets(call.graphs["forward"]) == ["mul", "add"]


def test_the_inputs_of_the_user_stay_as_they_were():
    x = torch.ones(2)
    facts(lambda x: x.mul_(2), x)
    assert (x.tolist(), x._version) == ([1, 1], 0)


def test_a_view_made_under_no_grad_is_told_from_one_with_history():
    def f(x):
        with torch.no_grad():
            quiet = x.view(-1)
        return quiet, x.view(-1)

    quiet, seen = facts(f, leaf(2, 2).clone()).meta.output_info
    assert [step.under_no_grad for step in (*quiet.view_chain, *seen.view_chain)] == [True, False]
