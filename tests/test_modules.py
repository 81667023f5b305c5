"""aot_module and aot_module_simplified against eager and torch's own, on the table of modules."""

from __future__ import annotations

import pytest
import torch

import aotviz
from aotviz.lowerings import run_graph
from aotviz.torch_private.fake_tensors import FakeTensorMode
from tests.doors import alone
from tests.oracle import compare
from tests.oracle.compare import judge
from tests.oracle.fuzz import worse
from tests.oracle.modules import MODULES
from tests.tiers import in_turns


@pytest.mark.parametrize("name", MODULES)
def test_eager_modules_equal_themselves(name):
    verdict = judge(MODULES[name], compare.eager_itself())
    assert verdict.status == "equal", str(verdict)


@pytest.mark.parametrize(("name", "door"), in_turns(MODULES, ["aot_module", "aot_module_simplified"]))
def test_our_modules_equal_eager_wherever_torchs_do(name, door):
    simplified = door == "aot_module_simplified"
    expected = compare.expect(MODULES[name])
    ours = judge(MODULES[name], compare.aot_module("ours", simplified), expected)
    if ours.status == "equal":
        return
    theirs = judge(MODULES[name], compare.aot_module("torch", simplified), expected)
    assert not worse(ours, theirs), f"ours: {ours}\ntorch: {theirs}"


@pytest.mark.parametrize("simplified", [False, True], ids=["aot_module", "aot_module_simplified"])
def test_a_modules_moving_average_gives_eagers_gradients(simplified):
    verdict = judge(MODULES["moving_average"], compare.aot_module("ours", simplified))
    assert verdict.status in ("equal", "details"), str(verdict)


@pytest.mark.parametrize("kind", ["RNN", "GRU"])
def test_a_recurrent_module_is_compiled_and_keeps_its_weights(kind):
    torch.manual_seed(0)
    module, x = getattr(torch.nn, kind)(3, 4), torch.rand(2, 5, 3)
    compiled = aotviz.compile(module, backend="eager")
    for _ in range(2):
        gradients = []
        for fn in (module, compiled):
            module.zero_grad()
            fn(x)[0].sum().backward()
            gradients.append(module.weight_ih_l0.grad)
        torch.testing.assert_close(*gradients)
    assert module._flat_weights[0] is module.weight_ih_l0


def test_weights_that_are_no_longer_tied_are_two_inputs():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, bias=False))
    module[1].weight = module[0].weight
    compiled, x = aotviz.compile(module, backend="eager"), torch.rand(2, 3)
    compiled(x).sum().backward()
    module.zero_grad()
    module[1].weight = torch.nn.Parameter(torch.full((3, 3), 2.0))
    expected = torch.autograd.grad(module(x).sum(), [*module.parameters()])
    torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), [*module.parameters()]), expected)
    module[0].weight = module[1].weight
    torch.testing.assert_close(compiled(x), module(x))


KEPT: list[torch.Tensor] = []


class KeepsItsGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        KEPT.append(gradient)
        return gradient * 2


def keeps_a_gradient(x):
    hidden = x * 2
    hidden.register_hook(lambda gradient: KEPT.append(gradient))
    return hidden.sin()


def test_a_hook_that_keeps_its_gradient_keeps_eagers():
    for call in (keeps_a_gradient, aotviz.compile(keeps_a_gradient, backend="eager")):
        call(torch.ones(2, 3, requires_grad=True)).sum().backward()
    expected, kept = KEPT
    KEPT.clear()
    torch.testing.assert_close(kept, expected)


def keeps_in_a_custom_backward(x):
    return KeepsItsGradient.apply(x)


def hooked(register):
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    getattr(module[0], register)(lambda module, given, made: KEPT.extend(t.detach() for t in [*made]))
    return module


@pytest.mark.parametrize(
    "fn",
    [
        keeps_in_a_custom_backward,
        hooked("register_forward_hook"),
        hooked("register_full_backward_hook"),
    ],
)
def test_a_hook_that_keeps_tensors_is_refused_and_keeps_none_of_the_traces(fn):
    with pytest.raises(aotviz.Refused, match=r"(object|global) 'KEPT'|stores a tensor in KEPT"):
        alone(fn)(torch.ones(2, 3, requires_grad=True))
    assert not KEPT


def test_a_call_with_fake_and_real_tensors_names_one_of_each():
    with FakeTensorMode() as mode:
        fake = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    real, x = torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.ones(3, 2)
    stand_in = mode.from_tensor(x)
    of_module = r"the parameter '0.weight' of Sequential is a fake tensor, and the argument 'input' is not"
    with pytest.raises(ValueError, match=of_module):
        aotviz.aot_module(fake, run_graph)(x)
    simplified = aotviz.aot_module_simplified(fake, [x], run_graph)
    with pytest.raises(ValueError, match=of_module):
        simplified(x)
    with pytest.raises(ValueError, match=r"the argument 'input' is a fake tensor, and the parameter '0.weight' is not"):
        aotviz.aot_module(real, run_graph)(stand_in)
    with pytest.raises(ValueError, match=r"""the argument "d\['a'\]" is a fake tensor, and the argument 'y' is not"""):
        aotviz.aot_function(lambda d, y: d["a"] + y, run_graph)({"a": stand_in}, x)
    assert aotviz.aot_module(fake, run_graph)(stand_in).shape == (3, 2)
    assert torch.equal(aotviz.aot_module_simplified(real, [stand_in], run_graph)(x)[0], real(x))


def test_parameters_that_become_fake_after_the_first_call_are_named():
    module = torch.nn.Linear(2, 2)
    compiled = aotviz.aot_module(module, run_graph)
    compiled(torch.ones(1, 2))
    with FakeTensorMode():
        module.weight = torch.nn.Parameter(torch.empty(2, 2))
    with pytest.raises(ValueError, match="the parameter 'weight' of Linear is a fake tensor"):
        compiled(torch.ones(1, 2))
