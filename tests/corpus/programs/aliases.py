"""Inputs that are views, share memory or are mutated, so that torch describes tensors, storages and views."""

import torch
from torch import nn


@torch.compile(backend="aot_eager")
def writes_a_view(x, y):
    x.mul_(2)
    return y + 1, x.view(-1)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.embed(tokens))


base = torch.ones(4, 4)
writes_a_view(base[0], base[1])
writes_a_view(base, torch.ones(4, 4))
torch.compile(Tied(), backend="aot_eager")(torch.tensor([1, 2])).sum().backward()
