"""Recompiles that come from a module: its mode, its attributes, its parameters, and one class used for many layers."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index = index
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x) * (self.index + 1)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        self.calls += 1
        if self.calls % 2:
            x = x + self.calls
        return self.linear(x)


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return nn.functional.dropout(self.linear(x), 0.5, self.training)


x = torch.ones(2, 4)
for index in range(5):
    torch.compile(Block(index), backend="eager")(x)

counting = torch.compile(Counting(), backend="eager")
for _ in range(4):
    counting(x)

dropping = Dropping()
compiled = torch.compile(dropping, backend="eager")
compiled(x)
dropping.eval()
compiled(x)
dropping.linear.weight.requires_grad_(False)
compiled(x)
dropping.linear = nn.Linear(4, 4, bias=False)
compiled(x)
