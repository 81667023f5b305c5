"""Scalars on the CPU move to the GPU for CUDA graphs. Fake tensors have any device, so no GPU is needed."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import aotviz
from aotviz.whole_backward import cpu_scalars, engine, steps
from tests.compiled_autograd.test_backwards import Captures, run_as_it_is


def part_of(backward):
    """The graph of the one part of a backward, and the inputs that it was compiled for."""
    found = []

    def compiler(part, graph_module, inputs, symbols, reasons):
        found.append((graph_module.graph, list(inputs)))
        return run_as_it_is(part, graph_module, inputs, symbols, reasons)

    with Captures(compiler=compiler).on():
        backward()
    engine.reset()
    (part,) = found
    return part


def moved(graph, inputs, big="cuda:0", small="cpu"):
    """What would move if tensors with dimensions were on `big`, and scalars on `small`."""
    with FakeTensorMode():
        fakes = [torch.empty(one.shape, dtype=one.dtype, device=big if one.dim() else small) for one in inputs]
    return cpu_scalars.moves(graph, fakes)


def scaled():
    x = torch.ones(3, requires_grad=True)
    (x.exp() * torch.tensor(2.0)).backward(torch.ones(3))


def test_a_number_that_the_backward_reads_is_moved_to_its_gpu():
    graph, inputs = part_of(scaled)
    scalars = [i for i, one in enumerate(inputs) if one.dim() == 0]
    assert scalars
    assert moved(graph, inputs) == dict.fromkeys(scalars, torch.device("cuda:0"))


@pytest.mark.parametrize(("big", "small"), [("cpu", "cpu"), ("cuda:0", "cuda:0"), ("meta", "cpu")])
def test_where_no_gpu_waits_for_it_nothing_is_moved(big, small):
    assert moved(*part_of(scaled), big, small) == {}


def test_with_two_gpus_nothing_is_moved():
    graph, inputs = part_of(scaled)
    with FakeTensorMode():
        fakes = [torch.empty(one.shape, device=f"cuda:{i}" if one.dim() else "cpu") for i, one in enumerate(inputs)]
    assert cpu_scalars.moves(graph, fakes) == {}


@pytest.mark.parametrize("writer", [steps.add_to_gradient, torch.ops.aten.add_.Tensor])
def test_what_is_written_stays_where_it_is(writer):
    graph = torch.fx.Graph()
    old, gradient = graph.placeholder("old"), graph.placeholder("gradient")
    graph.call_function(torch.ops.aten.mul.Tensor, (gradient, old))
    inputs = [torch.tensor(1.0), torch.ones(3)]
    assert moved(graph, inputs)
    graph.call_function(writer, (old, gradient))
    assert not moved(graph, inputs)


def test_it_is_asked_for_only_with_cuda_graphs(monkeypatch):
    asked = []

    def moves(graph, inputs):
        asked.append([one.device.type for one in inputs])
        return {}

    monkeypatch.setattr(cpu_scalars, "moves", moves)
    with aotviz.compiled_autograd(mode="reduce-overhead"):
        scaled()
    assert asked
    del asked[:]
    with aotviz.compiled_autograd():
        scaled()
    assert not asked
