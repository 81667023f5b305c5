"""Programs with transforms of torch.func, for test_func_transforms.py. Each takes tensors and returns tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from torch.func import stack_module_state as stacked
from torch.utils import _pytree as pytree

Program = Callable[..., Any]
INSIDE: dict[str, Program] = {}  # the transform is inside the compiled function


def inside(program: Program) -> Program:
    INSIDE[program.__name__] = program
    return program


class Loud(torch.autograd.Function):
    """Its backward is not the derivative of its forward, so that a backward that is dropped is seen."""

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * 7


class Generated(Loud):
    generate_vmap_rule = True


class WithRule(Loud):
    @staticmethod
    def vmap(info, in_dims, x):
        return Loud.apply(x), in_dims[0]


class StraightThrough(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.round()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g * 2


class WithJvp(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(*inputs)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * 7

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return t * x * 5


def cubed(x):
    return (x**3).sum()


net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
dropping = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
normed = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
nets = [nn.Linear(3, 2) for _ in range(3)]


def no_grad_of(x):
    with torch.no_grad():
        return x.sin()


# x: 3, w: 3 and requires a gradient, x2: 2 by 3


@inside
def grad_of_a_sum(x, w, x2):
    return grad(cubed)(x)


@inside
def grad_and_value_of_a_sum(x, w, x2):
    return grad_and_value(cubed)(x)


@inside
def grad_with_aux(x, w, x2):
    return grad(lambda t: (cubed(t), t.cos()), has_aux=True)(x)


@inside
def grad_of_two_arguments(x, w, x2):
    return grad(lambda a, b: (a * b.sin()).sum(), argnums=(0, 1))(x, x.exp())


@inside
def grad_of_a_dict(x, w, x2):
    return grad(lambda p: (p["a"] * p["b"][0]).sum())({"a": x, "b": [x.cos()]})


@inside
def grad_of_grad(x, w, x2):
    return grad(lambda t: grad(cubed)(t).sin().sum())(x)


@inside
def grad_of_grad_of_grad(x, w, x2):
    return grad(lambda t: grad(lambda u: grad(cubed)(u).sin().sum())(t).sum())(x)


@inside
def grad_of_what_it_closes_over(x, w, x2):
    return grad(lambda t: (t * x.sin() * w).sum())(x)


@inside
def grad_with_a_write_inside(x, w, x2):
    return grad(lambda t: t.sin().mul_(2).sum())(x)


@inside
def grad_with_no_grad_inside(x, w, x2):
    return grad(lambda t: (t * no_grad_of(t)).sum())(x)


@inside
def vjp_called_once(x, w, x2):
    return vjp(torch.sin, x)[1](torch.ones_like(x))


@inside
def vjp_with_aux(x, w, x2):
    return (lambda found: (found[0], found[2], found[1](found[0])))(vjp(lambda t: (t.sin(), t.cos()), x, has_aux=True))


@inside
def vjp_called_twice(x, w, x2):
    return (lambda pull: (pull(x), pull(x * 2)))(vjp(torch.sin, x)[1])


@inside
def vjp_of_two(x, w, x2):
    return vjp(lambda a, b: (a * b, a.sin()), x, w)[1]((x, w))


@inside
def jvp_of_sin(x, w, x2):
    return jvp(torch.sin, (x,), (w,))


@inside
def jvp_with_aux(x, w, x2):
    return jvp(lambda t: (t.sin(), t.cos()), (x,), (w,), has_aux=True)


@inside
def jvp_of_jvp(x, w, x2):
    return jvp(lambda t: jvp(torch.sin, (t,), (w,))[1], (x,), (w,))


@inside
def jvp_of_grad(x, w, x2):
    return jvp(grad(cubed), (x,), (w,))


@inside
def grad_of_jvp(x, w, x2):
    return grad(lambda t: jvp(torch.sin, (t,), (w,))[1].sum())(x)


@inside
def linearized(x, w, x2):
    return linearize(torch.sin, x)[1](w)


@inside
def jacobian_in_reverse(x, w, x2):
    return jacrev(torch.sin)(x)


@inside
def jacobian_in_chunks(x, w, x2):
    return jacrev(torch.sin, chunk_size=2)(x)


@inside
def jacobian_forward(x, w, x2):
    return jacfwd(torch.sin)(x)


@inside
def jacobian_with_aux(x, w, x2):
    return jacrev(lambda t: (t.sin(), t.cos()), has_aux=True)(x)


@inside
def jacobian_of_two(x, w, x2):
    return jacrev(lambda a, b: a * b, argnums=(0, 1))(x, w)


@inside
def jacobian_of_jacobian(x, w, x2):
    return jacrev(jacrev(torch.sin))(x)


@inside
def hessian_of_a_sum(x, w, x2):
    return hessian(cubed)(x)


@inside
def hessian_by_two_reverses(x, w, x2):
    return jacrev(grad(cubed))(x)


@inside
def hessian_of_hessian(x, w, x2):
    return hessian(hessian(cubed))(x)


@inside
def hessian_forward_over_forward(x, w, x2):
    return jacfwd(jacfwd(cubed))(x)


@inside
def vmap_of_sin(x, w, x2):
    return vmap(torch.sin)(x2)


@inside
def vmap_over_columns(x, w, x2):
    return vmap(lambda c: c * c.sum(), in_dims=1, out_dims=1)(x2)


@inside
def vmap_with_one_shared(x, w, x2):
    return vmap(lambda a, b: (a * b).sum(), in_dims=(0, None))(x2, x)


@inside
def vmap_in_chunks(x, w, x2):
    return vmap(lambda a: a.sin().sum(), chunk_size=1)(x2)


@inside
def vmap_of_vmap(x, w, x2):
    return vmap(vmap(lambda a: a * 2))(x2)


@inside
def vmap_of_grad(x, w, x2):
    return vmap(grad(cubed))(x2)


@inside
def vmap_of_grad_and_value(x, w, x2):
    return vmap(grad_and_value(cubed))(x2)


@inside
def grad_of_vmap(x, w, x2):
    return grad(lambda t: vmap(torch.sin)(t).sum())(x2)


@inside
def vmap_of_jacrev(x, w, x2):
    return vmap(jacrev(torch.sin))(x2)


@inside
def vmap_of_jacfwd(x, w, x2):
    return vmap(jacfwd(torch.sin))(x2)


@inside
def vmap_of_hessian(x, w, x2):
    return vmap(hessian(cubed))(x2)


@inside
def vmap_of_jvp(x, w, x2):
    return vmap(lambda t: jvp(torch.sin, (t,), (t,))[1])(x2)


@inside
def vmap_of_vjp(x, w, x2):
    return vmap(lambda t: vjp(torch.sin, t)[1](t)[0])(x2)


@inside
def vmap_of_a_matrix_product(x, w, x2):
    return vmap(torch.mv, in_dims=(None, 0))(x2 @ x2.T, x2.T)


@inside
def vmap_of_a_condition_on_sizes(x, w, x2):
    return vmap(lambda a: a * 2 if a.shape[0] > 2 else a)(x2)


@inside
def vmap_of_a_write(x, w, x2):
    return vmap(lambda a: a.sin().add_(1))(x2)


@inside
def vmap_with_the_same_randomness(x, w, x2):
    return vmap(lambda a: F.dropout(a, 0.5), randomness="same")(x2)


@inside
def vmap_with_different_randomness(x, w, x2):
    return vmap(lambda a: a + torch.rand_like(a), randomness="different")(x2)


@inside
def grad_of_dropout(x, w, x2):
    return grad(lambda t: F.dropout(t.exp(), 0.5).sum())(x)


@inside
def grad_of_noise(x, w, x2):
    return grad(lambda t: (t * torch.randn(3)).sum())(x)


@inside
def vmap_of_grad_of_dropout(x, w, x2):
    return vmap(grad(lambda t: F.dropout(t.exp(), 0.5).sum()), randomness="different")(x2)


@inside
def vmap_of_a_condition_that_is_refused(x, w, x2):
    return vmap(lambda a: a if a.sum() > 0 else -a)(x2)


@inside
def gradients_of_a_model(x, w, x2):
    return grad(lambda p: functional_call(net, p, (x2,)).square().sum())(dict(net.named_parameters()))


@inside
def gradients_per_sample(x, w, x2):
    return vmap(grad(lambda p, one: functional_call(net, p, (one[None],)).square().sum()), in_dims=(None, 0))(
        dict(net.named_parameters()), x2
    )


@inside
def gradients_of_a_model_with_dropout(x, w, x2):
    return grad(lambda p: functional_call(dropping, p, (x2,)).square().sum())(dict(dropping.named_parameters()))


@inside
def an_ensemble(x, w, x2):
    return (lambda state: vmap(lambda p, b: functional_call(nets[0], (p, b), (x2,)))(*state))(stacked(nets))


@inside
def jacobian_of_a_model(x, w, x2):
    return jacrev(lambda one: functional_call(net, dict(net.named_parameters()), (one,)))(x)


@inside
def hessian_of_a_model(x, w, x2):
    return hessian(lambda one: functional_call(net, dict(net.named_parameters()), (one,)).sum())(x)


@inside
def a_model_in_which_buffers_are_given(x, w, x2):
    return functional_call(
        normed, {**dict(normed.named_parameters()), **{k: v.clone() for k, v in normed.named_buffers()}}, (x2,)
    )


@inside
def a_function_of_its_own_under_grad(x, w, x2):
    return grad(lambda t: Loud.apply(t).sum())(x)


@inside
def a_function_of_its_own_under_grad_of_grad(x, w, x2):
    return grad(lambda t: grad(lambda u: Loud.apply(u).sum())(t).sin().sum())(x)


@inside
def a_function_of_its_own_under_vjp(x, w, x2):
    return vjp(Loud.apply, x)[1](w)


@inside
def a_function_of_its_own_under_jacrev(x, w, x2):
    return jacrev(Generated.apply)(x)


@inside
def a_function_of_its_own_under_vmap(x, w, x2):
    return vmap(Generated.apply)(x2)


@inside
def a_function_of_its_own_with_a_rule_under_vmap(x, w, x2):
    return vmap(WithRule.apply)(x2)


@inside
def a_function_of_its_own_under_vmap_of_grad(x, w, x2):
    return vmap(grad(lambda t: Generated.apply(t).sum()))(x2)


@inside
def a_function_of_its_own_with_a_rule_under_vmap_of_grad(x, w, x2):
    return vmap(grad(lambda t: WithRule.apply(t).sum()))(x2)


@inside
def a_function_of_its_own_under_grad_of_vmap(x, w, x2):
    return grad(lambda t: vmap(Generated.apply)(t).sum())(x2)


@inside
def a_function_of_its_own_without_a_rule_under_vmap(x, w, x2):
    return vmap(Loud.apply)(x2)


@inside
def straight_through_under_grad(x, w, x2):
    return grad(lambda t: (StraightThrough.apply(t) * t).sum())(x)


@inside
def straight_through_under_vmap_of_grad(x, w, x2):
    return vmap(grad(lambda t: (StraightThrough.apply(t) * t).sum()))(x2)


@inside
def a_jvp_of_its_own(x, w, x2):
    return jvp(WithJvp.apply, (x,), (w,))


@inside
def a_jvp_of_its_own_under_jacfwd(x, w, x2):
    return jacfwd(WithJvp.apply)(x)


@inside
def a_jvp_of_its_own_under_grad(x, w, x2):
    return grad(lambda t: WithJvp.apply(t).sum())(x)


@inside
def a_jvp_of_its_own_under_hessian(x, w, x2):
    return hessian(lambda t: WithJvp.apply(t).sum())(x)


@inside
def a_function_of_its_own_beside_a_grad(x, w, x2):
    return (grad(cubed)(x), Loud.apply(x))


@inside
def a_function_of_its_own_on_what_grad_gives(x, w, x2):
    return Loud.apply(grad(cubed)(x))


@inside
def a_function_of_its_own_that_is_closed_over_by_grad(x, w, x2):
    return (lambda y: grad(lambda t: (t * y).sum())(x))(Loud.apply(x))


@inside
def more_work_around_a_function_under_grad(x, w, x2):
    return grad(lambda t: Loud.apply(t * 2).sum())(x.sin()).cos() + w


AROUND = {
    "grad_around": (lambda x: x.sin().sum(), lambda f, x: grad(f)(x)),
    "vjp_around": (lambda x: x.sin(), lambda f, x: vjp(f, x)[1](x)),
    "jvp_around": (lambda x: x.sin(), lambda f, x: jvp(f, (x,), (x,))),
    "vmap_around": (lambda x: x.sin() * x.sum(), lambda f, x: vmap(f)(x[None])),
    "jacrev_around": (lambda x: x.sin(), lambda f, x: jacrev(f)(x)),
    "jacfwd_around": (lambda x: x.sin(), lambda f, x: jacfwd(f)(x)),
    "hessian_around": (lambda x: (x**3).sum(), lambda f, x: hessian(f)(x)),
    "vmap_of_grad_around": (lambda x: (x**3).sum(), lambda f, x: vmap(grad(f))(x[None])),
    "functional_call_around": (lambda x: net(x), lambda f, x: f(x) * grad(lambda t: t.sum())(x).sum()),
    "grad_around_a_function_of_its_own": (lambda x: Loud.apply(x).sum(), lambda f, x: grad(f)(x)),
    "vmap_around_a_function_of_its_own": (lambda x: Generated.apply(x), lambda f, x: vmap(f)(x[None])),
    "vmap_around_a_grad": (lambda x: grad(cubed)(x), lambda f, x: vmap(f)(x[None])),
    "grad_around_a_grad": (lambda x: grad(cubed)(x).sum(), lambda f, x: grad(f)(x)),
    "vmap_around_dropout": (lambda x: F.dropout(x, 0.5), lambda f, x: vmap(f, randomness="different")(x[None])),
}


ALL = {**{name: (program, None) for name, program in INSIDE.items()}, **AROUND}


def results(program, around, needs_gradients, make=lambda program: program):
    """What a program gives: its results, the gradients of its inputs, the state of the random generator."""
    torch.manual_seed(0)
    x, w, x2 = (torch.randn(*shape, requires_grad=needs_gradients) for shape in ((3,), (3,), (2, 3)))
    torch.manual_seed(1)
    compiled = make(program)
    found = pytree.tree_leaves(compiled(x, w, x2) if around is None else around(compiled, x))
    roots = [one.sum() for one in found if one.requires_grad]
    gradients = torch.autograd.grad(sum(roots), (x, w, x2), allow_unused=True) if needs_gradients and roots else ()
    return [*found, *gradients, torch.get_rng_state()]


def same(one, other):
    if one is None or other is None:
        return one is other
    return one.requires_grad == other.requires_grad and torch.allclose(one, other, atol=1e-5)
