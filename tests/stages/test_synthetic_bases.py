"""synthetic bases: inputs that overlap in memory, one of them mutated."""

from __future__ import annotations

import pytest
import torch

import aotviz
from aotviz.ir.descriptors import SyntheticBaseInput
from aotviz.runtime.call_differs import CallDiffers
from tests.stages.support import evidence, stage_alone

torch.set_num_threads(1)


def f(a, b):
    a.mul_(2)
    return a.sum() + b.sum()


def test_inputs_that_do_not_share_memory_are_left_alone():
    argument, result = stage_alone("synthetic bases", f, torch.ones(2), torch.ones(2))
    assert (result.evidence, result.rewrites) == ((), ())
    assert result.forward is argument.forward


def test_overlapping_inputs_that_are_only_read_are_left_alone():
    base = torch.ones(4)
    _, result = stage_alone("synthetic bases", lambda a, b: a + b[0], base, base[1:])
    assert result.rewrites == ()


def test_false_sharing_is_left_alone_with_a_reason():
    base = torch.ones(4)
    _, result = stage_alone("synthetic bases", f, base[:2], base[2:])
    assert result.rewrites == ()
    assert evidence(result) == {"a, b": "they share a storage but do not overlap, so each is a separate graph input"}


def test_interleaved_columns_are_no_overlap():
    base = torch.ones(4, 2)
    _, result = stage_alone("synthetic bases", f, base[:, 0], base[:, 1])
    assert result.rewrites == ()


def test_siblings_become_views_of_the_tensor_that_they_are_views_of():
    base = torch.ones(4)
    _, result = stage_alone("synthetic bases", f, base[:3], base[1:])
    (descriptor,) = result.graph_inputs
    assert isinstance(descriptor, SyntheticBaseInput)
    assert str(descriptor) == "base of a, b"
    (group,) = result.rewrites[0].groups
    assert (group.members, group.itself, group.source) == ((0, 1), None, 0)
    assert set(evidence(result)) == {"a", "b"}
    assert evidence(result)["b"].endswith("the graph takes their synthetic base, the tensor that they are views of")


def test_a_member_that_is_the_base_itself_needs_no_other():
    base = torch.ones(4)
    _, result = stage_alone("synthetic bases", f, base[:3], base)
    assert [str(d) for d in result.graph_inputs] == ["b"]
    assert result.rewrites[0].groups[0].itself == 1


def test_without_a_common_base_one_is_made_from_the_storage():
    whole = torch.ones(4)
    first, second = whole.detach()[:3].data, whole.data[1:].detach()
    first, second = (
        torch.empty(0).set_(whole.untyped_storage(), 0, (3,)),
        torch.empty(0).set_(whole.untyped_storage(), 1, (3,)),
    )
    _, result = stage_alone("synthetic bases", f, first, second)
    (group,) = result.rewrites[0].groups
    assert (len(group.roots), group.tied) == (2, False)
    assert evidence(result)["a"].endswith("the graph takes their synthetic base, the storage that they are views of")


def test_a_base_stands_in_front_of_the_inputs_outside_all_groups():
    def g(x, a, b):
        a.mul_(2)
        return x + b.sum()

    base = torch.ones(4)
    _, result = stage_alone("synthetic bases", g, torch.ones(2), base[:3], base[1:])
    assert [str(d) for d in result.graph_inputs] == ["base of a, b", "x"]
    assert result.rewrites[0].others == (0,)
    assert len(result.meta.input_info) == 2


def test_a_detached_member_sees_the_write_and_gets_no_history():
    def g(a, b):
        a.mul_(2)
        return a.sum() + b.sum()

    def run(fn):
        x = torch.arange(4.0, requires_grad=True)
        a = x.clone()
        b = a.detach()[1:]
        fn(a, b).backward()
        return x.grad.tolist(), a.tolist(), b.tolist(), b.requires_grad

    assert run(aotviz.compile(g, backend="eager")) == run(g)


def test_different_dtypes_over_one_memory_become_views_of_their_storage_in_the_smaller_one():
    base = torch.ones(4)
    _, result = stage_alone("synthetic bases", f, base, base.view(torch.float64))
    (group,) = result.rewrites[0].groups
    assert (group.base.dtype, tuple(group.base.shape)) == (torch.float32, (4,))
    assert [root.members for root in group.roots] == [(0,), (1,)]


def test_each_history_is_an_input_of_the_graph_besides_the_storage():
    x = torch.ones(4, requires_grad=True) * 2
    alias = x.detach().requires_grad_() * 1
    alias.data = x.data
    _, result = stage_alone("synthetic bases", f, x[:3], alias)
    assert [str(d) for d in result.graph_inputs] == ["base of a, b", "root of a", "b"]
    assert [info.mutates_data for info in result.meta.input_info] == [True, True, False]


def test_an_overlap_with_a_storage_that_set_replaces_is_refused_by_name():
    def g(a, b):
        a.set_(torch.ones(2))
        b.mul_(2)
        return a + 1

    base = torch.ones(4)
    with pytest.raises(NotImplementedError, match="a, b overlap in memory, and set_ gives one of them another storage"):
        stage_alone("synthetic bases", g, base[:3], base[1:])


@pytest.mark.parametrize("with_gradients", [False, True])
def test_the_program_writes_both_and_gives_eagers_results(with_gradients):
    def run(fn):
        x = torch.arange(4.0, requires_grad=with_gradients)
        base = x.clone()
        out = fn(base[:3], base[1:])
        if with_gradients:
            out.backward()
        return out.item(), base.tolist(), base._version, None if x.grad is None else x.grad.tolist()

    assert run(aotviz.compile(f, backend="eager")) == run(f)


def test_a_later_call_whose_views_have_another_history_is_refused_before_anything_is_written():
    whole = torch.ones(4)
    program = aotviz.trace_stages(f, whole, whole.view(torch.int32)).resume()
    program(whole, whole.view(torch.int32))
    other = torch.ones(5)
    with pytest.raises(CallDiffers, match="a and b do not overlap in memory as they did when this was compiled"):
        program(other[:4], other[1:].view(torch.int32))
    assert other.tolist() == [1] * 5
    w = torch.ones(1, requires_grad=True)
    program = aotviz.trace_stages(lambda a, b, w: a.mul_(w) + b, whole[:3], whole.detach()[1:], w).resume()
    other = torch.ones(4)
    with pytest.raises(CallDiffers, match="are views of other tensors than when this was compiled"):
        program(other[:3], other[1:], w)
    assert other.tolist() == [1] * 4


def test_a_later_call_with_another_overlap_is_refused_by_name_before_anything_is_written():
    base = torch.ones(4)
    program = aotviz.trace_stages(f, base[:3], base[1:]).resume()
    other = torch.ones(5)
    with pytest.raises(CallDiffers, match="a and b do not overlap in memory as they did when this was compiled"):
        program(other[:3], other[2:])
    assert other.tolist() == [1] * 5
