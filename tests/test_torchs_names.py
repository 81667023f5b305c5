"""What functorch.compile and torch's export of AOTAutograd offer, offered here under the same names."""

from __future__ import annotations

import functorch.compile
import pytest
import torch
from torch import nn
from torch._higher_order_ops.effects import _EffectType

import aotviz
from aotviz.lowerings import run_graph


@pytest.fixture(autouse=True, scope="module")
def operators():
    """An operator with a side effect: it appends to `LOG`."""
    library = torch.library.Library("aotviz_names", "FRAGMENT")
    library.define("note(Tensor x, str tag) -> Tensor")

    def note(x, tag):
        LOG.append(tag)
        return x.clone()

    library.impl("note", note, "CompositeExplicitAutograd")
    torch.library.register_fake("aotviz_names::note", lambda x, tag: torch.empty_like(x), lib=library)
    torch.library._register_effectful_op("aotviz_names::note", _EffectType.ORDERED)
    yield
    library._destroy()


LOG: list[str] = []


class Noting(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))

    def forward(self, x):
        torch.ops.aotviz_names.note(x.detach(), "first")
        y = x * self.weight
        torch.ops.aotviz_names.note(y.detach(), "second")
        return (y.sum(),)


@pytest.mark.parametrize("name", ["make_boxed_func", "make_boxed_compiler", "compiled_function", "compiled_module"])
def test_names_of_functorch_are_offered(name):
    assert hasattr(functorch.compile, name)
    assert callable(getattr(aotviz, name))


def test_a_boxed_compiler_makes_functions_of_one_list():
    kinds = []

    def compiler(module, _inputs):
        kinds.append(module)
        return module

    boxed = aotviz.make_boxed_compiler(compiler)
    x = torch.rand(3, requires_grad=True)
    result = aotviz.compiled_function(lambda x: x.sin(), boxed)(x)
    result.sum().backward()
    torch.testing.assert_close(x.grad, x.cos())
    assert len(kinds) == 2
    made = aotviz.make_boxed_func(lambda a, b: a - b)
    assert made._boxed_call
    assert made([3, 1]) == 2


def test_a_compiled_module_is_a_module_over_the_same_parameters():
    module = nn.Linear(2, 2)
    compiled = aotviz.compiled_module(module, run_graph)
    compiled(torch.ones(1, 2)).sum().backward()
    assert module.weight.grad is not None


def test_decompositions_for_all_calls_are_applied_and_a_calls_own_win(monkeypatch):
    def twice(x):
        return x + x

    def thrice(x):
        return x + x + x

    sine = torch.ops.aten.sin.default
    monkeypatch.setitem(aotviz.aot_autograd_decompositions, sine, twice)
    x = torch.rand(3)
    torch.testing.assert_close(aotviz.aot_function(lambda x: x.sin(), run_graph)(x), 2 * x)
    own = aotviz.aot_function(lambda x: x.sin(), run_graph, decompositions={sine: thrice})
    torch.testing.assert_close(own(x), 3 * x)


def test_a_simplified_module_has_its_parameters_and_buffers():
    module = nn.BatchNorm1d(2)
    compiled = aotviz.aot_module_simplified(module, [torch.ones(3, 2)], run_graph)
    compiled(torch.rand(3, 2))[0].square().sum().backward()
    assert dict(compiled.named_parameters()).keys() == {"weight", "bias"}
    assert dict(compiled.named_buffers()).keys() == {"running_mean", "running_var", "num_batches_tracked"}
    assert module.weight.grad is not None
    compiled.zero_grad()
    assert module.weight.grad is None


@pytest.mark.parametrize(("pre_dispatch", "trace_joint"), [(False, False), (False, True), (True, False)])
def test_an_export_takes_and_returns_tokens_and_says_so(pre_dispatch, trace_joint):
    module, x = Noting(), torch.ones(2)
    options = {"trace_joint": trace_joint, "output_loss_index": 0 if trace_joint else None}
    LOG.clear()
    graph, signature = aotviz.aot_export_module(module, (x,), **options, pre_dispatch=pre_dispatch)
    assert LOG == []
    token, total, *gradients = graph(torch.empty(0), module.weight.detach(), x)
    assert LOG == ["first", "second"]
    assert (token.shape, total.item()) == ((0,), 3.0)
    inputs = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    assert signature.input_tokens == (inputs[0],)
    assert len(signature.output_tokens) == 1
    assert signature.inputs_to_parameters == {inputs[1]: "weight"}
    assert [g.tolist() for g in gradients] == ([[1.0, 1.0]] if trace_joint else [])


def test_an_export_without_effects_has_no_tokens():
    graph, signature = aotviz.aot_export_module(nn.Linear(2, 1), (torch.ones(2),), trace_joint=False)
    assert (signature.input_tokens, signature.output_tokens) == ((), ())
    assert len(graph.graph.find_nodes(op="placeholder")) == 3


def test_an_export_refuses_what_torchs_refuses():
    module, x = nn.Linear(2, 1), torch.ones(2)
    with torch._functorch.config.patch(functionalize_rng_ops=True):
        with pytest.raises(RuntimeError, match="functionalize_rng_ops is on"):
            aotviz.aot_export_module(module, (x,), trace_joint=False)
        with pytest.raises(RuntimeError, match="functionalize_rng_ops is on"):
            aotviz.aot_export_joint_simple(lambda x: (x.sin(),), (x,), trace_joint=False)
    with pytest.raises(RuntimeError, match="trace_joint=False"):
        aotviz.aot_export_module(module, (x,), trace_joint=True, output_loss_index=0, pre_dispatch=True)
