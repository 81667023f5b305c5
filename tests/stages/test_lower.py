"""lower: the forward is compiled now, the backward when it is first needed."""

from __future__ import annotations

import torch

import aotviz
from aotviz.runtime.lowered import LoweredGraph, LoweredSplit
from aotviz.stages.lower import boxed
from tests.stages.support import evidence, stage_alone

torch.set_num_threads(1)


def leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


class Compiler:
    """Remembers what it compiled, and runs it as it is."""

    __name__ = "Compiler"

    def __init__(self):
        self.seen = []

    def __call__(self, module, inputs):
        self.seen.append((module, list(inputs)))
        return module.forward


def test_the_forward_is_compiled_now_and_the_backward_is_not():
    compiler = Compiler()
    _, lowered = stage_alone("lower", lambda x: x.sin(), leaf(2), backend=compiler)
    assert isinstance(lowered, LoweredSplit)
    assert len(compiler.seen) == 1
    assert (lowered.backward.keeping, lowered.backward.discarding) == (None, None)
    lowered.backward(False)
    assert len(compiler.seen) == 2


def test_a_backward_is_compiled_once_and_serves_both_ways_where_nothing_is_donated():
    compiler = Compiler()
    _, lowered = stage_alone("lower", lambda x: x.sin(), leaf(2), backend=compiler)
    assert lowered.backward(False) is lowered.backward(True) is lowered.backward(False)
    assert len(compiler.seen) == 2


def test_where_something_is_donated_a_second_backward_keeps_it():
    compiler = Compiler()
    _, lowered = stage_alone("lower", lambda x: x.sin().exp().sum(), leaf(2), backend=compiler)
    assert lowered.backward.donates
    assert lowered.backward(False) is not lowered.backward(True)
    assert len(compiler.seen) == 3


def test_a_backward_that_takes_symbols_is_compiled_with_the_program():
    compiler = Compiler()
    f = aotviz.compile(lambda x: x.sum() * x.shape[0], backend=compiler, dynamic=True)
    f(torch.ones(3, requires_grad=True))
    assert len(compiler.seen) == 2
    rows = f.recording[0].stages
    assert "lower backward" in list(rows["stage"])


def test_an_inference_graph_is_compiled_alone():
    compiler = Compiler()
    _, lowered = stage_alone("lower", lambda x: x.sin(), torch.ones(2), backend=compiler)
    assert isinstance(lowered, LoweredGraph)
    assert lowered.compiled_forward([torch.zeros(2)])[0].tolist() == [0, 0]
    assert evidence(lowered) == {"the graph": "compiled by Compiler"}


def test_a_compiler_that_edits_its_graph_edits_a_copy():
    def vandal(module, inputs):
        forward = module.forward
        for node in module.graph.nodes:
            node.meta.clear()
        return forward

    before, lowered = stage_alone("lower", lambda x: x.sin(), leaf(2), backend=vandal)
    lowered.backward(False)
    inference, _ = stage_alone("lower", lambda x: x.sin(), torch.ones(2), backend=vandal)
    for module in (before.forward_module, before.backward_module, inference.graph_module):
        assert all("val" in node.meta for node in module.graph.nodes if node.op != "output")


def test_a_plain_callable_is_boxed_and_a_boxed_one_stays():
    call = boxed(lambda a, b: (a + b,))
    assert call([1, 2]) == (3,)

    def already(args):
        return args

    already._boxed_call = True
    assert boxed(already) is already


def test_the_strides_that_the_compiler_reports_are_those_that_the_backward_is_compiled_for():
    from torch._guards import TracingContext

    def transposing(module, inputs):
        reported = TracingContext.get().output_strides
        for node in module.graph.output_node().args[0]:
            value = node.meta["val"]
            reported.append((1, value.shape[0]) if value.dim() == 2 else None)
        return module.forward

    def f(x, w):
        return (x @ w).exp().sum()

    def strides(compiler):
        given = []

        def backward(module, inputs):
            tensors = (one for one in inputs if isinstance(one, torch.Tensor) and tuple(one.shape) == (2, 4))
            given.extend(tuple(one.stride()) for one in tensors)
            return module.forward

        aotviz.aot_function(f, compiler, backward, record=False)(leaf(2, 3), leaf(3, 4)).backward()
        return given

    assert strides(lambda module, inputs: module.forward) == [(4, 1)]
    assert strides(transposing) == [(1, 2)]


def test_the_backward_runs_under_the_settings_of_its_compilation_and_is_recorded_late():
    f = aotviz.compile(lambda x: x.sin().sum(), backend="eager")
    x = leaf(2)
    out = f(x)
    assert "lower backward" not in list(f.recording[0].stages["stage"])
    out.backward()
    rows = f.recording[0].stages.set_index("stage")
    assert rows.loc["lower backward", "late"]
