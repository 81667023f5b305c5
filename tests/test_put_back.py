"""What Python code changes while it is traced by `aot_function` is as eager leaves it, or refused and put back."""

from __future__ import annotations

import collections

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import aotviz
from aotviz.lowerings import run_graph

todo: list[torch.Tensor] = []
done: list[torch.Tensor] = []
latest: object = "before"


class Moves(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        done.append(todo.pop())
        return g * len(done)


class Logs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(1, 1)
        self.inner.register_forward_hook(self.moves)

    def moves(self, module, inputs, output):
        done.append(todo.pop())
        return output * len(done)

    def forward(self, x):
        return self.inner(x)


def in_a_backward(x):
    return Moves.apply(x) * 2


@pytest.mark.parametrize("make", [lambda: aotviz.aot_function(in_a_backward, run_graph),
                                  lambda: aotviz.aot_module(Logs(), run_graph)])  # fmt: skip
def test_real_tensors_that_hooks_and_backwards_move_are_refused_and_stay(make):
    todo[:], done[:] = (torch.ones(1) for _ in range(3)), ()
    before = [*todo]
    with pytest.raises(aotviz.Refused, match="argument is changed"):
        make()(torch.ones(1, requires_grad=True)).sum().backward()
    assert all(map(torch.equal, todo, before))
    assert len(todo) == 3
    assert not done


class Normed(torch.nn.Module):
    """Its weight is a tensor that a hook before the forward assigns."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.scale = 2.0
        self.inner = torch.nn.utils.weight_norm(torch.nn.Linear(2, 2))

    def forward(self, x):
        y = self.inner(x)
        y.register_hook(lambda g: g * self.scale)
        return y * 2, y


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_a_hook_may_refer_to_a_module_with_weight_norm():
    def gradient(door):
        x = torch.ones(2, requires_grad=True)
        sum(one.sum() for one in door(Normed())(x)).backward()
        return x.grad

    torch.testing.assert_close(gradient(lambda module: aotviz.aot_module(module, run_graph)), gradient(lambda m: m))


class Box(dict):
    pass


@pytest.mark.parametrize(("held", "read"), [(lambda w: Box(w=w), lambda box: box["w"]),
                                            (lambda w: {"w": w}, lambda box: box["w"]),
                                            (lambda w: collections.OrderedDict(w=w), lambda box: box["w"]),
                                            (lambda w: [w], lambda box: box[0])])  # fmt: skip
def test_what_a_container_on_ctx_holds_may_be_written_before_the_backward(held, read):
    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.box = held(w)
            return x * w

        @staticmethod
        def backward(ctx, g):
            return g * read(ctx.box), None

    def gradient(function):
        x, w = torch.ones(2, requires_grad=True), torch.full((2,), 2.0)
        y = function(x, w)
        w.mul_(5)
        y.sum().backward()
        return x.grad

    def f(x, w):
        return Times.apply(x, w)

    torch.testing.assert_close(gradient(aotviz.aot_function(f, run_graph)), gradient(f))


def assigns(x):
    global latest
    latest = x * 2
    return latest + 1


@pytest.mark.parametrize("make", [torch.ones, lambda n: TwoTensor(torch.ones(n), torch.zeros(n))])
def test_a_global_holds_what_it_held_before_a_refusal(make):
    with pytest.raises(aotviz.Refused, match="latest"):
        aotviz.aot_function(assigns, run_graph)(make(3))
    assert latest == "before"


def test_a_variable_without_a_value_has_none_after_a_refusal():
    def outer():
        def inner(x):
            nonlocal kept
            kept = x * 2
            return kept + 1

        def held():
            return kept

        if torch is None:
            kept = None
        return inner, held

    inner, held = outer()
    with pytest.raises(aotviz.Refused):
        aotviz.aot_function(inner, run_graph)(torch.ones(3))
    with pytest.raises(NameError):
        held()


def test_a_generator_has_its_state_after_another_refusal():
    def f(x, generator):
        generator.manual_seed(5)
        x.requires_grad_()
        x.requires_grad_(False)
        return x * 2

    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    with pytest.raises(aotviz.Refused):
        aotviz.aot_function(f, run_graph)(torch.ones(2), generator)
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("other", [3, None, "text"])
def test_requires_grad_beside_an_argument_that_is_no_tensor(other):
    def f(x, other):
        x.requires_grad_()
        return (x * 2).sum()

    x = torch.ones(2)
    aotviz.aot_function(f, run_graph)(x, other).backward()
    assert torch.equal(x.grad, torch.full((2,), 2.0))


def test_requires_grad_of_the_base_of_an_input_that_is_not_used():
    def f(x, view):
        x.requires_grad_()
        return (x * 3).sum()

    def gradient(function):
        base = torch.arange(4.0)
        function(base, base[:2]).backward()
        return base.grad

    torch.testing.assert_close(gradient(aotviz.aot_function(f, run_graph)), gradient(f))
