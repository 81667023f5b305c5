"""Statements over DTensors of one rank, for the random programs of `strategy.py`.

A statement makes a DTensor of a plain tensor, or takes one that is an argument or was made before, computes with it,
perhaps behind a graph break, and goes back to a plain tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

HEADER = """from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh

if not torch.distributed.is_initialized():  # one rank
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
mesh = init_device_mesh("cpu", (1,))
SHARD, REPLICATE = [Shard(0), Shard(1), Shard(2), Shard(3)], Replicate()  # not in `f`: Dynamo omits `__init__`
"""
BREAK = "torch._dynamo.graph_break()"

Pick = Callable[[Sequence[str]], str]


def argument(pick: Pick) -> str:
    """An expression for a DTensor that is an argument: plain, a leaf, or one with a `grad_fn`."""
    placement = pick(["REPLICATE", "SHARD[0]"])
    rest = pick(["", ".requires_grad_()", ".requires_grad_() * 1.5"])
    return f"distribute_tensor(torch.linspace(-0.8, 1.2, 6).reshape(2, 3), mesh, [{placement}]){rest}"


def made(v: str, t: torch.Tensor, pick: Pick) -> str:
    """An expression for a DTensor of the plain tensor `t`, which is called `v`; from_local shares its memory."""
    placement = pick(["REPLICATE", "SHARD[0]", f"SHARD[{t.dim() - 1}]"]) if t.dim() else "REPLICATE"
    how = pick(["DTensor.from_local({}, mesh, [{}])", "distribute_tensor({}, mesh, [{}])"])
    return how.format(pick([v, v, f"{v} * 2.0", f"{v}.detach()"]), placement)


def computed(d: str, t: torch.Tensor, pick: Pick) -> str:
    """An expression for a DTensor that is computed from the one that is called `d`, or is a view of it."""
    options = [f"{d} * 2.0", f"{d}.sin()", f"({d} + {d})", f"{d} * {d}.sum()", f"{d}.view(-1)", f"{d}.detach() * {d}"]
    if t.dim():
        options += [f"{d}.sum(0)", f"{d}.redistribute(mesh, [SHARD[0]])", f"{d}.redistribute(mesh, [REPLICATE])"]
        options += [f"{d}[:1]", f"torch.cat([{d}, {d}])"]
    if t.dim() == 2:
        options += [f"{d}.t()", f"{d} @ {d}.t()"]
    return pick(options)


def plain(d: str, pick: Pick) -> str:
    return f"{d}.{pick(['to_local()', 'full_tensor()', 'to_local(grad_placements=[REPLICATE])'])}"


def statements(
    v: str, t: torch.Tensor, new: str, placed: Sequence[str], space: dict[str, Any], pick: Pick
) -> list[str]:
    """Some statements, of which each makes the plain tensor `new`. `placed` are the DTensors that there are."""
    d = f"d{new[1:]}"
    keep = f"{d} = {made(v, t, pick)}"
    found = [
        f"{new} = {plain(made(v, t, pick), pick)}",
        f"{keep}\n{new} = {plain(f'({computed(d, t, pick)})', pick)}",
        f"{keep}\n{d}.{pick(['mul_(0.5)', 'add_(1.0)', 'sin_()'])}\n{new} = {plain(d, pick)}",
        f"{keep}\n{BREAK}\n{new} = {plain(f'({computed(d, t, pick)})', pick)}",
    ]
    if placed:
        old = pick(placed)
        found += [f"{new} = {plain(f'({computed(old, space[old], pick)})', pick)}"] * 2
        found.append(f"{old}.mul_(0.5)\n{new} = {plain(old, pick)}")
    return found
