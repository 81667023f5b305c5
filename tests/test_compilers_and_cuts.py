"""Any partitioner with any compiler: writes that stay in the graph, partitioners by name, what a compiler is handed."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from functorch.compile import default_partition, min_cut_rematerialization_partition, ts_compile
from torch import fx, nn

import aotviz
import aotviz.frontends.backend
from aotviz.lowerings import run_graph

pytestmark = pytest.mark.usefixtures("clean_dynamo")

CUTS = pytest.mark.parametrize(
    "partition_fn",
    ["default_partition", default_partition, min_cut_rematerialization_partition],
    ids=["name", "default", "min_cut"],
)


def trained(module, compiled, x):
    for _ in range(2):
        compiled(x).square().sum().backward()
    return [*(p.grad for p in module.parameters()), *module.buffers()]


def check_batch_norm(compile_module):
    module, x = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), torch.randn(4, 3)
    twin = copy.deepcopy(module)
    torch.testing.assert_close(trained(twin, compile_module(twin), x), trained(module, module, x))


@CUTS
def test_a_batch_norm_that_the_graph_writes_is_trained_by_any_partitioner(partition_fn):
    options = {"partition_fn": partition_fn, "keep_inference_input_mutations": True}
    check_batch_norm(lambda module: torch.compile(module, backend="aotviz_eager", options=options))


def test_a_batch_norm_is_trained_on_inductor_by_the_default_partitioner():
    options = {"partition_fn": "default_partition"}
    check_batch_norm(lambda module: torch.compile(module, backend="aotviz", options=options))


def test_a_module_keeps_its_writes_in_the_graph_by_torchs_door_too():
    check_batch_norm(lambda module: aotviz.aot_module(module, run_graph, keep_inference_input_mutations=True))


def test_a_partitioner_that_there_is_not_is_named():
    compiled = torch.compile(torch.sin, backend="aotviz_eager", options={"partition_fn": "half"})
    with pytest.raises(Exception, match="there is no partitioner 'half'; there are default_partition, min_cut"):
        compiled(torch.ones(3, requires_grad=True))


@pytest.mark.parametrize(
    ("half", "says"),
    [
        (0, "partition_fn 'forgets' returned a forward with 0 outputs. It needs the first 1 of the joint graph"),
        (1, "partition_fn 'forgets' returned a backward with 1 outputs. It needs the last 2 of the joint graph"),
    ],
)
def test_a_partitioner_that_forgets_an_output_is_named(half, says):
    def forgets(joint, joint_inputs, **others):
        halves = default_partition(joint, joint_inputs, **others)
        output = halves[half].graph.output_node()
        output.args = (output.args[0][:half],)
        return halves

    compiled = aotviz.compile(lambda x, w: (x * w).sum(), backend="eager", partition_fn=forgets)
    with pytest.raises(Exception, match=re.escape(says)):
        compiled(torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True))


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_functorchs_script_compiler_takes_the_graphs(training):
    x = torch.rand(3, requires_grad=training)
    result = aotviz.aot_function(lambda x: x.sin().cos() * 2, ts_compile)(x)
    torch.testing.assert_close(result, x.sin().cos() * 2)
    if training:
        (gradient,) = torch.autograd.grad(result.sum(), x)
        torch.testing.assert_close(gradient, -2 * x.sin().sin() * x.cos())


def test_a_compiler_of_the_users_is_handed_a_plain_graph_module():
    kinds = []

    def compiler(module, _inputs):
        kinds.append(type(module).__mro__[1])
        return module.forward

    aotviz.aot_function(lambda x: x.sin(), compiler)(torch.rand(3, requires_grad=True)).sum().backward()
    assert kinds == [fx.GraphModule] * 2


def by_a_backend_of_ones_own(module):
    return torch.compile(module, backend=lambda graph, inputs: aotviz.aot_module_simplified(graph, inputs, run_graph))


def by_options(module):
    return torch.compile(module, backend="aotviz_eager", options={"partition_fn": "default_partition"})


def as_a_graph(module):
    return aotviz.aot_module(fx.symbolic_trace(module), run_graph)


@pytest.mark.parametrize("compile_module", [by_a_backend_of_ones_own, by_options, as_a_graph])
def test_a_program_that_is_a_graph_draws_once_for_both_halves(compile_module):
    module = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Tanh(), nn.Linear(8, 8), nn.Dropout())
    x, gradients = torch.randn(4, 8), []
    for call in (module, compile_module(module)):
        torch.manual_seed(0)
        module.zero_grad()
        call(x).square().sum().backward()
        gradients.append([parameter.grad for parameter in module.parameters()])
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


def test_the_default_partitioner_computes_nothing_again_of_a_program_that_is_a_graph():
    module, graphs = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Sigmoid()), []

    def kept(graph, inputs):
        graphs.append(graph)
        return run_graph(graph, inputs)

    compiled = torch.compile(module, backend=lambda graph, x: aotviz.aot_module_simplified(graph, x, kept))
    compiled(torch.randn(4, 8)).sum().backward()
    computed, again = ({str(node.target) for node in graph.graph.nodes} for graph in graphs)
    once = {"aten.addmm.default", "aten.tanh.default", "aten.sigmoid.default"}
    assert (computed & once, again & once) == (once, set())
