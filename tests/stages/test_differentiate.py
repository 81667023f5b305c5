"""differentiate: the gradients of a program as a call of their own, which has a history."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
import torch
import torch.fx as fx

import aotviz
from aotviz import pipeline
from aotviz.ir import verify
from aotviz.ir.forms import GradientRequest, TracedCall
from aotviz.lowerings import run_graph
from aotviz.pipeline import GRADIENT, TRAINING, Observer, run
from aotviz.torch_private.functional_tensors import FunctionalTensor
from aotviz.tracing.second_order import NotDifferentiableAgain, Traced, at_hand
from tests.stages.support import evidence, fingerprint, targets

torch.set_num_threads(1)
(STAGE,) = GRADIENT


def leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


def request_for(fn, *inputs, tangents=(False,), **options):
    """What the pipeline is asked when a backward of `fn` runs under create_graph=True."""
    split = aotviz.trace_stages(fn, *inputs, until="donated buffers", backend="eager", **options).form
    traced = Traced(split, pipeline.traced_again)
    return GradientRequest(split.options, split.name, at_hand(split, split.saved, traced), tangents)


def alive(kind):
    gc.collect()
    return {id(thing): thing for thing in gc.get_objects() if type(thing) is kind}


def differentiated(*args, **options):
    request = request_for(*args, **options)
    was = fingerprint(request.at_hand)[0]
    call = STAGE.run(request)
    assert fingerprint(request.at_hand)[0] == was
    assert isinstance(call, TracedCall)
    verify.verify(call, STAGE.name)
    return request, call


def test_what_was_saved_and_the_tangents_come_in_and_the_gradients_go_out():
    _, call = differentiated(lambda x, w: (x * w).sin(), leaf(3), leaf(3))
    names = [str(descriptor) for descriptor in call.graph_inputs]
    assert names[-3:] == ["tangent of output", "x", "w"]
    assert all(name.startswith("saved ") or name in "xw" for name in names[:-3])
    assert [str(output) for output in call.outputs] == ["gradient of x", "gradient of w"]
    assert call.name.startswith("gradient of ")


def test_only_inputs_that_are_differentiated_and_the_tangents_have_a_history():
    _, call = differentiated(lambda x, w: (x * w).sin(), leaf(3), torch.ones(3), tangents=(True,))
    wanted = [str(d) for d, info in zip(call.graph_inputs, call.meta.input_info, strict=True) if info.requires_grad]
    assert wanted == ["tangent of output", "x"]
    assert call.needs_gradients


def test_gradients_that_depend_on_nothing_with_a_history_say_so():
    _, call = differentiated(lambda x: x * 3, leaf(3))
    assert evidence(call)["gradient of x"] == "it does not depend on an input that requires grad"
    assert not call.needs_gradients


def test_a_tangent_that_did_not_come_in_takes_no_part():
    _, call = differentiated(lambda x, w: (x.exp(), w.sin()), leaf(3), leaf(3), tangents=(None, False))
    assert [str(output) for output in call.outputs] == ["gradient of w"]
    assert "exp" not in targets(call.forward.graph())


def test_the_forward_is_run_again_only_where_its_trace_is_gone():
    calls = []

    def fn(x):
        calls.append(x.shape)
        return x.sin().exp()

    request = request_for(fn, leaf(3))
    before = len(calls)
    first = STAGE.run(request)
    assert len(calls) == before
    request.at_hand.traced.forget()
    second = STAGE.run(request)
    assert len(calls) == before + 1
    assert targets(first.forward.graph()) == targets(second.forward.graph())


def test_a_function_that_is_another_one_by_now_is_refused():
    factor = 2.0

    def fn(x):
        return (x * factor).sin()

    request = request_for(fn, leaf(3))
    request.at_hand.traced.forget()
    STAGE.run(request)
    factor = 3.0
    with pytest.raises(NotDifferentiableAgain, match="something that has changed since it was compiled"):
        STAGE.run(request)


def test_the_function_is_traced_under_the_modes_of_its_call():
    def fn(x, w):
        return (x @ w).sin()

    with torch.autocast("cpu", dtype=torch.bfloat16):
        request = request_for(fn, leaf(3, 3), leaf(3, 3))
    request.at_hand.traced.forget()
    with torch.no_grad():
        call = STAGE.run(request)
    assert "bfloat16" in {str(value.dtype).removeprefix("torch.") for value in call.args}


@pytest.mark.slow
def test_nothing_of_a_trace_outlives_the_first_backward():
    def fn(x, w):
        return (x * w).sin()

    graphs, functional_tensors = alive(fx.Graph), alive(FunctionalTensor)
    f = aotviz.aot_function(fn, run_graph, record=False)
    f(leaf(3), leaf(3)).sum().backward()
    assert not alive(FunctionalTensor).keys() - functional_tensors.keys()
    made = alive(fx.Graph).keys() - graphs.keys()
    assert len(made) == 3, "the compiled forward, the backward, and the compiled backward"


def test_a_second_request_gets_the_same_graph():
    request = request_for(lambda x: x.sin().exp(), leaf(3))
    first, second = STAGE.run(request), STAGE.run(request)
    assert targets(first.forward.graph()) == targets(second.forward.graph())


def test_the_rest_of_the_pipeline_takes_it_from_there():
    _, call = differentiated(lambda x: x.sin().exp(), leaf(3))
    program = run(TRAINING[4:], call, Observer())
    assert [slot.kind for slot in program.lowered.call.slots] == ["output"]


def drawn_in_a_checkpoint(x):
    return torch.utils.checkpoint.checkpoint(lambda a: torch.rand_like(a) * a.sin(), x, use_reentrant=False).exp()


def test_random_numbers_that_were_not_kept_are_drawn_again_from_the_saved_state():
    run_operators = [
        node.target for node in STAGE.run(request_for(drawn_in_a_checkpoint, leaf(3))).forward.graph().nodes
    ]
    assert run_operators.count(torch.ops.higher_order.run_with_rng_state) == 1
    assert torch.ops.aten.rand_like.default not in run_operators


def test_random_numbers_that_were_not_kept_are_named():
    request = request_for(drawn_in_a_checkpoint, leaf(3))
    without_state = replace(request, at_hand=replace(request.at_hand, unpacked={}))
    with pytest.raises(
        NotDifferentiableAgain, match=r"depends on the result of aten.rand_like.*Run this part in eager"
    ):
        STAGE.run(without_state)
