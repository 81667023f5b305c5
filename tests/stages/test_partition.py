"""partition: what the forward keeps for the backward, and why; old values of mutated inputs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import aotviz
from aotviz.ir import graphs
from aotviz.stages import partition
from aotviz.torch_private.partitioners import default_partition
from tests.stages.support import evidence, stage_alone, targets

torch.set_num_threads(1)
DEFAULT = {"partition_fn": default_partition}


def leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


def test_the_forward_returns_the_slots_then_what_is_saved():
    _, split = stage_alone("partition", lambda x: x.sin().exp(), leaf(2), **DEFAULT)
    results = graphs.outputs(split.forward_module.graph)
    assert [node.name for node in results[len(split.slots) :]] == [saved.name for saved in split.saved]
    taken = {node.name for node in graphs.placeholders(split.backward_module.graph)}
    assert {saved.name for saved in split.saved} | {"tangents_1"} == taken


def test_the_default_partition_says_that_the_backward_reads_what_it_saves():
    _, split = stage_alone("partition", lambda x: x.sin().exp().sum(), leaf(2), **DEFAULT)
    whys = {saved.producer: saved.why for saved in split.saved}
    assert "the backward reads it" in whys.values()
    assert whys["x"] == "an input: saving it costs no extra memory"


def test_min_cut_recomputes_what_is_cheap_and_says_why_it_keeps_the_rest():
    def f(x, w):
        return (x @ w).sin().cos().sum()

    _, default = stage_alone("partition", f, torch.ones(4, 4), leaf(4, 4), **DEFAULT)
    _, cut = stage_alone("partition", f, torch.ones(4, 4), leaf(4, 4))
    assert len(cut.saved) < len(default.saved)
    whys = evidence(cut)
    assert any("estimates that saving it is cheaper than recomputing it" in why for why in whys.values())


def test_a_random_value_is_saved_because_it_cannot_be_computed_again():
    _, split = stage_alone("partition", lambda x: x * torch.rand_like(x), leaf(2))
    (saved,) = split.saved
    assert saved.why == "random: recomputing it would give another value"


def test_saved_tensors_come_before_saved_symbols():
    def f(x, w):
        return (x @ w).view(x.shape[0] * w.shape[1]).exp()

    _, split = stage_alone("partition", f, leaf(3, 4), leaf(4, 5), dynamic=True)
    kinds = [saved.is_symbol for saved in split.saved]
    assert kinds == sorted(kinds)
    assert True in kinds
    assert split.saved_tensor_count == kinds.count(False) > 0


def test_views_and_inputs_among_the_saved_are_marked():
    _, split = stage_alone("partition", lambda x, w: x.t() @ w, torch.ones(3, 2), leaf(3, 2), **DEFAULT)
    assert [saved.is_view for saved in split.saved] == [True]


def moving_average(x, average):
    y = (x - average).sin().sum()
    with torch.no_grad():
        average.mul_(0.5).add_(x.detach().mean() * 0.5)
    return y


@pytest.mark.parametrize("options", [{}, {"keep_inference_input_mutations": True}], ids=["outside", "in graph"])
def test_the_old_value_of_an_overwritten_buffer_is_copied_and_saved(options):
    _, split = stage_alone("partition", moving_average, leaf(4, 3), torch.ones(3), **options)
    (saved,) = [s for s in split.saved if s.why == "the call overwrites this input, so its old value is saved"]
    assert saved.producer == "aten.clone.default"
    assert targets(split.forward_module.graph)[0] == "clone"
    assert evidence(split)[saved.name] == "a copy of a mutated input's old value, for the backward"


@pytest.mark.parametrize("partition_fn", [None, default_partition])
def test_the_gradient_through_an_overwritten_buffer_is_eagers(partition_fn):
    def gradient(fn):
        x, average = torch.arange(12.0).view(4, 3).requires_grad_(), torch.tensor([3.0, 4.0, 5.0])
        fn(x, average).backward()
        return x.grad.tolist(), average.tolist()

    compiled = aotviz.compile(moving_average, backend="eager", partition_fn=partition_fn)
    assert gradient(compiled) == gradient(moving_average)


def test_a_mutated_input_that_the_backward_does_not_read_is_not_copied():
    def f(x, count):
        with torch.no_grad():
            count.add_(1)
        return x.sin()

    _, split = stage_alone("partition", f, leaf(2), torch.zeros(()))
    assert "clone" not in targets(split.forward_module.graph)


def test_both_halves_are_described():
    _, split = stage_alone("partition", lambda x, w: (x * w).sum(), torch.ones(2), leaf(2))
    forward, backward = split.forward_module.graph, split.backward_module.graph
    assert [str(n.meta["desc"]) for n in graphs.placeholders(forward)] == ["x", "w"]
    assert [str(d) for d in graphs.output_node(forward).meta["desc"]] == ["output", "saved primals_1"]
    assert [str(n.meta["desc"]) for n in graphs.placeholders(backward)] == ["saved primals_1", "tangent of output"]
    assert [str(d) for d in graphs.output_node(backward).meta["desc"]] == ["None", "gradient of w"]


def test_a_joint_pass_changes_what_is_partitioned_and_not_the_argument():
    seen = []

    def to_cos(module, joint_inputs):
        seen.append(len(joint_inputs[1]))
        for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default):
            node.target = torch.ops.aten.cos.default
        return module

    before, split = stage_alone("partition", lambda x: x.sin(), leaf(2), joint_pass=to_cos)
    assert targets(before.graph_module.graph)[0] == "sin"
    assert targets(split.forward_module.graph)[0] == "cos"
    assert seen == [1]


def test_a_partition_fn_that_saves_a_number_is_named():
    def saves_a_number(module, joint_inputs, **known):
        forward, backward = default_partition(module, joint_inputs, **known)
        output = graphs.output_node(forward.graph)
        output.args = ((*output.args[0], 7),)
        return forward, backward

    with pytest.raises(TypeError, match="saves_a_number saved 7 for the backward; it may save only nodes"):
        stage_alone("partition", lambda x: x.sin(), leaf(2), partition_fn=saves_a_number)


def test_the_same_joint_graph_can_be_cut_twice_in_different_ways():
    stopped = aotviz.trace_stages(lambda x, w: (x @ w).sin().cos().sum(), leaf(4, 4), leaf(4, 4), until="trace")
    counts = []
    for fn in (stopped.form.options.partition_fn, default_partition):
        form = replace(stopped.form, options=replace(stopped.form.options, partition_fn=fn))
        counts.append(len(partition.run(form).saved))
    assert counts[0] < counts[1]
