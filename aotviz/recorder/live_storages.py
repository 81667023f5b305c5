"""What is alive while operators run, measured: weak references to the storages of tensors.

A mode sees each operator. It keeps a weak reference to each storage that an operator makes, and notes which are still
alive: when the operator returns, and when the next one begins.
A weak reference keeps a storage's address from being used again, so equal references mean one storage.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from aotviz.recording.measured_bytes import Made, Ran
from aotviz.torch_private import operators, pytree
from aotviz.torch_private.dispatch import TorchDispatchMode


class LiveStorages(TorchDispatchMode):
    """Notes the storages that operators make under this mode, but for those of tensors that were given to it."""

    supports_higher_order_operators = True  # such as `run_with_rng_state`; what runs inside is not seen
    in_graph = True  # whether a graph runs; who runs several things under this mode says so

    def __init__(self, given: Any = ()) -> None:
        super().__init__()
        self.ran: list[Ran] = []
        self._made: dict[StorageWeakRef, Made] = {}
        self._given = set[StorageWeakRef]()
        self._is_open = False  # an operator ran, and what is left after it is not noted
        self.give(given)

    def give(self, values: Any) -> None:
        """The tensors among the values do not count, unless an operator made them."""
        self._given |= {storage for storage, *_ in _storages(values)} - self._made.keys()

    def close(self) -> None:
        """Note what is left after the last operator."""
        if self._is_open:
            last = self.ran[-1]
            self.ran[-1] = Ran(last.operator, last.alive, self._alive(), last.of_graph)
            self._is_open = False

    def _alive(self) -> tuple[Made, ...]:
        self._made = {storage: made for storage, made in self._made.items() if not storage.expired()}
        return tuple(self._made.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.close()
        self._given = {storage for storage in self._given if not storage.expired()}
        in_graph = self.in_graph
        result = func(*args, **(kwargs or {}))
        for storage, nbytes, device in _storages(result):
            if storage not in self._given:
                self._made.setdefault(storage, Made(nbytes, len(self.ran), device))
        self.ran.append(Ran(_name(func), self._alive(), (), in_graph))
        self._is_open = True
        return result


def _name(operator: Any) -> str:
    return f"higher_order.{operator}" if operators.is_higher_order(operator) else str(operator)


def _storages(values: Any) -> list[tuple[StorageWeakRef, int, str]]:
    leaves = (one for one in pytree.tree_leaves(values) if isinstance(one, torch.Tensor))
    found = (one.untyped_storage() for one in leaves if one.layout is torch.strided)
    return [(StorageWeakRef(one), one.nbytes(), str(one.device)) for one in found]
