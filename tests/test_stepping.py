"""Run up to a stage, look, change the graph, and go on."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.fx as fx

import aotviz
from aotviz import pipeline
from aotviz.ir import graphs
from aotviz.ir.verify import MalformedForm

torch.set_num_threads(1)


def f(x, w):
    return (x * w).sum()


def training():
    return torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0], requires_grad=True)


def swapped(graph_module, before, after):
    for node in graph_module.graph.nodes:
        if node.target is before:
            node.target = after
    graph_module.recompile()
    return graph_module


@pytest.mark.parametrize("stage", [stage.name for stage in pipeline.TRAINING if stage.needed is None])
def test_a_training_call_stops_after_each_stage_and_goes_on(stage):
    stopped = aotviz.trace_stages(f, *training(), until=stage)
    assert stopped.stage == stage
    rows = list(stopped.recording[0].stages["stage"])
    assert rows[-1] == stage
    x, w = training()
    out = stopped.resume()(x, w)
    out.backward()
    assert (out.item(), w.grad.tolist()) == (11.0, [1.0, 2.0])


@pytest.mark.parametrize("stage", [stage.name for stage in pipeline.INFERENCE if stage.needed is None])
def test_an_inference_call_stops_after_each_stage_and_goes_on(stage):
    stopped = aotviz.trace_stages(f, torch.ones(2), torch.ones(2), until=stage)
    assert stopped.stage == stage
    assert stopped.resume()(torch.ones(2), torch.ones(2)).item() == 2.0


def test_an_unknown_stage_is_refused_with_those_that_there_are():
    with pytest.raises(
        ValueError, match=r"until='jiont' is not a stage; the stages are .*joint.*synthetic bases, trace"
    ):
        aotviz.trace_stages(f, *training(), until="jiont")


def test_a_stage_that_this_call_does_not_pass_through_is_refused_with_its_way():
    with pytest.raises(ValueError, match=r"does not run stage 'joint'; its stages are flatten, .*graph"):
        aotviz.trace_stages(f, torch.ones(2), torch.ones(2), until="joint")
    with pytest.raises(ValueError, match=r"this training call does not run stage 'graph'"):
        aotviz.trace_stages(f, *training(), until="graph")


def test_a_replaced_joint_graph_is_what_runs():
    stopped = aotviz.trace_stages(lambda x, w: x * w.detach() + w, *training(), until="joint")
    changed = stopped.with_graph(swapped(stopped.graph, torch.ops.aten.mul.Tensor, torch.ops.aten.add.Tensor))
    x, w = training()
    assert changed.resume()(x, w).tolist() == [1 + 3 + 3, 2 + 4 + 4]


def test_a_replacement_leaves_the_stopped_compilation_as_it_was():
    stopped = aotviz.trace_stages(lambda x, w: x * w.detach() + w, *training(), until="trace")
    stopped.with_graph(swapped(stopped.graph, torch.ops.aten.mul.Tensor, torch.ops.aten.add.Tensor))
    x, w = training()
    assert stopped.resume()(x, w).tolist() == [1 * 3 + 3, 2 * 4 + 4]


def test_the_graph_that_is_given_out_is_a_copy():
    stopped = aotviz.trace_stages(f, *training(), until="trace")
    swapped(stopped.graph, torch.ops.aten.mul.Tensor, torch.ops.aten.add.Tensor)
    assert "mul" in stopped.graph.code


def test_a_forward_or_a_backward_is_replaced_by_its_role():
    stopped = aotviz.trace_stages(f, *training(), until="partition")
    assert list(stopped.graphs) == ["forward", "backward"]
    backward = swapped(stopped.graphs["backward"], torch.ops.aten.mul.Tensor, torch.ops.aten.add.Tensor)
    x, w = training()
    out = stopped.with_graph(backward, role="backward").resume()(x, w)
    out.backward()
    assert out.item() == 11.0
    assert w.grad.tolist() == [1 + 1, 1 + 2], "1 is the tangent, expanded; x is added to it"


def test_a_replacement_with_other_inputs_or_outputs_is_refused():
    stopped = aotviz.trace_stages(f, *training(), until="trace")
    fewer = stopped.graph
    output = graphs.output_node(fewer.graph)
    output.args = (output.args[0][:1],)
    with pytest.raises(ValueError, match="the joint graph has 3 outputs, and its replacement 1"):
        stopped.with_graph(fewer)
    more = stopped.graph
    with more.graph.inserting_before(next(iter(more.graph.nodes))):
        more.graph.placeholder("extra")
    with pytest.raises(ValueError, match="the joint graph has 3 inputs, and its replacement 4"):
        stopped.with_graph(more)


def test_a_replacement_that_is_not_functional_is_refused():
    stopped = aotviz.trace_stages(f, *training(), until="trace")
    module = stopped.graph
    mul = next(node for node in module.graph.nodes if node.target is torch.ops.aten.mul.Tensor)
    with module.graph.inserting_after(mul):
        module.graph.call_function(torch.ops.aten.add_.Tensor, (mul, 1))
    with pytest.raises(MalformedForm, match=r"stage 'trace \(graph replaced\)'.*not an input"):
        stopped.with_graph(module)


def test_an_unknown_role_is_refused_with_those_that_there_are():
    stopped = aotviz.trace_stages(f, *training(), until="partition")
    with pytest.raises(ValueError, match=r"there is no 'joint' graph; there are \['forward', 'backward'\]"):
        stopped.with_graph(stopped.graph, role="joint")


def test_before_the_graph_is_closed_there_is_none_to_look_at():
    stopped = aotviz.trace_stages(f, *training(), until="metadata")
    assert stopped.graphs == {}
    with pytest.raises(
        ValueError, match="after stage 'metadata' there is no complete graph yet; stop at a later stage"
    ):
        stopped.graph  # noqa: B018
    with pytest.raises(ValueError, match="there is no 'graph' graph; there are none"):
        stopped.with_graph(fx.GraphModule({}, fx.Graph()))


@pytest.mark.parametrize("until", ["metadata", "synthetic bases", "joint", "partition"])
def test_going_on_twice_gives_the_same_twice(until):
    stopped = aotviz.trace_stages(f, *training(), until=until)
    first, second = stopped.resume(), stopped.resume()
    assert first.program is not None
    assert first.program.source == second.program.source
    for function in (first, second):
        x, w = training()
        out = function(x, w)
        out.backward()
        assert (out.item(), w.grad.tolist()) == (11.0, [1.0, 2.0])


def test_a_stopped_compilation_is_stopped_again_later_and_its_form_stays():
    early = aotviz.trace_stages(f, *training(), until="metadata")
    form = early.form
    late = early.resume_until("trace")
    assert (early.stage, late.stage) == ("metadata", "trace")
    assert early.form is form
    assert early.resume_until("trace").graph.code == late.graph.code


def test_the_inputs_of_the_call_that_is_traced_are_not_written():
    x = torch.ones(2)
    aotviz.trace_stages(lambda x: x.mul_(2), x).resume()
    assert x.tolist() == [1, 1]


def test_options_keywords_and_modules_are_taken():
    module = torch.nn.Linear(2, 1, bias=False)
    stopped = aotviz.trace_stages(
        module, kwargs={"input": torch.ones(1, 2)}, until="partition", donate_buffers=False, dynamic=True
    )
    assert stopped.form.options.donate_buffers is False
    assert [str(d) for d in stopped.form.graph_inputs] == ["weight", "input"]
    with pytest.raises(TypeError, match="'partitioner' is not an option"):
        aotviz.trace_stages(f, *training(), partitioner=operator.add)
