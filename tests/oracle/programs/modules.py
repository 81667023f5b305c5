"""Modules."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from ..compare import Setup
from .registering import leaf, plain, program


def _module_call(module: nn.Module, *args: Any, loss: bool = False) -> Setup:
    """A module as a function of its parameters and buffers, the way aot_module lifts them."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}

    def f(tensors, *args):
        return functional_call(module, tensors, args)

    return Setup(f, (tensors, *args))


def _fixed(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        for k, p in enumerate(module.parameters()):
            p.copy_(plain(*p.shape, k=k))
    return module


@program("module", "mutation")
def batch_norm_in_training():
    return _module_call(_fixed(nn.BatchNorm1d(3)), leaf(4, 3))


@program("module", "inference graph")
def batch_norm_in_evaluation():
    return _module_call(_fixed(nn.BatchNorm1d(3)).eval(), plain(4, 3))


@program("module", "mutation")
def convolution_and_batch_norm():
    return _module_call(_fixed(nn.Sequential(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.ReLU())), plain(2, 2, 3, 3))


@program("module")
def perceptron():
    return _module_call(_fixed(nn.Sequential(nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2))), plain(2, 4))


@program("module", "duplicate")
def tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 3)
            self.b = nn.Linear(3, 3)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x).relu())

    return _module_call(_fixed(Tied()), leaf(2, 3))


@program("module")
def layer_norm_and_softmax():
    return _module_call(_fixed(nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.Softmax(-1))), leaf(2, 4))


@program("module")
def embedding_by_integer_index():
    return _module_call(_fixed(nn.Embedding(5, 3)), torch.tensor([[0, 2], [2, 4]]))


@program("module")
def attention_block():
    module = _fixed(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True))
    return _module_call(module, leaf(1, 3, 4))
