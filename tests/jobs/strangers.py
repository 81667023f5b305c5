"""Jobs of a person who knew neither the code of `explain` nor the other jobs: those whose kinds were told wrongly.

See recompiles.py for how a job is written.
"""

from __future__ import annotations

import threading

import torch
from torch import nn


def layers_unfrozen_in_turn(cured):
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)))
    model.requires_grad_(cured)
    step = torch.compile(model, backend="aot_eager")
    for layer in reversed(model):
        layer.requires_grad_(True)
        step(torch.ones(2, 4)).sum().backward()  # here


NORMS = {}


class Clamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx, grad):
        return grad


class Measured(Clamp):
    @staticmethod
    def backward(ctx, grad):
        NORMS["clamp"] = grad.detach().norm()  # here
        return grad


def statistics_in_a_backward(cured):
    clamp = Clamp if cured else Measured
    scaled = torch.compile(lambda x: clamp.apply(x * 2) * 3, backend="aot_eager")
    scaled(torch.ones(3, requires_grad=True)).sum().backward()


class Settings:
    kind = None


class Classifier(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.linear, self.settings = nn.Linear(4, 2), Settings()
        self.settings.kind = kind

    def forward(self, x, labels):
        if self.settings.kind is None:  # here
            self.settings.kind = "one label"
        return nn.functional.cross_entropy(self.linear(x), labels)


def kind_set_by_the_first_call(cured):
    model = torch.compile(Classifier("one label" if cured else None), backend="aot_eager")
    for _ in range(3):
        model(torch.ones(2, 4), torch.tensor([0, 1])).backward()


@torch.compile(backend="aot_eager")
def rescaled(x):
    return x / (x.abs().max().item() + 1.0)  # here


def setting_of_another_thread(cured):
    if not cured:
        torch._dynamo.config.capture_scalar_outputs = True

    def worker():
        if cured:
            torch._dynamo.config.capture_scalar_outputs = True
        rescaled(torch.ones(4))

    thread = threading.Thread(target=worker)
    thread.start()
    thread.join()


def cell(h, x):
    return torch.tanh(h + x)


def time_steps_unrolled(cured):
    step = torch.compile(cell, backend="aot_eager") if cured else cell

    def recurrent(x):
        h = torch.zeros_like(x[0])
        for t in range(x.shape[0]):
            h = step(h, x[t])  # here
        return h

    recurrent(torch.ones(300, 4)) if cured else torch.compile(recurrent, backend="aot_eager")(torch.ones(300, 4))
