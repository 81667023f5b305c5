"""Backwards that are captured whole (`aotviz.compiled_autograd`), and captured again."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch._dynamo import compiled_autograd

import aotviz
from aotviz.explain.cures import backward_cures as cures
from aotviz.explain.cures.registry import Cure
from aotviz.reading.recording import Recording
from tests.cures.programs import Calls, Effect, compiled, errors, program, settled, under, watched

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


@backward("an odd last batch of one row in a whole backward", cures.TAKEN_SIZE_1, "drop the odd last batch")
def an_odd_last_batch_in_a_backward(cured: bool) -> None:
    net, block = model(), aotviz.compiled_autograd(backend="eager", dynamic=True)
    for rows in (4, 4) if cured else (4, 4, 1):
        net.zero_grad()
        with block as recording:
            net(torch.randn(rows, 4)).square().sum().backward()
        RECORDINGS.append(recording)


@backward("a transposed batch in a whole backward", cures.TAKEN_STRIDES, "`.contiguous()` on its inputs")
def a_transposed_batch(cured: bool) -> None:
    net, block = model(), aotviz.compiled_autograd(backend="eager")
    for x in (torch.randn(3, 4), torch.randn(4, 3).t()):
        net.zero_grad()
        with block as recording:
            net(x.contiguous() if cured else x).square().sum().backward()
        RECORDINGS.append(recording)


@backward("a backward inside autocast", cures.DROPPED, "Call all backwards inside autocast or all outside of it")
def a_backward_inside_autocast(cured: bool) -> None:
    net, block = model(), aotviz.compiled_autograd(backend="eager")
    for inside in (False, True, False):
        net.zero_grad()
        loss = net(torch.randn(3, 4)).sum()
        with under(torch.autocast("cpu", dtype=torch.bfloat16), inside and not cured), block as recording:
            loss.backward()
        RECORDINGS.append(recording)


@backward("a forward that was compiled again", cures.FORWARD, "Find out why the forward was compiled again")
def a_forward_that_was_compiled_again(cured: bool) -> None:
    net, block = model(), aotviz.compiled_autograd(backend="eager")
    step = aotviz.compile(lambda x, scale: net(x) * scale, backend="eager", dynamic=False)
    for scale in (2, 3):
        net.zero_grad()
        loss = step(torch.randn(3, 4), torch.tensor(scale) if cured else scale).sum()
        with block as recording:
            loss.backward()
        RECORDINGS.append(recording)


def torchs_captures(calls: Calls, cured: bool) -> Effect:
    compiled_autograd.reset()
    recording, result = watched(calls, cured)
    compiled_autograd.reset()
    return Effect(len(recording.recompiles()), "compiled again", recording, result)


def with_torchs_own(sizes: tuple[int, ...], dynamic: bool | None) -> None:
    net = model()
    for rows in sizes:
        net.zero_grad()
        loss = net(torch.randn(rows, 4)).square().mean()
        with compiled_autograd._enable(torch.compile(backend="eager", dynamic=dynamic)):
            loss.backward()


@program(
    "batches of other sizes in torch's compiled autograd, with dynamic=False",
    cures.LIFTED,
    "`torch.compile` without `dynamic=False`",
    ("pytorch/pytorch#113129",),
    torchs_captures,
)
def other_sizes_with_dynamic_false(cured: bool) -> None:
    with_torchs_own((3, 4, 5), dynamic=None if cured else False)


def settled_captures(calls: Calls, cured: bool) -> Effect:
    compiled_autograd.reset()
    found = settled(calls, cured)
    compiled_autograd.reset()
    return found


@program(
    "batches of other sizes in torch's compiled autograd",
    cures.SIZES_OF_TORCHS,
    "Nothing is to be done",
    (),
    settled_captures,
)
def other_sizes_in_torchs_own(cured: bool) -> None:
    with_torchs_own((3, 4, 5), dynamic=None)


@program(
    "a step between a forward and its backward", cures.WRITTEN, "compute this loss again after the step", (), errors
)
def a_step_before_the_backward(cured: bool) -> object:
    judge = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    for parameter in judge.parameters():
        torch.nn.init.constant_(parameter, 0.5)
    optimizer, step = torch.optim.SGD(judge.parameters(), lr=0.0), compiled(judge, backend="aot_eager")
    made = torch.ones(3, requires_grad=True)
    loss = step(made).sum()
    step(torch.zeros(3, requires_grad=True)).sum().backward()
    optimizer.step()
    if cured:
        loss = step(made).sum()
    loss.backward()
    return made.grad


@program("a gradient hook with another number in each step", cures.HOOK_VALUE, "Give the hook a tensor in its place")
def a_number_of_a_hook(cured: bool) -> object:
    torch.manual_seed(0)
    weight = torch.randn(3, requires_grad=True)

    def train(x: torch.Tensor) -> torch.Tensor:
        loss = (weight * x).square().sum()
        loss.backward()
        return loss

    with torch._dynamo.config.patch(compiled_autograd=True):
        step, grads = compiled(train), []
        for scale in (1.0, 0.5, 0.25):
            weight.grad = None
            kept = torch.tensor(scale) if cured else scale
            handle = weight.register_hook(lambda grad, kept=kept: grad * kept)
            step(torch.ones(3))
            handle.remove()
            grads.append(weight.grad)
    return grads


@program("a result that is written before its backward", cures.WRITTEN, "`y = y * 2`, not `y *= 2`", (), errors)
def a_written_result(cured: bool) -> object:
    x = torch.ones(3, requires_grad=True)
    y = compiled(torch.exp, backend="aot_eager")(x.sin())
    if cured:
        y = y * 2
    else:
        y *= 2
    y.sum().backward()
    return x.grad


@program("two backwards of one call", cures.TWICE, "call `.backward()` once", (), errors)
def two_backwards(cured: bool) -> object:
    x = torch.ones(3, requires_grad=True)
    y = compiled(torch.exp, backend="aot_eager")(x.sin())
    if cured:
        (y.sum() + y.mean()).backward()
    else:
        y.sum().backward()
        y.mean().backward()
    return x.grad


@program("a gradient penalty through a compiled function", cures.DOUBLE, "without `torch.compile`", (), errors)
def a_gradient_penalty(cured: bool) -> object:
    return penalty(torch.exp if cured else compiled(torch.exp, backend="aot_eager"))


@program("a gradient penalty, and the cure by our backend", cures.DOUBLE, '`backend="aotviz"`', (), errors)
def a_gradient_penalty_by_our_backend(cured: bool) -> object:
    return penalty(compiled(torch.exp, backend="aotviz_eager" if cured else "aot_eager"))


def penalty(function: Callable[[torch.Tensor], torch.Tensor]) -> object:
    x = torch.ones(3, requires_grad=True)
    (gradient,) = torch.autograd.grad(function(x.sin()).sum(), x, create_graph=True)
    gradient.square().sum().backward()
    return x.grad
