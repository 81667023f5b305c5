"""trace: no dead code, descriptors, and the source line of what a backward node differentiates."""

from __future__ import annotations

import torch

from aotviz.ir import graphs
from aotviz.ir.forms import JointGraph
from tests.stages.support import evidence, stage_alone, targets

torch.set_num_threads(1)


def leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


def described(module):
    inputs = [str(node.meta["desc"]) for node in graphs.placeholders(module.graph)]
    return inputs, [str(d) for d in graphs.output_node(module.graph).meta["desc"]]


def test_every_input_and_output_of_a_joint_graph_has_a_descriptor():
    _, joint = stage_alone("trace", lambda x, w: {"loss": (x * w).sum()}, torch.ones(2), leaf(2))
    assert isinstance(joint, JointGraph)
    assert described(joint.graph_module) == (
        ["x", "w", "tangent of output['loss']"],
        ["output['loss']", "None", "gradient of w"],
    )


def test_mutated_inputs_and_intermediate_bases_are_described():
    def f(x, w):
        x.mul_(w)
        y = x * 2
        return y.view(-1), y.t()

    _, joint = stage_alone("trace", f, torch.ones(2, 2), leaf(2, 2))
    inputs, outputs = described(joint.graph_module)
    assert inputs == ["x", "w", "tangent of x after mutation", "tangent of base of output[0]"]
    assert outputs == ["x after mutation", "base of output[0]", "None", "gradient of w"]


def test_an_inference_graph_is_described_too():
    _, call = stage_alone("trace", lambda x: x + 1, torch.ones(2))
    assert described(call.graph_module) == (["x"], ["output"])


def test_dead_code_goes_from_the_result_and_stays_in_the_argument():
    def f(x):
        x.sin()
        return x.cos()

    before, after = stage_alone("trace", f, torch.ones(2))
    assert targets(before.graph_module.graph) == ["sin", "cos"]
    assert targets(after.graph_module.graph) == ["cos"]
    assert evidence(after) == {"dead code": "1 unused node removed"}


def test_without_dead_code_there_is_no_such_reason():
    _, after = stage_alone("trace", lambda x: x.cos(), torch.ones(2))
    assert after.evidence == ()


def test_an_input_that_nothing_uses_stays_an_input():
    _, after = stage_alone("trace", lambda x, unused: x.cos(), torch.ones(2), torch.ones(3))
    assert described(after.graph_module)[0] == ["x", "unused"]


def test_a_write_to_an_input_is_no_dead_code_though_no_node_reads_it():
    def f(x):
        x.mul_(2)
        return x.cos()

    _, after = stage_alone("trace", f, torch.ones(2), keep_inference_input_mutations=True)
    assert targets(after.graph_module.graph)[-1] == "copy_"


def test_a_backward_node_carries_the_line_of_the_forward_node_that_it_differentiates():
    def f(x):
        return x.sin()

    _, joint = stage_alone("trace", f, leaf(2))
    backward = [
        n
        for n in joint.graph_module.graph.nodes
        if n.op == "call_function" and n.meta["partitioner_tag"] == "is_backward"
    ]
    assert [node.target for node in backward] == [torch.ops.aten.cos.default, torch.ops.aten.mul.Tensor]
    traces = [node.meta.get("fwd_stack_trace") or node.meta.get("stack_trace") for node in backward]
    assert all("return x.sin()" in trace for trace in traces)
