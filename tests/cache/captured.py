"""Graphs as a backend gets them from Dynamo, and their keys; nothing is compiled."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from aotviz.cache import key
from aotviz.cache.key import Key
from aotviz.lowerings import EAGER, Lowering


@dataclass(frozen=True)
class Captured:
    """A graph from Dynamo and its example inputs."""

    module: torch.fx.GraphModule
    inputs: Sequence[Any]

    def key(self, inputs: Sequence[Any] | None = None, lowering: Lowering = EAGER, **options: Any) -> Key:
        return key.of_graph(self.module, self.inputs if inputs is None else inputs, options, lowering)


def captured(fn: Callable[..., Any], *args: Any, dynamic: bool | None = None, **kwargs: Any) -> Captured:
    """The first graph of a call."""
    return _run(fn, args, kwargs, dynamic, Captured)[0]


def keys(
    fn: Callable[..., Any],
    *args: Any,
    lowering: Lowering = EAGER,
    options: Mapping[str, Any] | None = None,
    dynamic: bool | None = None,
    **kwargs: Any,
) -> list[Key]:
    """The keys of all graphs of a call, as they are while Dynamo waits for the backend."""

    def made(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Key:
        return key.of_graph(module, inputs, options or {}, lowering)

    return _run(fn, args, kwargs, dynamic, made)


def _run(fn: Any, args: Any, kwargs: Any, dynamic: bool | None, made: Callable[..., Any]) -> list[Any]:
    torch._dynamo.reset()
    found: list[Any] = []
    failed: list[Exception] = []

    def backend(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        try:
            found.append(made(module, inputs))
        except Exception as error:  # Dynamo would wrap it
            failed.append(error)
        return module.forward

    torch.compile(fn, backend=backend, dynamic=dynamic)(*args, **kwargs)
    torch._dynamo.reset()
    if failed:
        raise failed[0]
    return found


def differing(one: Key, other: Key) -> set[str]:
    """The names of the ingredients that differ. Keys are equal if and only if there is none."""
    assert list(one.ingredients) == list(other.ingredients)
    found = {name for name, text in one.ingredients.items() if other.ingredients[name] != text}
    assert (one.digest != other.digest) == bool(found)
    return found


def module_of(source: str, folder: Path, name: str) -> ModuleType:
    """A module of the user's, with a file."""
    file = folder / f"{name}.py"
    file.write_text(source)
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)  # that of the same second may be older
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made
