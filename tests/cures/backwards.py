"""Backwards that are captured whole (`aotviz.compiled_autograd`), and captured again."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

import aotviz
from aotviz.explain.cures import backward_cures as cures
from aotviz.explain.cures.registry import Cure
from aotviz.reading.recording import Recording
from tests.cures.programs import Calls, Effect, program

RECORDINGS: list[Recording] = []


def captures(calls: Calls, cured: bool) -> Effect:
    torch._dynamo.reset()
    aotviz.compiled_autograd.reset()
    calls(cured)
    aotviz.compiled_autograd.reset()
    recording = RECORDINGS.pop()
    RECORDINGS.clear()
    return Effect(len(recording.recompiles()), "captures again", recording)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))


def backward(fault: str, cure: Cure, says: str, *reports: str) -> Callable[[Calls], Calls]:
    return program(fault, cure, says, reports, captures)


@backward("a forward that takes two paths", cures.AUTOGRAD_GRAPH, "let the forward take one path")
def two_paths(cured: bool) -> None:
    net, block = model(), aotviz.compiled_autograd(backend="eager")
    for activation in (torch.sin, torch.sin if cured else torch.cos):
        net.zero_grad()
        with block as recording:
            activation(net(torch.randn(3, 4))).sum().backward()
        RECORDINGS.append(recording)


@backward(
    "gradients that are added to in some steps",
    cures.GRADIENT,
    "call `optimizer.zero_grad()`",
    "pytorch/pytorch#118435",
)
def gradients_that_are_added(cured: bool) -> None:
    net, block = model(), aotviz.compiled_autograd(backend="eager")
    for _ in range(2):
        if cured:
            net.zero_grad()
        with block as recording:
            net(torch.randn(3, 4)).sum().backward()
        RECORDINGS.append(recording)


@backward("a hook that is registered between steps", cures.HOOKS, "Register the hooks once, before the first backward")
def a_late_hook(cured: bool) -> None:
    net, block = model(), aotviz.compiled_autograd(backend="eager")
    for step in range(2):
        net.zero_grad()
        if step == (0 if cured else 1):
            net[0].weight.register_hook(lambda grad: grad)  # type: ignore[index]
        with block as recording:
            net(torch.randn(3, 4)).sum().backward()
        RECORDINGS.append(recording)


@backward(
    "batches of other sizes", cures.KEPT_SIZE, "`aotviz.compiled_autograd(dynamic=True)`", "pytorch/pytorch#113129"
)
def other_sizes(cured: bool) -> None:
    net = model()
    block = aotviz.compiled_autograd(backend="eager", **({"dynamic": True} if cured else {}))
    for rows in (3, 5):
        net.zero_grad()
        with block as recording:
            net(torch.randn(rows, 4)).square().sum().backward()
        RECORDINGS.append(recording)
