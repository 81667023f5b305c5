"""subclasses: from tensors as the caller holds them to their parts, as the graph takes them."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import aotviz
from aotviz.ir import graphs
from aotviz.ir.forms import JointCall
from aotviz.ir.subclass_meta import PlainTensorMeta, SubclassCreationMeta
from tests.stages.support import evidence, stage_alone

torch.set_num_threads(1)


def two(*shape, grad=False):
    return TwoTensor(torch.ones(shape), torch.full(shape, 2.0)).requires_grad_(grad)


def test_a_call_without_subclasses_passes_unchanged():
    stopped = aotviz.trace_stages(lambda x: x.sin(), torch.ones(2, requires_grad=True), until="joint")
    after = stopped.resume_until("subclasses").form
    assert after is stopped.form
    assert after.wrapping is None


def test_inputs_slots_tangents_and_gradients_become_parts_in_order():
    before, after = stage_alone("subclasses", lambda t, x: (x.exp(), t * x), two(2, grad=True), torch.ones(2))
    assert isinstance(after, JointCall)
    assert [str(d) for d in before.graph_inputs] == ["t", "x"]
    assert [str(d) for d in after.graph_inputs] == ["t.a", "t.b", "x"]
    assert [str(slot.descriptor) for slot in after.slots] == ["output[0]", "output[1].a", "output[1].b"]
    assert [tangent.slot for tangent in after.tangents] == [1, 2]
    assert [str(g.descriptor) for g in after.gradients] == ["(gradient of t).a", "(gradient of t).b", "None"]
    assert len(graphs.outputs(after.graph_module.graph)) == 6


def test_the_caller_still_sees_whole_tensors():
    before, after = stage_alone("subclasses", lambda t, x: (x.exp(), t * x), two(2, grad=True), torch.ones(2))
    caller = after.wrapping.caller(after)
    assert caller.graph_inputs == before.graph_inputs
    assert caller.slots == before.slots
    assert [tangent.slot for tangent in caller.tangents] == [1]


def test_plans_at_run_time_hold_nothing_of_the_trace():
    _, after = stage_alone("subclasses", lambda t: t * 2, two(2, 3))
    meta = after.wrapping.meta
    (taken,), (returned,) = meta.inputs, meta.slots
    assert isinstance(taken, SubclassCreationMeta)
    assert (taken.type, [name for name, _ in taken.attrs], taken.outer_size) == (TwoTensor, ["a", "b"], (2, 3))
    assert all(isinstance(part, PlainTensorMeta) for _, part in returned.attrs)
    assert (returned.outer_size, returned.outer_stride) == ((2, 3), (3, 1))


def test_a_nested_subclass_is_told_by_its_innermost_parts():
    _, after = stage_alone("subclasses", lambda t: t + 1, TwoTensor(two(2), two(2)))
    assert [str(d) for d in after.graph_inputs] == ["t.a.a", "t.a.b", "t.b.a", "t.b.b"]
    assert after.wrapping.meta.inputs[0].count == 4


def test_symbolic_sizes_of_the_whole_are_results_of_the_graph():
    _, after = stage_alone("subclasses", lambda t: t[1:] * 2, two(5, 3), dynamic=True)
    assert any(str(slot.descriptor).endswith("size(0)") for slot in after.slots)
    assert after.wrapping.meta.slots[0].outer_size[0] is None


def test_only_the_part_that_is_written_is_mutated():
    def f(t):
        t.a.add_(1)
        return t * 2

    _, after = stage_alone("subclasses", f, two(2))
    assert [info.mutates_data for info in after.meta.input_info] == [True, False]
    assert after.slots[0].kind == "mutation"


def test_a_result_that_is_a_view_of_a_written_input_shares_its_parts():
    def f(t):
        t.mul_(2)
        return t, TwoTensor(t.a, t.b.sin())

    _, after = stage_alone("subclasses", f, two(2), backend="eager")
    shared = after.wrapping.shared
    assert [leads for _, leads in shared.values()] == [".a"]


def test_the_reason_names_the_class_and_what_the_graph_has():
    _, after = stage_alone("subclasses", lambda t: t + 1, two(2))
    assert evidence(after) == {
        "t": "it is a TwoTensor; the graph has t.a, t.b",
        "output": "it is a TwoTensor; the graph has output.a, output.b",
    }


@pytest.mark.parametrize("grad", [False, True])
def test_each_result_of_the_graph_is_described_by_no_one_yet(grad):
    _, after = stage_alone("subclasses", lambda t: t * 2, two(2, grad=grad))
    described = graphs.output_node(after.graph_module.graph).meta["desc"]
    assert described == [None] * len(graphs.outputs(after.graph_module.graph))
