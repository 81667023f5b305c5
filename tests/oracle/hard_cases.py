"""Programs that torch's own AOTAutograd gets wrong, or refuses, in torch 2.13 (measured before aotviz was written).

    python -m tests.oracle.hard_cases           # prints the table of docs/programs.md

Each is a function of a compiler: it compiles, calls and differentiates as a user would, and returns what the user sees.
Eager's answer is that of the compiler that does nothing.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.autograd import grad
from torch.nn import functional
from torch.testing._internal.two_tensor import TwoTensor

import aotviz
from aotviz.torch_private.pytree import tree_flatten
from tests.doors import alone

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
CASES: dict[str, Callable[[Compiler], Any]] = {}


def case(title: str) -> Callable[..., Any]:
    def register(program: Callable[[Compiler], Any]) -> Callable[[Compiler], Any]:
        CASES[title] = program
        return program

    return register


def leaf(*shape: int) -> torch.Tensor:
    return torch.linspace(-1.1, 1.3, torch.Size(shape).numel()).reshape(shape).clone().requires_grad_()


def grown(*shape: int) -> torch.Tensor:
    return leaf(*shape) * 1.5


def two(*shape: int) -> TwoTensor:
    return TwoTensor(leaf(*shape).detach(), leaf(*shape).detach() * 2)


# --- silently wrong in torch ------------------------------------------------------------------------------------------


@case("a moving average, read and then updated under no_grad")
def moving_average(c: Compiler) -> Any:
    def f(x, w, average):
        y = (x - average) * w
        with torch.no_grad():
            average.mul_(0.5).add_(x.mean(0))
        return y

    x, w, average = leaf(4, 3), leaf(3), torch.ones(3)
    c(f)(x, w, average).sin().sum().backward()
    return x.grad, w.grad, average


@case("a hessian")
def hessian(c: Compiler) -> Any:
    return torch.autograd.functional.hessian(c(lambda x: (x**3).sum()), leaf(3).detach())


@case("a gradient that is None in eager")
def no_gradient(c: Compiler) -> Any:
    x, w = leaf(3), leaf(3)
    first, _ = c(lambda x, w: (x * 2, w * 2))(x, w)
    first.sum().backward()
    return x.grad, w.grad


class Doubles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g.mul_(2)


@case("a custom backward that writes to its gradient")
def custom_backward_writes(c: Compiler) -> Any:
    x, incoming = leaf(3), torch.ones(3)
    c(lambda x: Doubles.apply(x))(x).backward(incoming)
    return x.grad, incoming


# --- refused by torch ---------------------------------------------------------------------------------------------


@case("a gradient of a gradient")
def double_backward(c: Compiler) -> Any:
    x = leaf(3)
    (first,) = grad(c(lambda x: x.sin() * x)(x).sum(), x, create_graph=True)
    return grad(first.pow(2).sum(), x)


@case("a gradient penalty")
def gradient_penalty(c: Compiler) -> Any:
    x, w = leaf(3), leaf(3)
    out = c(lambda x, w: (x * w).tanh())(x, w).sum()
    (first,) = grad(out, x, create_graph=True)
    (out + first.norm()).backward()
    return x.grad, w.grad


@case("torch.autograd.grad inside the function")
def gradient_inside(c: Compiler) -> Any:
    def f(x, w):
        energy = (x * w).pow(3).sum()
        (force,) = grad(energy, x, create_graph=True)
        return energy + force.pow(2).sum()

    x, w = leaf(3), leaf(3)
    out = c(f)(x, w)
    out.backward()
    return out, x.grad, w.grad


@case("retain_graph=True though buffers are donated")
def retained(c: Compiler) -> Any:
    x = leaf(3)
    out = c(lambda x: (x.sin().exp() * x).sum())(x)
    out.backward(retain_graph=True)
    out.backward()
    return x.grad


@case("an input that is not a leaf, multiplied in place by a parameter")
def mutated_by_parameter(c: Compiler) -> Any:
    source, w = leaf(3), leaf(3)
    x = source * 2
    out = c(lambda x, w: x.mul_(w) + 1)(x, w)
    (out.sum() + x.sum()).backward()
    return x, source.grad, w.grad


@case("vmap over a compiled backward")
def vmapped_backward(c: Compiler) -> Any:
    x = leaf(3)
    return grad(c(lambda x: x.sin() * 2)(x), x, torch.eye(3), is_grads_batched=True)


@case("an input written through a view of another dtype")
def other_dtype(c: Compiler) -> Any:
    a = leaf(4).detach()
    bits = a.view(torch.int32)
    return c(lambda a, bits: (bits.add_(1), a * 2)[1])(a, bits), a, bits


@case("overlapping inputs that are views of different tensors")
def different_bases(c: Compiler) -> Any:
    a = leaf(6).detach()
    first, second = a[:4], a.detach()[2:]
    return c(lambda p, q: (p.mul_(2), q + 1)[1])(first, second), a, first, second


@case("overlapping inputs of which one requires grad")
def different_histories(c: Compiler) -> Any:
    x = leaf(4)
    a = x * 2
    alias, w = a.detach(), leaf(4)
    out = c(lambda a, b, w: (b.mul_(w), a * 3)[1])(a, alias, w)
    (out.sum() + alias.sum()).backward()
    return out, a, x.grad, w.grad


@case("a leaf and a view of it, written under no_grad")
def leaf_and_view(c: Compiler) -> Any:
    def f(x, v):
        with torch.no_grad():
            v.mul_(2)
        return x * 3

    x = leaf(3, 2)
    out = c(f)(x, x[0])
    out.sum().backward()
    return out, x, x.grad


@case("a plain gradient for a tensor subclass")
def plain_tangent(c: Compiler) -> Any:
    t = two(3).requires_grad_()
    out = c(lambda t: t * 2)(t)
    out.backward(torch.ones(3))
    return out, getattr(t.grad, "a", t.grad)  # aotviz makes it one like `t`, of which both parts are alike


@case("gradients for some of several tensor subclass outputs")
def partial_tangents(c: Compiler) -> Any:
    t, x = two(3).requires_grad_(), leaf(3)
    first, _, third = c(lambda t, x: (t * 2, t.sin(), x * 3))(t, x)
    torch.autograd.backward([first, third], [two(3), torch.ones(3)])
    return t.grad, x.grad


@case("tensor subclass outputs that are views of each other")
def subclass_outputs_alias(c: Compiler) -> Any:
    def f(t):
        y = t * 2
        return y, y.view(-1)

    whole, flat = c(f)(two(2, 3))
    with torch.no_grad():
        whole.mul_(2)
    return whole, flat


@case("tensor subclass inputs that are views of each other, and written")
def subclass_inputs_alias(c: Compiler) -> Any:
    t = two(2, 3)
    view = t.view(-1)
    return c(lambda t, v: (t.mul_(2), v + 1)[1])(t, view), t, view


@case("two outputs that depend on different inputs, one backward after the other")
def backward_in_turn(c: Compiler) -> Any:
    x, w = leaf(3), leaf(3)
    first, second = c(lambda x, w: (x.sin(), w.cos()))(x, w)
    first.sum().backward()
    second.sum().backward()
    return x.grad, w.grad


@case("an input that is resized in place")
def resized(c: Compiler) -> Any:
    def f(x):
        x.resize_(2, 3)
        x.fill_(2)
        return x + 1

    x = leaf(4).detach()
    return c(f)(x), x, x.untyped_storage().nbytes()


@case("an input given another storage by set_, and then written")
def set_then_written(c: Compiler) -> Any:
    def f(x, y):
        x.set_(y * 2)
        x.add_(1)
        return x * 3

    x, y = leaf(3).detach(), leaf(4).detach()
    return c(f)(x, y), x, y


@case("a tensor subclass that is passed twice, and written")
def duplicate_subclass(c: Compiler) -> Any:
    t = two(3)
    return c(lambda t, again: t.mul_(2) + again)(t, t), t


@case("jvp of a compiled function")
def forward_mode(c: Compiler) -> Any:
    x = leaf(3).detach()
    return torch.func.jvp(c(lambda x: x.sin() * x), (x,), (torch.ones(3),))


@case("vmap of a compiled function")
def vmapped(c: Compiler) -> Any:
    return torch.func.vmap(c(lambda x: x.sin().sum()))(leaf(3, 2).detach())


@case("torch.func.grad of a compiled function")
def function_gradient(c: Compiler) -> Any:
    return torch.func.grad(c(lambda x: x.sin().sum()))(leaf(3).detach())


@case("an assignment to the `.data` of an input")
def assigned_data(c: Compiler) -> Any:
    def f(w, x):
        loss = (w * x).pow(2).sum()
        w.data = w.data - 0.1 * x
        return loss, w * 2

    w, x = leaf(3), leaf(3).detach()
    loss, out = c(f)(w, x)
    out.sum().backward()
    return loss, out, w, w.grad, w.is_leaf


@case("requires_grad_() on an input")
def turned_on(c: Compiler) -> Any:
    x = leaf(3).detach()
    out = c(lambda x: (x * 2, x.requires_grad_() ** 2)[1])(x)
    out.sum().backward()
    return out, x.requires_grad, x.grad


@case("a call under no_grad after one for training")
def no_grad_afterwards(c: Compiler) -> Any:
    compiled, w = c(lambda x, w: x * w), leaf(3)
    first = compiled(leaf(3), w)
    with torch.no_grad():
        second = compiled(leaf(3), w)
    return first.requires_grad, second.requires_grad, second


@case("an embedding with sparse gradients")
def sparse_gradient(c: Compiler) -> Any:
    w = leaf(4, 2)
    c(lambda w: functional.embedding(torch.tensor([1, 3, 1]), w, sparse=True).sin().sum())(w).backward()
    return w.grad.is_sparse, w.grad.to_dense()


@case("inputs that overlap only inside a tensor subclass, and are written")
def overlap_inside(c: Compiler) -> Any:
    t = two(3)
    return c(lambda t, a: (a.mul_(2), t + 1)[1])(t, t.a), t, t.a


# --- judging ------------------------------------------------------------------------------------------------------


def boxed(graph: Any, _inputs: Any) -> Any:
    from functorch.compile import make_boxed_func

    return make_boxed_func(graph)


def torch_aot(fn: Callable[..., Any]) -> Callable[..., Any]:
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    return aot_function(fn, boxed, boxed, min_cut_rematerialization_partition)


COMPILERS: dict[str, Compiler] = {
    "aotviz.aot_function": alone,
    "aotviz.compile": partial(aotviz.compile, backend="eager"),
    "torch.compile, aot_eager": partial(torch.compile, backend="aot_eager"),
    "torch's aot_function": torch_aot,
}


def result(program: Callable[[Compiler], Any], compiler: Compiler) -> Any:
    """What the user sees: values; or the error."""
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return program(compiler)
        except Exception as error:
            return error


def outcome(title: str, compiler: Compiler) -> tuple[str, Any]:
    """("right", values), ("wrong", values) or ("refused", the error)."""
    program = CASES[title]
    expected, found = result(program, lambda fn: fn), result(program, compiler)
    if isinstance(expected, Exception):
        raise expected
    if isinstance(found, Exception):
        return "refused", found
    return ("right" if _same(expected, found) else "wrong"), found


def _same(expected: Any, found: Any) -> bool:
    one, other = tree_flatten(expected)[0], tree_flatten(found)[0]
    return len(one) == len(other) and all(map(_equal, one, other))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, TwoTensor) and isinstance(other, TwoTensor):
        return _equal(one.a, other.a) and _equal(one.b, other.b)
    if isinstance(one, torch.Tensor) and type(one) is type(other):
        alike = (one.shape, one.dtype, one.requires_grad) == (other.shape, other.dtype, other.requires_grad)
        return alike and torch.allclose(one.detach(), other.detach())
    return type(one) is type(other) and bool(one == other)


def table() -> list[str]:
    """The rows of docs/programs.md."""
    rows = [f"| A program with | {' | '.join(COMPILERS)} |", "| --- " * (1 + len(COMPILERS)) + "|"]
    for title in CASES:
        found = (outcome(title, compiler)[0] for compiler in COMPILERS.values())
        rows.append(f"| {title} | {' | '.join(found)} |")
    return rows


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print("\n".join(table()))
