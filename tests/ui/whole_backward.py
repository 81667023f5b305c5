"""Recordings of whole backwards: of a step that is compiled in part, and of a model in eager."""

from __future__ import annotations

import torch
from torch import nn

import aotviz


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.norm = nn.LayerNorm(8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        return self.norm(x + self.layers(x)).square().mean()


def model_with_hooks() -> Model:
    torch.manual_seed(0)
    model = Model()
    model.layers[0].weight.register_hook(lambda gradient: gradient.clamp(-1, 1))
    model.norm.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    return model


def recording() -> aotviz.Recording:
    """The backward of a compiled forward, then that of an eager one, with hooks of three kinds, for two batch sizes."""
    torch._dynamo.reset()
    aotviz.compiled_autograd.reset()
    model = model_with_hooks()

    def step(model: Model, tokens: torch.Tensor) -> torch.Tensor:
        loss = model(tokens)
        loss.backward()
        return loss.detach()

    with aotviz.record() as recording:
        aotviz.compile(step, backend="eager", compiled_autograd=True)(model, torch.randint(0, 10, (4, 6)))
        for rows in (4, 2):
            model.zero_grad()
            eager_forward(model, rows)
    return recording


def eager_forward(model: Model, rows: int = 4) -> None:
    with aotviz.compiled_autograd(backend="eager"):
        x = model.embed(torch.randint(0, 10, (rows, 6)))
        x.register_hook(lambda gradient: gradient * 2)
        (model.layers(x) * x).sum().backward()


def of_an_eager_forward() -> aotviz.Recording:
    """The first compilation is the backward, the others are its parts."""
    aotviz.compiled_autograd.reset()
    with aotviz.record() as recording:
        eager_forward(model_with_hooks())
    return recording
