"""A Python float that changes from call to call: one more program, in which it is a tensor, or one for each value."""

from __future__ import annotations

import contextlib
import math

import pytest
import torch
from torch import nn

import aotviz
import aotviz.frontends.backend
from aotviz.torch_private import versions
from tests.tiers import slow

pytestmark = pytest.mark.usefixtures("clean_dynamo")

VALUES = (0.5, 0.6, 0.7, 0.65)

AS_TENSORS = {  # two programs serve all values
    "factor": lambda x, s: (x * s).sin(),
    "summand": lambda x, s: x + s,
    "divisor": lambda x, s: (x / s).softmax(-1),
    "dividend": lambda x, s: s / x,
    "square": lambda x, s: x * s**2,
    "minimum": lambda x, s: x * min(s, 1.0),
    "with an int": lambda x, s: x * (s * x.shape[0]),
    "root": lambda x, s: x * math.sqrt(s),
    "compared": lambda x, s: x * (x > s),
    "into a copy": lambda x, s: x.clone().mul_(s),
    "half": lambda x, s: (x.half() * s).float(),
    "branch": lambda x, s: x * s if s > 0.2 else x,
}
EXPRESSIONS = {"square", "minimum", "with an int", "root"}
BY_VALUE = {  # an operator takes the number only
    "alpha": lambda x, s: torch.add(x, x, alpha=s),
    "clamp": lambda x, s: x.clamp(-s, s),
    "full": lambda x, s: x + torch.full((3,), s).sum(),
    "int": lambda x, s: x * int(s * 10),
    "returned": lambda x, s: (x * 2, s * 2),
}
TRAINING = pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])


def same_as_eager(function, compiled, training, values=VALUES):
    x = torch.rand(4, 4, requires_grad=training)
    for value in values:
        found = []
        for call in (function, compiled):
            torch.manual_seed(1)
            result = call(x, value)
            results = result if isinstance(result, tuple) else (result,)
            gradients = torch.autograd.grad(results[0].sum(), x) if training else ()
            found.append((*results, *gradients))
        torch.testing.assert_close(found[1], found[0])


@TRAINING
@pytest.mark.parametrize("name", AS_TENSORS)
def test_a_changing_float_takes_one_more_program(name, training):
    if name in EXPRESSIONS and not versions.has("an expression of a float becomes a tensor"):
        pytest.skip("this torch takes a program for each value")
    with aotviz.record() as recording:
        same_as_eager(AS_TENSORS[name], torch.compile(AS_TENSORS[name], backend="aotviz_eager"), training)
    assert len(recording.compilations) == 2
    assert "scalars" in list(recording[1].stages.stage)
    evidence = recording[1].evidence
    assert "s" in list(evidence.subject[evidence.stage == "scalars"])


@TRAINING
@pytest.mark.parametrize("name", BY_VALUE)
def test_a_float_that_must_be_a_number_is_fixed_to_each_value(name, training):
    with aotviz.record() as recording:
        same_as_eager(BY_VALUE[name], torch.compile(BY_VALUE[name], backend="aotviz_eager"), training)
    outside = name == "returned" and versions.has("a float that is only returned is no part of a graph")
    assert len(recording.compilations) >= (1 if outside else 2)
    assert not any(compilation.data.error for compilation in recording.compilations)  # what began again is forgotten


@pytest.mark.parametrize("training", [slow(False), True], ids=["inference", "training"])
def test_inductor_takes_a_second_value(training):
    def function(x, s):
        return (x * s).sin()

    same_as_eager(function, torch.compile(function, backend="aotviz"), training)


def test_inductor_takes_a_second_value_that_must_be_a_number():
    def function(x, s):
        return x.clamp(-s, s) * min(s, 1.0)

    same_as_eager(function, torch.compile(function, backend="aotviz"), False, (0.5, 0.6))


def test_a_float_is_a_tensor_from_the_first_call_where_the_program_is_dynamic():
    def function(x, s):
        return x * s

    with aotviz.record() as recording:
        same_as_eager(function, torch.compile(function, backend="aotviz_eager", dynamic=True), True)
    assert len(recording.compilations) == 1


def test_dropout_takes_a_changing_probability():
    def function(x, p):
        return nn.functional.dropout(x, p)

    same_as_eager(function, torch.compile(function, backend="aotviz_eager"), True)


def test_a_float_of_a_module_and_one_in_a_closure_may_change():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 0.5

        def forward(self, x):
            return x * self.scale * temperature

    temperature = 1.5
    module = Scaled()
    compiled = torch.compile(module, backend="aotviz_eager")
    x = torch.rand(3)
    for scale, other in ((0.5, 1.5), (0.6, 1.5), (0.7, 2.5), (0.8, 3.5)):
        module.scale, temperature = scale, other
        torch.testing.assert_close(compiled(x), module(x))


def test_a_schedule_of_learning_rates_compiles_twice():
    def step(weight, gradient, rate):
        with torch.no_grad():
            weight.sub_(gradient * rate)

    compiled = torch.compile(step, backend="aotviz_eager")
    expected, got, gradient = torch.ones(3), torch.ones(3), torch.rand(3)
    with aotviz.record() as recording:
        for epoch in range(6):
            step(expected, gradient, 0.1 * 0.9**epoch)
            compiled(got, gradient, 0.1 * 0.9**epoch)
    torch.testing.assert_close(got, expected)
    assert len(recording.compilations) == 2


def test_the_nodes_in_place_of_a_float_lie_on_the_line_that_uses_it():
    def function(x, s):
        return x * s

    compiled = torch.compile(function, backend="aotviz_eager")
    with aotviz.record() as recording:
        compiled(torch.rand(3, requires_grad=True), 0.5)
        compiled(torch.rand(3, requires_grad=True), 0.6)
    nodes = recording[1].graph("joint", "scalars").nodes
    lines = nodes.source_code[(nodes.target == "aten.mul.Tensor") & ~nodes.is_backward]
    assert list(lines) == ["return x * s"]


def test_a_gradient_that_needs_the_logarithm_of_a_changing_float_is_eagers():
    def function(x, s):
        return s**x

    traced = versions.has("a logarithm of a symbolic float is traced")
    told = pytest.warns(aotviz.RanInEager, match="logarithm of a Python float")
    with contextlib.nullcontext() if traced else told:
        same_as_eager(function, torch.compile(function, backend="aotviz_eager"), True)
