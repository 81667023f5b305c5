"""Programs with operators that take functions, and with regions that are checkpointed or compiled apart.

Each entry makes a function and the inputs of one call. They are for torch.compile, which captures the functions that
such operators take; what `aotviz.compile` can trace without Dynamo is marked `traceable`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from .programs.registering import leaf, plain


@dataclass(frozen=True)
class Region:
    """A program; `make` gives the function and fresh inputs, the same in every call."""

    name: str
    make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    traceable: bool
    random: bool  # it draws random numbers


REGIONS: dict[str, Region] = {}


def region(traceable: bool = False, random: bool = False) -> Callable[[Any], Any]:
    def add(make: Any) -> Any:
        REGIONS[make.__name__] = Region(make.__name__, make, traceable, random)
        return make

    return add


@region()
def cond_on_a_tensor():
    def f(flag, x, w):
        return torch.cond(flag, lambda a, b: (a * b).sin(), lambda a, b: a - b.exp(), (x, w)) * w

    return f, (torch.tensor(True), leaf(3), leaf(3, k=1))


@region()
def cond_with_captured_parameters():
    layers = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    for k, layer in enumerate(layers):
        layer.requires_grad_(False)
        layer.weight.copy_(plain(3, 3, k=k))
        layer.bias.copy_(plain(3, k=k))
        layer.requires_grad_(True)

    class Gated(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = layers

        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda a: self.one(a), lambda a: self.other(a).relu(), (x,))

    return Gated(), (leaf(2, 3),)


@region()
def nested_cond():
    def f(x):
        def inner(a):
            return torch.cond(a.sum() > 10, lambda b: b * 2, lambda b: b * 3, (a,))

        return torch.cond(x.sum() > 0, inner, lambda a: a.cos(), (x.exp(),)).sum()

    return f, (leaf(4),)


@region()
def while_loop_forward_only():
    def f(x, n):
        def more(i, a):
            return i < n.sum()

        def body(i, a):
            return i + 1, a * 1.5 + i

        return while_loop(more, body, (torch.zeros((), dtype=torch.int64), x))[1]

    return f, (plain(3), torch.tensor([2, 2]))


@region()
def while_loop_with_a_gradient():
    def f(x):
        def more(i, a):
            return i < 3

        def body(i, a):
            return i + 1, a.sin() * 2

        return while_loop(more, body, (torch.zeros((), dtype=torch.int64), x))[1].sum()

    return f, (leaf(3),)


@region()
def scan_of_a_recurrence():
    def f(h, xs, w):
        def step(carry, x):
            following = torch.tanh(carry @ w + x)
            return following, following * 2

        last, all_of_them = scan(step, h, xs, dim=0)
        return last.sum() + all_of_them.cos().sum()

    return f, (leaf(2, 3), leaf(4, 2, 3, k=1), leaf(3, 3, k=2))


@region()
def scan_whose_carry_needs_no_gradient():
    def f(h, xs, w):
        def step(carry, x):
            return carry + (x * w) ** 2, carry * x

        last, all_of_them = scan(step, h, xs, dim=0)
        return last.sum() + all_of_them.cos().sum()

    return f, (plain(3), leaf(4, 3, k=1), leaf(3, k=2))


@region()
def associative_scan_of_sums():
    def f(xs):
        return associative_scan(lambda a, b: a + b, xs, dim=0, combine_mode="generic").sin()

    return f, (plain(4, 2),)


@region()
def map_over_rows():
    from torch._higher_order_ops.map import map as control_map

    def f(xs, y):
        return control_map(lambda x, z: (x * z).sin() + z, xs, y).sum()

    return f, (leaf(3, 2), leaf(2, k=1))


@region()
def flexible_attention():
    def f(q, k, v):
        def causal_bias(score, batch, head, query, key):
            return torch.where(query >= key, score + (key - query) * 0.1, -float("inf"))

        return flex_attention(q, k, v, score_mod=causal_bias)

    return f, tuple(plain(1, 2, 16, 16, k=k) for k in range(3))


@region(traceable=True)
def nested_compile_region_twice():
    @torch.compiler.nested_compile_region
    def block(x, w):
        return (x @ w).relu() + x

    def f(x, w, v):
        return block(block(x, w), v).sin()

    return f, (leaf(2, 3), leaf(3, 3, k=1), leaf(3, 3, k=2))


@region()
def nested_compile_region_in_a_module():
    class Block(torch.nn.Module):
        def __init__(self, k):
            super().__init__()
            self.w = torch.nn.Parameter(plain(3, 3, k=k))

        @torch.compiler.nested_compile_region
        def forward(self, x):
            return torch.nn.functional.gelu(x @ self.w) + x

    model = torch.nn.Sequential(*(Block(k) for k in range(3)))
    return model, (leaf(2, 3),)


def block_with_activation(x, w):
    return torch.nn.functional.gelu(x @ w).sin() * x


@region(traceable=True)
def checkpoint_not_reentrant():
    def f(x, w):
        y = checkpoint(block_with_activation, x, w, use_reentrant=False)
        return checkpoint(block_with_activation, y.cos(), w, use_reentrant=False).sum()

    return f, (leaf(2, 3), leaf(3, 3, k=1))


@region()
def checkpoint_reentrant():
    def f(x, w):
        return checkpoint(block_with_activation, x, w, use_reentrant=True).sum()

    return f, (leaf(2, 3), leaf(3, 3, k=1))


@region(random=True)
def checkpoint_with_dropout():
    def block(x, w):
        return torch.nn.functional.dropout(torch.nn.functional.gelu(x @ w), 0.5).sin()

    def f(x, w):
        y = checkpoint(block, x, w, use_reentrant=False)
        return checkpoint(block, y, w, use_reentrant=False).sum()

    return f, (leaf(4, 3), leaf(3, 3, k=1))


@region()
def selective_checkpoint():
    def policy(ctx, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE

    def f(x, w):
        contexts = functools.partial(create_selective_checkpoint_contexts, policy)
        y = checkpoint(block_with_activation, x, w, use_reentrant=False, context_fn=contexts)
        return checkpoint(block_with_activation, y, w, use_reentrant=False, context_fn=contexts).sum()

    return f, (leaf(2, 3), leaf(3, 3, k=1))


@region(random=True)
def dropout_twice():
    def f(x):
        y = torch.nn.functional.dropout(x, 0.3)
        return (torch.nn.functional.dropout(y.sin(), 0.5) * x).sum(), torch.rand(2)

    return f, (leaf(40),)


@region(traceable=True)
def gradient_inside():
    def f(x):
        g = torch.func.grad(lambda a: (a**3).sum())(x)
        return (g * x).sum()

    return f, (leaf(3),)


@region(traceable=True)
def vectorised_inside():
    def f(x, w):
        return torch.vmap(lambda a: (a @ w).sin())(x).sum()

    return f, (leaf(4, 3), leaf(3, 2, k=1))


class Clamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bound):
        ctx.save_for_backward(x)
        ctx.bound = bound
        return x.clamp(-bound, bound)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() <= ctx.bound) * 2, None


@region(traceable=True)
def custom_function_with_its_own_gradient():
    def f(x):
        return (Clamp.apply(x * 3, 1.0) * x).sum()

    return f, (leaf(5),)


class SplitAndScale(torch.autograd.Function):
    """Several outputs, one not differentiable, one input without a gradient."""

    @staticmethod
    def forward(ctx, x, scale):
        order = x.argsort()
        ctx.mark_non_differentiable(order)
        ctx.set_materialize_grads(False)
        ctx.scale = scale
        return x * scale, order, x.sin()

    @staticmethod
    def backward(ctx, first, _order, third):
        total = None if first is None else first * ctx.scale
        if third is not None:
            total = third * 7 if total is None else total + third * 7
        return total, None


@region(traceable=True)
def custom_function_with_several_outputs():
    def f(x):
        a, order, b = SplitAndScale.apply(x, 3.0)
        return a.sum(), order, b

    return f, (leaf(4),)


@region()
def region_inside_a_region():
    @torch.compiler.nested_compile_region
    def inner(x, w):
        return (x @ w).tanh().t()[:2].t() + x[:, :2]

    @torch.compiler.nested_compile_region
    def outer(x, w):
        return inner(inner_wide(x, w), w) * 2

    @torch.compiler.nested_compile_region
    def inner_wide(x, w):
        return (x @ w).sin()

    def f(x, w):
        return outer(outer(x, w).repeat(1, 2)[:, :3], w).sum()

    return f, (leaf(2, 3), leaf(3, 3, k=1))


@region(random=True)
def region_with_dropout():
    @torch.compiler.nested_compile_region
    def block(x, w):
        return torch.nn.functional.dropout((x @ w).relu(), 0.5) + x

    def f(x, w):
        return block(block(x, w), w).sum()

    return f, (leaf(4, 3), leaf(3, 3, k=1))
