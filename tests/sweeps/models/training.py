"""Three optimizer steps of a model, and whether two runs did the same.

The steps have two batch sizes, the optimizer's learning rate is another in each, and every step starts from a seed of
its own, for dropout is on. Kept are the loss of each step, and after it every parameter and buffer.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only

from .catalogue import Model

BATCHES, RATES = (4, 3, 4), (0.02, 0.01, 0.005)  # one per step
CLOSE = 1e-3  # relative to the largest number of a tensor; for kernels that take sums in another order

Compiled = Callable[[Any], Any]
Kept = dict[str, torch.Tensor]  # "step 0: loss", "step 0: parameter head.weight", ...


def train(model: Model, compiled: Compiled, device: str = "cpu") -> Kept:
    """Train a fresh model, whose module `compiled` wraps; the same weights and inputs each time."""
    seed(0)
    module, inputs = model.make()
    module.to(device).train()
    run = compiled(module)
    chosen = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(chosen, lr=RATES[0], momentum=0.9)
    found: Kept = {}
    for step, (batch, rate) in enumerate(zip(BATCHES, RATES, strict=True)):
        for group in optimizer.param_groups:
            group["lr"] = rate
        seed(step)
        given = tree_map_only(torch.Tensor, lambda value: value.to(device), inputs(batch))
        loss = loss_of(run(**given) if isinstance(given, dict) else run(*given))
        loss.backward()
        nn.utils.clip_grad_norm_(chosen, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        found[f"step {step}: loss"] = loss.detach().clone()
        state = (("parameter", module.named_parameters()), ("buffer", module.named_buffers()))
        for kind, named in state:
            found |= {f"step {step}: {kind} {name}": value.detach().clone() for name, value in named}
    return found


def seed(number: int) -> None:
    torch.manual_seed(number)
    random.seed(number)


def loss_of(result: Any) -> torch.Tensor:
    """A model's own loss where it gives one, else the mean squares of the floating-point tensors that it returns."""
    loss = getattr(result, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    leaves = tree_leaves(result.to_tuple() if hasattr(result, "to_tuple") else result)
    tensors = [leaf for leaf in leaves if torch.is_tensor(leaf)]
    if len(tensors) == 1 and tensors[0].numel() == 1:
        return tensors[0].reshape(())
    return sum(t.square().mean() for t in tensors if t.is_floating_point() and t.requires_grad)


def difference(expected: Kept, found: Kept) -> tuple[str, str]:
    """How `found` compares: "equal" to the last bit, "close" or "wrong", and what is farthest off."""
    if list(expected) != list(found):
        return "wrong", f"only one has {sorted(set(expected) ^ set(found))[0]}"
    worst, where = 0.0, ""
    for name, value in expected.items():
        other = found[name]
        if value.shape != other.shape or value.dtype != other.dtype:
            return "wrong", f"{name} is {other.dtype}{list(other.shape)}, not {value.dtype}{list(value.shape)}"
        off = _off(value, other)
        if off > worst:
            worst, where = off, name
    if not where:
        return "equal", ""
    return ("close" if worst <= CLOSE else "wrong"), f"{where} is off by {worst:.1e}"


def _off(value: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference of two tensors, relative to the largest number of the first; NaN equals NaN."""
    if value.dtype.is_complex:
        value, other = torch.view_as_real(value.resolve_conj()), torch.view_as_real(other.resolve_conj())
    same = (value == other) | (value.isnan() & other.isnan())
    if bool(same.all()):
        return 0.0
    value, other = value.double(), other.double()
    off = (value - other).abs().max() / value.abs().max().clamp(min=1e-6)
    return float("inf") if bool(off.isnan()) else float(off)
