"""Exports: good ones, and ones that fail; `python exports.py draft` exports them by draft export."""

import contextlib
import sys

import torch
from torch import nn

library = torch.library.custom_op


@library("corpus::no_fake", mutates_args=())
def no_fake(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@library("corpus::wrong_fake", mutates_args=())
def wrong_fake(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@wrong_fake.register_fake
def _(x):
    return x.new_empty(x.shape[0] + 1, x.shape[1])


class Good(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).relu()


class Branches(nn.Module):
    def forward(self, x, count):
        n = count.item()
        if n > 3:
            return x + n
        return x - n


class NoFake(nn.Module):
    def forward(self, x):
        return torch.ops.corpus.no_fake(x) + 1


class WrongFake(nn.Module):
    def forward(self, x):
        return torch.ops.corpus.wrong_fake(x) + 1


class WrongShapes(nn.Module):
    def forward(self, x):
        return x + x.reshape(-1)[:3]


class Even(nn.Module):
    def forward(self, x):
        return x.reshape(2, -1) if x.shape[0] % 2 == 0 else x


x, count = torch.ones(2, 4), torch.tensor(5)
rows = {"x": {0: torch.export.Dim("rows")}}
for model, args, shapes in (
    (Good(), (x,), None),
    (Branches(), (x, count), None),
    (NoFake(), (x,), None),
    (WrongFake(), (x,), None),
    (WrongShapes(), (x,), None),
    (Even(), (torch.ones(6, 4),), rows),
):
    with contextlib.suppress(Exception):
        if sys.argv[1:] == ["draft"]:
            torch.export.draft_export(model, args, dynamic_shapes=shapes)
        else:
            torch.export.export(model, args, dynamic_shapes=shapes)
if not sys.argv[1:]:
    for model, args in ((Branches(), (x, count)), (NoFake(), (x,))):
        with contextlib.suppress(Exception):
            torch.export.export(model, args, strict=True)
