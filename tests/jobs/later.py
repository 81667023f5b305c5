"""Jobs of kinds from public reports, whose notes were made before they were run; see recompiles.py for how a job is
written."""

from __future__ import annotations

import contextlib

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm


def assertion_with_a_value(cured):
    @torch.compile(backend="aot_eager")
    def entropy(p):
        if cured:
            assert (p >= 0).all(), "negative"
        else:
            assert (p >= 0).all(), f"negative: {p.min()}"  # here
        return -(p * p.log()).sum()

    entropy(torch.rand(4) + 0.1)


def number_of_numpy(cured):
    @torch.compile(backend="aot_eager")
    def jitter(image):
        gain = torch.rand(()) if cured else np.random.uniform(0.8, 1.2)  # here
        return (image * gain).clamp(0, 1)

    jitter(torch.rand(3, 4))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = weight_norm(nn.Linear(4, 4)), nn.Linear(4, 2)

    def forward(self, x):  # here
        return self.head(self.encoder(x).tanh())


def counted(forward):
    def wrapped(*args):
        return forward(*args)

    return wrapped


def forward_wrapped_late(cured):
    net = Net()
    model = torch.compile(net, backend="aot_eager")
    for step in range(3):
        if step == (0 if cured else 1):
            net.encoder.forward = counted(net.encoder.forward)
        model(torch.randn(2, 4))


def weights_cached_in_validation(cured):
    net = Net()
    model = torch.compile(net, backend="aot_eager")
    model(torch.randn(2, 4))
    with contextlib.nullcontext() if cured else parametrize.cached():
        model(torch.randn(2, 4))


ACTIVE = {0, 1, 2, 3}


def heads_pruned_in_a_set(cured):
    mask = torch.ones(4)

    @torch.compile(backend="aot_eager")
    def heads(x):
        if cured:
            return (x * mask[:, None]).sum(0)
        return sum(x[i] for i in range(4) if i in ACTIVE)  # here

    for stage in range(3):
        heads(torch.randn(4, 2))
        ACTIVE.discard(stage)
        mask[stage] = 0
