"""What the graphs that Dynamo captures from one program share: it is in none of them.

After a graph break, the next graph gets results of the earlier ones, and parameters that they read too. Which ones is
seen where it happens: at its first call, a program notes the storages of its inputs and results, by weak references.
When a later graph is compiled, Dynamo has the tensors of the call, so their storages say which of them are known, and
which of those that this call had nothing holds any more.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from aotviz.torch_private import dynamo, tensors


@dataclass(frozen=True)
class HandedOver:
    """What a graph shares with earlier ones."""

    of_call: tuple[tuple[str, str], ...] = ()  # an input, and the tensor of a graph that this call ran, of its memory
    others: tuple[tuple[str, str], ...] = ()  # the same, with a tensor of an earlier call
    gone: tuple[str, ...] = ()  # tensors of the graphs that this call ran, which nothing holds any more


class _Known(threading.local):
    """The storages that a thread knows, each by a tensor that has it: "output[0] of f [0/0]", "x of f [0/0]". It is
    the last one of a call before this one, and the first one of this call."""

    def __init__(self) -> None:
        self.names: dict[StorageWeakRef, str] = {}
        self.call: object = None  # the latest call of a compiled function
        self.of_call: set[StorageWeakRef] = set()  # those that it had

    def begin(self) -> None:
        running = dynamo.running_call()
        call = running.token if running is not None else None
        if call is None or call is not self.call:
            self.call, self.of_call = call, set()
            self.names = {storage: name for storage, name in self.names.items() if not storage.expired()}


_known = _Known()


def look(module: Any, names: Sequence[str]) -> HandedOver:
    """What a graph from Dynamo shares with those that ran before. `names` are those of its inputs."""
    _known.begin()
    of_call: list[tuple[str, str]] = []
    others: list[tuple[str, str]] = []
    for name, node in zip(names, module.graph.find_nodes(op="placeholder"), strict=False):
        for storage in _storages(dynamo.example(node)):
            if storage in _known.names:
                found = of_call if storage in _known.of_call else others
                found.append((name, _known.names[storage]))
    gone = [storage for storage in _known.of_call if storage.expired()]
    _known.of_call.difference_update(gone)
    return HandedOver(tuple(of_call), tuple(others), tuple(_known.names.pop(one) for one in gone))


def note(graph: str, names: Sequence[str], inputs: Sequence[Any], results: Any) -> None:
    """Note what a graph got and returned at its first call."""
    _known.begin()
    outputs = results if isinstance(results, tuple | list) else (results,)
    named = [*zip(names, inputs, strict=False), *((f"output[{i}]", one) for i, one in enumerate(outputs))]
    found: dict[StorageWeakRef, str] = {}
    for name, value in named:
        for storage in _storages(value):
            found.setdefault(storage, f"{name} of {graph}")  # a result in the memory of an input is that input
    _known.names.update((storage, name) for storage, name in found.items() if storage not in _known.of_call)
    _known.of_call |= found.keys()


def _storages(value: Any) -> list[StorageWeakRef]:
    """That of a plain tensor. Neither a subclass nor what a transform such as vmap wraps has one of its own."""
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        with tensors.unseen_by_modes(), contextlib.suppress(NotImplementedError):  # a mode of the user's sees none
            return [StorageWeakRef(value.untyped_storage())] if value.layout is torch.strided else []
    return []
