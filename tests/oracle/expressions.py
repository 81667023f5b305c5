"""Programs that are one expression over named inputs, run forward and backward, and compared by what a user can see.

    Programs({"torch": torch}, inputs).check("torch.sin(x) * w", "aotviz_eager", views=False, loss="sum")

A run is data: the results with their types, shapes and `requires_grad`, the gradients of the inputs, the inputs after
the call, and which results and inputs share memory. Jagged tensors and DTensors are compared by their inner tensors.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from functorch.compile import aot_function, nop

import aotviz
import aotviz.frontends.backend
from aotviz.lowerings import run_graph

DOORS: dict[str, Callable[[Any], Any]] = {
    "aotviz_eager": lambda fn: torch.compile(fn, backend="aotviz_eager"),
    "aot_function": lambda fn: aotviz.aot_function(fn, run_graph),
    "aot_eager": lambda fn: torch.compile(fn, backend="aot_eager"),
    "torch's aot_function": lambda fn: aot_function(fn, nop),
}


@dataclass(frozen=True)
class Run:
    error: str = ""  # with its place, "in the call" or "in the backward"
    results: tuple[Any, ...] = ()
    gradients: tuple[Any, ...] = ()
    inputs: tuple[Any, ...] = ()
    shared: tuple[tuple[bool, ...], ...] = ()  # for each result and input: which of them share memory with it


def names_in(expression: str, names: Mapping[str, Any]) -> list[str]:
    return [name for name in names if re.search(rf"\b{name}\b", expression)]


def made(expression: str, names: list[str], scope: Mapping[str, Any]) -> Callable[..., Any]:
    """The function that returns the value of an expression; its source can be read."""
    source, file = f"def program({', '.join(names)}):\n    return {expression}\n", f"<{expression[:40]}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    space = dict(scope)
    exec(compile(source, file, "exec"), space)
    return space["program"]


LOSSES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sine of the parts": lambda one: _inner(one).double().sin().sum(),
    "sum": lambda one: one.sum(),  # its gradient has strides of 0
    "cosine of the transposed": lambda one: (one.t() if one.dim() == 2 else one).cos().sum(),
}


def run(fn: Callable[..., Any], leaves: Mapping[str, Any], names: list[str], views: bool, loss: str) -> Run:
    """Call `fn`, and differentiate the sum of the losses of its results. With `views`, inputs that require grad are not
    leaves."""
    given = [leaves[name] * 1 if views and leaves[name].requires_grad else leaves[name] for name in names]
    try:
        results = _flat(fn(*given))
    except Exception as error:
        return Run(f"in the call: {type(error).__name__}: {error}")
    tensors = [one for one in results if isinstance(one, torch.Tensor)]
    told = tuple(_told(one) for one in results)
    shared = tuple(tuple(_memory(a) == _memory(b) for b in (*tensors, *given)) for a in (*tensors, *given))
    after = tuple(map(_told, given))
    try:
        torch.autograd.backward([LOSSES[loss](one) * (k + 1) for k, one in enumerate(tensors) if one.requires_grad])
    except Exception as error:
        return Run(f"in the backward: {type(error).__name__}: {error}")
    gradients = (leaves[name].grad for name in names)
    return Run("", told, tuple(None if one is None else _whole(one) for one in gradients), after, shared)


def difference(run: Run, eager: Run) -> str:
    """What differs from eager, or ""."""
    if run.error or eager.error:
        return "" if run.error and eager.error else run.error or f"eager raises {eager.error}"
    for field in ("results", "gradients", "inputs", "shared"):
        if not _same(getattr(run, field), getattr(eager, field)):
            return f"{field}: {getattr(run, field)}, in eager {getattr(eager, field)}"
    return ""


@dataclass(frozen=True)
class Programs:
    """Expressions in a scope, over inputs that are made again for each run."""

    scope: Mapping[str, Any]
    inputs: Callable[[], Mapping[str, Any]]

    def differs(self, expression: str, door: str, views: bool, loss: str) -> str:
        torch._dynamo.reset()
        names = names_in(expression, self.inputs())
        fn = made(expression, names, self.scope)
        eager = run(fn, self.inputs(), names, views, loss)
        return difference(run(DOORS[door](fn), self.inputs(), names, views, loss), eager)

    def check(self, expression: str, door: str, views: bool, loss: str) -> None:
        """A program may differ from eager only where torch's `aot_eager` does, or if eager raises. `aot_function` may
        also refuse it by name, where torch's does not have it right."""
        found = self.differs(expression, door, views, loss)
        refused = door == "aot_function" and found.startswith("in the call: Refused")
        if found and not found.startswith("eager raises"):
            assert self.differs(expression, "torch's aot_function" if refused else "aot_eager", views, loss), found


def _flat(value: Any) -> list[Any]:
    return [one for part in value for one in _flat(part)] if isinstance(value, (list, tuple)) else [value]


def _inner(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_nested:
        return tensor.values()
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _whole(gradient: torch.Tensor) -> Any:
    """A DTensor's gradient may be placed otherwise than in eager, where its placement follows that of the loss."""
    with torch.no_grad():
        return gradient.full_tensor() if hasattr(gradient, "full_tensor") else _inner(gradient).clone()


def _memory(tensor: torch.Tensor) -> int:
    with torch.no_grad():
        return _inner(tensor).untyped_storage().data_ptr()


def _told(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    lengths = value.offsets().tolist() if value.is_nested else []
    about = (type(value).__name__, lengths, str(getattr(value, "placements", "")), value.dtype)
    with torch.no_grad():
        return (*about, value.requires_grad, value.is_leaf, _inner(value).detach().clone())


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.shape == other.shape and torch.allclose(one.double(), other.double(), equal_nan=True)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
