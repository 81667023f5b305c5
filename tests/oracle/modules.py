"""Modules for aot_module and aot_module_simplified: parameters and buffers are lifted, not passed.

Each entry makes a module and the inputs of one call; the parameters and buffers are watched, so their gradients,
mutations and version counters are compared too.  Modules take tensors and return a tuple of tensors, which is what
aot_module_simplified asks for.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from .compare import Setup, Trial
from .programs.registering import leaf, plain

MODULES: dict[str, Trial] = {}


def module(make: Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]) -> Callable[[], object]:
    def build() -> Setup:
        made, args = make()
        with torch.no_grad():
            for k, p in enumerate(made.parameters()):
                p.copy_(plain(*p.shape, k=k))
        return Setup(made, args, watch={**dict(made.named_parameters()), **dict(made.named_buffers())})

    MODULES[make.__name__] = Trial(make.__name__, (build,), f"# tests/oracle/modules.py: {make.__name__}")
    return make


class Tuple(nn.Module):
    """Returns the result of the inner module in a tuple."""

    def __init__(self, *inner: nn.Module):
        super().__init__()
        self.inner = nn.Sequential(*inner)

    def forward(self, x):
        return (self.inner(x),)


class MovingAverage(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))
        self.register_buffer("ema", plain(3, k=1))

    def forward(self, x):
        y = (x - self.ema) * self.w
        with torch.no_grad():
            self.ema.mul_(0.5).add_(x.mean(0))
        return (y,)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        self.calls.add_(1)
        return x * self.w, self.calls * 2


class ReturnsItsParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(2, 3))

    def forward(self, x):
        return self.w, self.w.t(), x @ self.w


class ReturnsItsBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", plain(3))

    def forward(self, x):
        return self.b, x * self.b


class PartlyFrozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = nn.Linear(3, 2).requires_grad_(False)

    def forward(self, x):
        return (self.b(self.a(x).relu()),)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = nn.Linear(3, 3)
        self.b.weight = self.a.weight

    def forward(self, x):
        return (self.b(self.a(x).relu()),)


class UnusedParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Parameter(torch.ones(3))
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return (x * self.used,)


class MutatesItsInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))

    def forward(self, x):
        x.add_(1)
        return x * self.w, x


@module
def perceptron():
    return Tuple(nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2)), (plain(2, 4),)


@module
def batch_norm_in_training():
    return Tuple(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.ReLU()), (leaf(2, 2, 3, 3),)


@module
def batch_norm_in_evaluation():
    return Tuple(nn.BatchNorm1d(3)).eval(), (plain(4, 3),)


@module
def moving_average():
    return MovingAverage(), (plain(4, 3),)


@module
def call_counter():
    return Counter(), (leaf(3),)


@module
def returns_its_parameter():
    return ReturnsItsParameter(), (leaf(4, 2),)


@module
def returns_its_buffer():
    return ReturnsItsBuffer(), (leaf(3),)


@module
def partly_frozen():
    return PartlyFrozen(), (leaf(2, 3),)


@module
def tied_weights():
    return Tied(), (plain(2, 3),)


@module
def unused_parameter():
    return UnusedParameter(), (plain(3),)


@module
def mutates_its_input():
    return MutatesItsInput(), (plain(3),)


@module
def embedding():
    return Tuple(nn.Embedding(5, 3), nn.LayerNorm(3)), (torch.tensor([[0, 2], [2, 4]]),)


@module
def transformer_layer():
    return Tuple(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)), (leaf(1, 3, 4),)


@module
def recurrent_cell():
    return Tuple(nn.GRUCell(3, 2)), (leaf(2, 3),)
