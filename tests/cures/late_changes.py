"""Recompiles by what is changed around a module after its first call, and a function that is not compiled at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize, prune
from torch.nn.utils.parametrizations import weight_norm

from aotviz.explain.cures import guard_cures as cures
from tests.cures.programs import compiled, errors, program, settled, under
from tests.cures.values import compiled_nothing

DECAYED: dict[str, Any] = {}  # of a program whose calls are made twice


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = weight_norm(nn.Linear(3, 3))

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(x) * 2


def wrapped(forward: Any) -> Any:
    def counted(*args: Any) -> Any:
        return forward(*args)

    return counted


@program(
    "a forward that is wrapped after the first call",
    cures.FORWARD,
    "Replace or wrap `self.body.forward` before the first call",
)
def a_forward_that_is_wrapped(cured: bool) -> object:
    model = Model()
    step = compiled(model)
    if cured:
        model.body.forward = wrapped(model.body.forward)
    first = step(torch.ones(3))
    if not cured:
        model.body.forward = wrapped(model.body.forward)
    return [first, step(torch.ones(3))]


@program(
    "parametrized weights that are cached in some calls",
    cures.PARAMETRIZED,
    "around every call of the function",
)
def cached_weights(cured: bool) -> object:
    step = compiled(Model())
    results = []
    for cached in (cured, True):
        with under(parametrize.cached(), cached):
            results.append(step(torch.ones(3)))
    return results


ACTIVE: set[int] = set()


def active(x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    if mask is not None:
        return (x * mask).sum()
    total = torch.zeros(())
    for one in range(3):
        if one in ACTIVE:
            total = total + x[one]
    return total


@program(
    "a global set that changes",
    cures.GLOBAL_VALUE,
    "work out what depends on it outside of the function, and pass that",
)
def a_set(cured: bool) -> object:
    step, results = compiled(active), []
    ACTIVE.update(range(3))
    for one in range(3):
        mask = torch.tensor([float(number in ACTIVE) for number in range(3)])
        results.append(step(torch.ones(3), mask if cured else None))
        ACTIVE.remove(one)
    return results


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(x) * 2


@program(
    "a forward hook that is registered after the first call",
    cures.MODULE_HOOKS,
    "Register them before the first call",
    (),
    errors,
)
def a_hook_that_is_registered_late(cured: bool) -> None:
    model, seen = Chain(), []
    step = compiled(model)
    if not cured:
        step(torch.ones(3))
    model.body.register_forward_hook(lambda module, args, output: seen.append(output))
    step(torch.ones(3))
    assert seen, "the hook saw nothing"


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def rows(x: torch.Tensor, each: Any) -> Iterator[torch.Tensor]:
    for row in x:
        yield each(row)


@program(
    "a generator that is compiled",
    cures.NOT_COMPILED,
    "compile what it calls for each element",
    (),
    compiled_nothing,
)
def a_generator(cured: bool) -> object:
    return list(rows(torch.ones(2, 3), compiled(doubled)) if cured else compiled(rows)(torch.ones(2, 3), doubled))


@program(
    "a number that is a tensor in some calls",
    cures.TENSOR_OR_NUMBER,
    "`torch.as_tensor(scale)`",
)
def a_tensor_or_a_number(cured: bool) -> object:
    step = compiled(lambda x, scale: x * scale)
    given = [0.5, torch.tensor(0.5), True, torch.tensor(0.25)]
    scales = [torch.as_tensor(scale, dtype=torch.float32) for scale in given] if cured else given
    return [step(torch.ones(3), scale) for scale in scales]


@program("a layer that is pruned after the first call", cures.NO_ATTRIBUTE, "comes before the first call")
def pruned_late(cured: bool) -> object:
    torch.manual_seed(0)
    layer = nn.Linear(3, 3)
    step = compiled(layer)
    if not cured:
        step(torch.ones(2, 3))
    prune.l1_unstructured(layer, "weight", amount=0.5)
    return [step(torch.ones(2, 3)).detach() for _ in range(2)]


def decayed(step: Any, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """Another weight decay in each of four steps."""
    (group,) = optimizer.param_groups
    (weight,) = group["params"]
    for turn in range(1, 5):
        weight.grad = torch.ones(3)
        group["weight_decay"] = 0.1 / turn
        step()
    return weight.detach()


@program("a weight decay that changes", cures.OPTIMIZER_SYMBOL, "Nothing has to be done", (), settled)
def a_weight_decay(cured: bool) -> object:
    if "optimizer" not in DECAYED:
        optimizer = torch.optim.AdamW([nn.Parameter(torch.ones(3))], weight_decay=0.1)
        DECAYED["optimizer"] = optimizer, compiled(optimizer.step)
    optimizer, step = DECAYED["optimizer"]
    return decayed(step, optimizer)


@program(
    "a weight decay that stays a constant", cures.OPTIMIZER_CONSTANT, "call `optimizer.step()` outside what is compiled"
)
def a_constant_weight_decay(cured: bool) -> object:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=0.1, weight_decay=0.1)
    return decayed(optimizer.step if cured else compiled(optimizer.step, backend="aot_eager"), optimizer)
