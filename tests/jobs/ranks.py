"""Jobs of two ranks that do not compile the same, as tlparse's multi-rank inputs have them; see recompiles.py.

Each function is called in a process of each rank. Its process group is torch's "fake" one, which runs no collective, so
that a job which would wait for ever ends here too.
"""

from __future__ import annotations

import logging
import os

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import nn


def ranks_agree(cured):
    model = torch.compile(nn.Linear(4, 4), backend="aot_eager")
    model(torch.randn(2, 4)).sum().backward()


def one_rank_recompiles(cured):
    @torch.compile(backend="aot_eager", dynamic=False)
    def forward(x):  # here
        return torch.relu(x) + 1

    forward(torch.randn(4))
    forward(torch.randn(5 if dist.get_rank() == 1 and not cured else 4))


def one_rank_breaks(cured):
    @torch.compile(backend="aot_eager")
    def forward(x):
        y = torch.relu(x)
        if dist.get_rank() == 1 and not cured:
            print("rank 1 is here")  # here
        return y + 1

    forward(torch.randn(4))


class Watched(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.rank, self.first, self.second = rank, nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        h = torch.relu(self.first(x))
        if self.rank == 0:  # here
            print("mean", h.mean())  # here
        return self.second(h)


def module_that_prints_on_rank_0(cured):
    model = torch.compile(Watched(-1 if cured else dist.get_rank()), backend="aot_eager")
    model(torch.randn(2, 4)).sum().backward()


def another_collective(cured):
    group = dist.group.WORLD

    @torch.compile
    def forward(x):  # here
        y = collectives.all_reduce(x @ x, "sum", group)
        if dist.get_rank() == 0 or cured:
            return y @ collectives.all_reduce(x, "max", group)  # here
        return y @ collectives.all_gather_tensor(x, 0, group)[:4]  # here

    forward(torch.randn(4, 4))


def another_shape(cured):
    size = 6 if dist.get_rank() == 1 and not cured else 4

    @torch.compile(backend="aot_eager")
    def forward(x):  # here
        return torch.relu(x) + 1

    forward(torch.randn(size))


def rank_without_an_image(cured):
    group = dist.group.WORLD

    @torch.compile(backend="aot_eager")
    def losses(text, image):
        total = collectives.all_reduce(text.square().mean(), "avg", group)
        if image is not None:  # here
            total = total + collectives.all_reduce(image.square().mean(), "avg", group)
        return total

    losses(torch.randn(4), torch.randn(2, 3))
    nothing = torch.zeros(2, 3) if cured else None
    losses(torch.randn(4), nothing if dist.get_rank() == 1 else torch.randn(2, 3))


def earlier_run(work):
    """Warm the cache of this rank in a process that writes no log."""
    if child := os.fork():
        os.waitpid(child, 0)
        return
    logging.getLogger("torch.__trace").handlers.clear()
    work()
    os._exit(0)


def rank_0_hits(cured):
    @torch.compile
    def forward(x):
        return x @ x

    if dist.get_rank() == 0 or cured:
        earlier_run(lambda: forward(torch.randn(8, 8)))
    forward(torch.randn(8, 8))


def one_rank_evaluates(cured):
    @torch.compile(backend="aot_eager")
    def step(x):
        return torch.relu(x) + 1

    @torch.compile(backend="aot_eager")
    def evaluate(x):  # here
        return torch.sigmoid(x)

    step(torch.randn(4))
    if dist.get_rank() == 1 and not cured:
        evaluate(torch.randn(4))


def rank_0_validates(cured):
    @torch.compile(backend="aot_eager")
    def validate(x):  # here
        return torch.sigmoid(x)

    if dist.get_rank() == 0 or cured:
        validate(torch.randn(4))


def damage_rank_0_validates(lines):
    """The others' timeout ended the job while the graph was compiled."""
    at = next((i for i, line in enumerate(lines) if '"aot_inference_graph"' in line), len(lines))
    return lines[: at + 3]
