"""joint: which results receive a tangent, which inputs a gradient; and its counterpart, a graph without gradients."""

from __future__ import annotations

import pytest
import torch

import aotviz
from aotviz.ir import graphs
from tests.stages.support import evidence, stage_alone, targets

torch.set_num_threads(1)


def leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


def gradients(call):
    return graphs.outputs(call.graph_module.graph)[len(call.slots) :]


def test_each_differentiable_output_receives_a_tangent_of_its_layout():
    _, joint = stage_alone("joint", lambda x, y: (x.t() * 2, y * 2), leaf(2, 3), torch.ones(2))
    assert [slot.differentiable for slot in joint.slots] == [True, False]
    (tangent,) = joint.tangents
    assert (tangent.slot, tangent.size, tangent.stride, tangent.dtype) == (0, (3, 2), (1, 3), torch.float32)


def test_an_integer_output_receives_no_tangent():
    _, joint = stage_alone("joint", lambda x: (x.argmax(), x.sum()), leaf(2))
    assert [slot.differentiable for slot in joint.slots] == [False, True]


def test_each_input_that_requires_grad_gets_a_gradient_and_others_none():
    _, joint = stage_alone("joint", lambda x, y, n: x * y * n, leaf(2), torch.ones(2), 3)
    first, second, third = gradients(joint)
    assert first is not None
    assert (second, third) == (None, None)


def test_an_input_that_nothing_depends_on_gets_none_with_a_reason():
    _, joint = stage_alone("joint", lambda x, y: x.sin() + y.detach(), leaf(2), leaf(2))
    assert gradients(joint)[1] is None
    assert evidence(joint)["y"] == "it requires grad, but no output depends on it: its gradient is None"


def test_a_mutated_input_is_a_slot_before_the_outputs_and_receives_a_tangent():
    _, joint = stage_alone("joint", lambda x, w: x.mul_(w).sum(), torch.ones(2), leaf(2))
    assert [(s.kind, s.differentiable) for s in joint.slots] == [("mutation", True), ("output", True)]
    assert evidence(joint)["x after mutation"] == "it receives a tangent"


def test_a_mutation_under_no_grad_receives_no_tangent():
    def f(x, w):
        with torch.no_grad():
            x.mul_(2)
        return w.sum()

    _, joint = stage_alone("joint", f, torch.ones(2), leaf(2))
    assert [(s.kind, s.differentiable) for s in joint.slots] == [("mutation", False), ("output", True)]


def test_the_base_of_two_views_is_returned_in_their_stead():
    def f(x):
        y = x * 2
        return y.view(-1), y.t()

    _, joint = stage_alone("joint", f, leaf(2, 3))
    assert [str(slot.descriptor) for slot in joint.slots] == ["base of output[0]"]


def test_a_view_of_an_input_is_no_output_of_the_graph():
    _, joint = stage_alone("joint", lambda x: (x.t(), x.sum()), leaf(2, 3))
    assert [str(slot.descriptor) for slot in joint.slots] == ["output[1]"]


def test_the_forward_nodes_come_first_and_every_node_says_which_half_it_is():
    _, joint = stage_alone("joint", lambda x: x.sin().cos(), leaf(2))
    nodes = [n for n in joint.graph_module.graph.nodes if n.op == "call_function"]
    tags = [n.meta["partitioner_tag"] for n in nodes]
    assert sorted(tags, key=["is_forward", "is_backward"].index) == tags
    assert set(tags) == {"is_forward", "is_backward"}


def test_the_form_before_still_shows_the_forward_alone():
    before, joint = stage_alone("joint", lambda x: x.sin(), leaf(2))
    assert targets(before.graphs["forward"]) == ["sin"]
    assert targets(joint.graph_module.graph) != ["sin"]


@pytest.mark.parametrize(
    ("fn", "x", "why"),
    [
        (lambda x: x + 1, torch.ones(2), "no input requires grad"),
        (lambda x: x.detach() + 1, torch.ones(2, requires_grad=True), "no output that leaves the graph depends on"),
    ],
)
def test_a_call_without_gradients_is_closed_with_the_reason(fn, x, why):
    _, closed = stage_alone("graph", fn, x)
    assert evidence(closed)["backward"].startswith(why)
    assert closed.role == "inference"
    assert len(graphs.outputs(closed.graph_module.graph)) == len(closed.slots) == 1


def test_grad_mode_off_is_a_reason_for_no_backward():
    with torch.no_grad():
        _, closed = stage_alone("graph", lambda x: x + 1, leaf(2))
    assert evidence(closed)["backward"] == "grad mode is off"


def test_an_open_trace_is_taken_once_and_traced_anew_for_the_second():
    stopped = aotviz.trace_stages(lambda x: x.sin(), leaf(2), until="synthetic bases")
    from aotviz.stages import joint

    first, second = joint.run(stopped.form), joint.run(stopped.form)
    assert first.forward is stopped.form.forward
    assert second.forward is not first.forward
    assert first.graph_module.code == second.graph_module.code
