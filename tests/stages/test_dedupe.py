"""dedupe: one tensor passed twice."""

from __future__ import annotations

import pytest
import torch

import aotviz
from aotviz.runtime.call_differs import CallDiffers
from tests.stages.support import evidence, stage_alone

torch.set_num_threads(1)


def reads(a, b):
    return (a * b).sum()


def writes(a, b, c):
    a.mul_(2)
    return (a * b * c).sum()


def test_without_duplicates_nothing_changes():
    argument, result = stage_alone("dedupe", reads, torch.ones(2), torch.ones(2))
    assert result.evidence == ()
    assert result.forward is argument.forward
    assert result.rewrites == ()


def test_a_duplicate_that_is_only_read_stays_an_input_of_its_own():
    x = torch.ones(2, requires_grad=True)
    argument, result = stage_alone("dedupe", reads, x, x)
    assert [str(d) for d in result.graph_inputs] == ["a", "b"]
    assert result.forward is argument.forward
    assert evidence(result) == {"b": "the same tensor as a, never mutated: each is a separate graph input"}


def test_a_mutated_duplicate_is_merged_into_one_graph_input():
    x = torch.ones(2)
    argument, result = stage_alone("dedupe", writes, x, torch.ones(2), x)
    assert [str(d) for d in argument.graph_inputs] == ["a", "b", "c"]
    assert [str(d) for d in result.graph_inputs] == ["a", "b"]
    assert len(result.meta.input_info) == 2
    assert len(result.user_input_info.input_info) == 3
    assert evidence(result) == {"c": "the same tensor as a, and mutated: merged into one graph input"}
    (rewrite,) = result.rewrites
    assert (rewrite.kept, rewrite.position) == ((0, 1), (0, 1, 0))


def test_a_write_to_the_later_occurrence_merges_them_too():
    def f(a, b):
        b.mul_(2)
        return a + 1

    x = torch.ones(2)
    _, result = stage_alone("dedupe", f, x, x)
    assert len(result.graph_inputs) == 1
    assert result.meta.input_info[0].mutates_data


def test_only_the_mutated_pair_of_two_is_merged():
    def f(a, b, c, d):
        a.mul_(2)
        return a + b + c + d

    x, y = torch.ones(2), torch.ones(2)
    _, result = stage_alone("dedupe", f, x, y, x, y)
    assert [str(d) for d in result.graph_inputs] == ["a", "b", "d"]


def test_static_inputs_are_renumbered():
    class Shared(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, a, b):
            a.mul_(2)
            return a + b + self.count

    x = torch.ones(2)
    _, result = stage_alone("dedupe", Shared(), x, x)
    assert [str(d) for d in result.graph_inputs] == ["count", "a"]
    assert result.meta.static_input_indices == (0,)


def test_the_program_sees_the_write_in_both_places_and_keeps_gradients():
    def run(fn):
        x = torch.tensor([3.0], requires_grad=True)
        y = x.clone()
        fn(y, torch.ones(1), y).backward()
        return x.grad.tolist(), y.tolist()

    assert run(aotviz.compile(writes, backend="eager")) == run(writes)


def test_a_later_call_with_two_tensors_is_refused_by_name_before_anything_is_written():
    x = torch.ones(2)
    program = aotviz.trace_stages(writes, x, torch.ones(2), x).resume()
    one, other = torch.ones(2), torch.ones(2)
    with pytest.raises(CallDiffers, match=r"'c' and 'a' were the same tensor when this was .*again"):
        program(one, torch.ones(2), other)
    assert one.tolist() == [1, 1]
