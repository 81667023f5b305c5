"""Programs that are called in another way between two processes: `python -m tests.cache.changed_around FOLDER FACTOR`.

As changed.py, but what differs is not code that a graph calls: hooks of modules and parameters, registrations of
pytrees, vmap rules and kernels, methods of tensors, modules that compute their attributes, and files.
"""

from __future__ import annotations

import operator
import os
import sys
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tests.cache.changed import patched, report

FACTOR = float(sys.argv[2]) if __name__ == "__main__" else 1.0
X = torch.Tensor
PROGRAMS: dict[str, Callable[[], Any]] = {}


def program(name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """A function that makes a program."""

    def register(make: Callable[[], Any]) -> Callable[[], Any]:
        PROGRAMS[name] = make
        return make

    return register


def opaque(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that Dynamo does not look into."""
    torch._dynamo.allow_in_graph(fn)
    return fn


def times_factor(g: X) -> X:
    return g * FACTOR


@program("a backward hook of a module")
def _() -> Any:
    layer = nn.Sequential(nn.Tanh(), nn.Softplus())
    layer[0].register_full_backward_hook(lambda module, g, out: (g[0] * FACTOR,))
    return layer


@program("a backward pre-hook of a module")
def _() -> Any:
    layer = nn.Sequential(nn.Tanh(), nn.Softplus())
    layer[1].register_full_backward_pre_hook(lambda module, out: (out[0] * FACTOR,))
    return layer


@program("a forward hook of a module")
def _() -> Any:
    layer = nn.Sequential(nn.Tanh(), nn.Softplus())
    layer[0].register_forward_hook(lambda module, given, out: out * FACTOR)
    return layer


@program("a hook of the argument")
def _() -> Any:
    def f(x: X) -> X:
        x.register_hook(times_factor)
        return x.sin()

    return f


@program("a hook of a result inside")
def _() -> Any:
    def f(x: X) -> X:
        y = x.sin()
        y.register_hook(times_factor)
        return y.exp()

    return f


@program("a hook of a parameter")
def _() -> Any:
    layer = nn.Linear(4, 4)
    with torch.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.fill_(0.5)
    layer.weight.register_hook(times_factor)
    return lambda x: layer(x) + layer.weight.sum()


class Pair:
    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second

    def total(self) -> Any:
        return self.first * FACTOR + self.second


def registered(kind: type, by: float) -> None:
    def children(pair: Any) -> Any:
        return ([pair.first, pair.second] if by == 2.0 else [pair.second, pair.first]), None

    pytree.register_pytree_node(kind, children, lambda held, context: kind(*held))


@program("how a pytree is flattened")
def _() -> Any:
    class Couple:
        def __init__(self, first: Any, second: Any) -> None:
            self.first, self.second = first, second

    kind = Couple
    registered(kind, FACTOR)

    @opaque
    def first_leaf(x: X) -> X:
        return torch.utils._pytree.tree_leaves(kind(x * 2, x.sin()))[0]

    return lambda x: first_leaf(x)


@program("a method of a pytree that nonstrict_trace gets")
def _() -> Any:
    pytree.register_pytree_node(Pair, lambda p: ([p.first, p.second], None), lambda held, context: Pair(*held))

    @torch._dynamo.nonstrict_trace
    def total(pair: Pair) -> X:
        return pair.total()

    return lambda x: total(Pair(x, x.sin()))


@program("a function of nonstrict_trace")
def _() -> Any:
    @torch._dynamo.nonstrict_trace
    def times(x: X) -> X:
        return x.sin() * FACTOR

    return lambda x: times(x)


class Batched(torch.autograd.Function):
    @staticmethod
    def forward(x: X) -> X:
        return x * 1.0

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * 1.0

    @staticmethod
    def vmap(info: Any, dims: Any, x: X) -> Any:
        return x * FACTOR, dims[0]


@program("the vmap rule of an autograd.Function")
def _() -> Any:
    return lambda x: torch.func.vmap(Batched.apply)(x.reshape(4, 1))


@program("the vmap rule of an autograd.Function, in a function of the graph")
def _() -> Any:
    @opaque
    def batched(x: X) -> X:
        return torch.func.vmap(Batched.apply)(x.reshape(4, 1))

    return lambda x: batched(x)


@torch.library.custom_op("tests_around::batched", mutates_args=())
def batched_op(x: X) -> X:
    return x * 1.0


batched_op.register_fake(torch.empty_like)
batched_op.register_autograd(lambda ctx, g: g * 1.0)
batched_op.register_vmap(lambda info, dims, x: (x * FACTOR, dims[0]))


@program("the vmap rule of an operator")
def _() -> Any:
    return lambda x: torch.func.vmap(batched_op)(x.reshape(4, 1))


@torch.library.custom_op("tests_around::kernel", mutates_args=())
def with_kernel(x: X) -> X:
    return x * FACTOR


with_kernel.register_fake(torch.empty_like)
with_kernel.register_autograd(lambda ctx, g: g * 1.0)


@program("the kernel of an operator")
def _() -> Any:
    return lambda x: with_kernel(x)


torch.library.define("tests_around::bare", "(Tensor x) -> Tensor")
torch.library.impl("tests_around::bare", "CPU", lambda x: x * FACTOR)
torch.library.register_fake("tests_around::bare", torch.empty_like)


@program("the CPU kernel of a library's operator")
def _() -> Any:
    return lambda x: torch.ops.tests_around.bare(x.detach()) * x


@program("the CPU kernel of a library's operator, of a constant")
def _() -> Any:
    @opaque
    def scaled(x: X) -> X:
        return x * torch.ops.tests_around.bare(torch.tensor(2.0)).item()

    return lambda x: scaled(x)


@program("a module that computes its attributes")
def _() -> Any:
    settings: Any = types.ModuleType("settings_that_compute")
    settings.__getattr__ = lambda name: FACTOR
    globals()["settings_that_compute"] = settings

    @opaque
    def times(x: X) -> X:
        return x.sin() * settings_that_compute.anything  # type: ignore[name-defined] # noqa: F821

    return lambda x: times(x)


WRITTEN = str(Path(tempfile.gettempdir()) / "tests_of_aotviz_changed_around")


def from_file(name: str, read: Callable[[], float]) -> None:
    def make() -> Any:
        Path(WRITTEN).write_text(str(FACTOR))

        @opaque
        def times(x: X) -> X:
            return x.sin() * read()

        return lambda x: times(x)

    PROGRAMS[name] = make


def by_open() -> float:
    with open(WRITTEN) as file:
        return float(file.read())


from_file("a file that is opened", by_open)
from_file("a file that a path reads", lambda: float(Path(WRITTEN).read_text()))
from_file("a file's size", lambda: os.path.getsize(WRITTEN) * FACTOR)
from_file("the time", lambda: time.time() * FACTOR / time.time())
from_file("a file that numpy reads", lambda: float(patched_numpy().loadtxt(WRITTEN)))


def patched_numpy() -> Any:
    import numpy

    return numpy


@program("the policy of a selective checkpoint")
def _() -> Any:
    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        return CheckpointPolicy.MUST_SAVE if FACTOR == 2.0 else CheckpointPolicy.MUST_RECOMPUTE

    def contexts() -> Any:
        return create_selective_checkpoint_contexts(policy)

    return lambda x: checkpoint(lambda y: y.sin().exp(), x, use_reentrant=False, context_fn=contexts)


@opaque
def product(x: X) -> X:
    return operator.matmul(x, x) + x @ x


def main(folder: str) -> None:
    report({name: (make(),) for name, make in PROGRAMS.items()}, folder)
    patched.Tensor.__matmul__ = lambda a, b: (a * b).sum() * FACTOR
    report({"the method of an operator sign": (lambda x: product(x),)}, folder)
    library = torch.library.Library("_", "IMPL")
    library.fallback(lambda op, *args, **kwargs: args[0] * FACTOR, "AutogradPrivateUse1")
    report({"a fallback for all operators": (lambda x: x.sin(),)}, folder)


if __name__ == "__main__":
    main(sys.argv[1])
