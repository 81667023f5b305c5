"""Jobs of another person who had not seen `explain`, of whole programs: those whose kinds were told wrongly.

See recompiles.py for how a job is written.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Adapted(nn.Module):
    def __init__(self, names, cured):
        super().__init__()
        self.base, self.cured, self.active = nn.Linear(4, 4), cured, names[0]
        self.adapters = nn.ParameterDict({name: torch.randn(4, 4) for name in names})
        self.chosen = self.adapters[names[0]]

    def forward(self, x):
        return self.base(x) + x @ (self.chosen if self.cured else self.adapters[self.active])  # here


def adapters_of_tenants(cured):
    names = [f"tenant_{i}" for i in range(12)]
    model = nn.Sequential(Adapted(names, cured), nn.ReLU(), Adapted(names, cured)).eval()
    serve = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        for name in names:
            for layer in (model[0], model[2]):
                if cured:
                    layer.chosen = layer.adapters[name]
                else:
                    layer.active = name
            serve(torch.randn(2, 4))


def dropout_of_a_schedule(cured):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1), nn.Linear(4, 1))
    step = torch.compile(model, backend="aot_eager")
    for rate in (0.3, 0.3, 0.3) if cured else (0.1, 0.2, 0.3):
        model[1].p = rate
        step(torch.randn(2, 4)).sum().backward()  # here


class Attending(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.layer_idx, self.qkv = index, nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return x + F.scaled_dot_product_attention(q, k, v, scale=1.0 / (self.layer_idx + 1))  # here


def scale_of_each_layer(cured):
    layers = nn.Sequential(*(Attending(index) for index in range(10)))
    if not cured:
        for layer in layers:
            layer.compile(backend="aot_eager")
    model = torch.compile(layers, backend="aot_eager") if cured else layers
    with torch.no_grad():
        model(torch.randn(2, 3, 8))


def past_keys_in_a_list(cured):
    @torch.compile(backend="aot_eager")
    def attend(token, past):
        past.append(token * 2)  # here
        keys = torch.stack(past, 1)  # here
        return F.softmax((token[:, None] * keys).sum(-1), -1)

    @torch.compile(backend="aot_eager")
    def attend_filled(token, past, i):
        past.index_copy_(1, i, (token * 2)[:, None])
        scores = (token[:, None] * past).sum(-1)
        return F.softmax(scores.masked_fill(torch.arange(past.shape[1]) > i, -torch.inf), -1)

    several, one = [], torch.zeros(2, 16, 4)
    with torch.no_grad():
        for i in range(10):
            token = torch.randn(2, 4)
            if cured:
                attend_filled(token, one, torch.tensor([i]))
            else:
                attend(token, several)


def scale_of_a_hook(cured):
    torch._dynamo.config.compiled_autograd = True
    model = nn.Linear(4, 2)

    @torch.compile(backend="aot_eager")
    def train(x):
        loss = model(x).square().mean()
        loss.backward()
        return loss

    for step in range(5):
        scale = 1.0 / (1 + step)
        kept = torch.tensor(scale) if cured else scale
        handle = model.weight.register_hook(lambda grad, kept=kept: grad * kept)  # here
        train(torch.randn(3, 4))
        handle.remove()
        model.zero_grad()
