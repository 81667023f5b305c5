"""What is alive while a graph runs operator by operator, measured: a net under `Compilation.memory()`.

A mode sees each operator of the compiled function. It keeps weak references to the storages that the operators make,
and notes which are still alive: when an operator returns, and when the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from aotviz.recording.compilation import Compilation

OTHERS = ["parameter", "buffer", "input", "constant", "tangent"]  # what the compiled function does not make


@dataclass
class Made:
    """A storage that an operator made."""

    reference: StorageWeakRef
    nbytes: int
    by: int  # the number of the operator


@dataclass
class Ran:
    """An operator that ran, and what was alive when it returned, and when the next one began."""

    operator: str
    alive: list[Made]
    after: list[Made] = field(default_factory=list)


class LiveStorages(TorchDispatchMode):
    """Notes the storages that are made under this mode, but for those of the tensors `known`."""

    def __init__(self, known: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.known = {one.untyped_storage()._cdata for one in known}
        self.made: dict[int, Made] = {}
        self.ran: list[Ran] = []

    def alive(self) -> list[Made]:
        self.made = {key: one for key, one in self.made.items() if not one.reference.expired()}
        return list(self.made.values())

    def close(self) -> None:
        """Note what is left after the last operator."""
        if self.ran:
            self.ran[-1].after = self.alive()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.close()
        result = func(*args, **(kwargs or {}))
        self.alive()  # a new storage may have the address of a freed one
        for one in torch.utils._pytree.tree_leaves(result):
            if isinstance(one, torch.Tensor):
                storage = one.untyped_storage()
                if storage._cdata not in self.known:
                    reference = StorageWeakRef(storage)
                    self.made.setdefault(storage._cdata, Made(reference, storage.nbytes(), len(self.ran)))
        self.ran.append(Ran(str(func), self.alive()))
        return result


def differences(compilation: Compilation, run: Callable[[], Any], known: Sequence[torch.Tensor]) -> list[str]:
    """Where the plan of a compilation and the memory that a call needs differ: a line for each node.

    `run` calls the compiled function, and its backward if it has one; it returns what the caller holds. Storages that
    are made by others than the graphs do not count: autograd's own nodes, the wrapper, the engine.
    """
    with LiveStorages(known) as mode:
        held = run()
        mode.close()
    del held
    table = compilation.memory().moments
    others = table[OTHERS].sum(axis=1)
    later = table.tangent.shift(-1, fill_value=0).where(table.phase == "backward", 0)
    table["made"] = table.alive - others
    table["kept"] = table.after - others + table.tangent - later
    is_operator = table.target.str.count(r"\.") == 2
    table["kept"] = table.kept.groupby(is_operator.cumsum()).transform("last")  # when its items are taken
    planned = list(table[is_operator].itertuples())
    ran, numbers = enumerate(mode.ran), dict[int, int]()  # the number of an operator that ran -> place in the plan
    for place, row in enumerate(planned):
        number = next((number for number, one in ran if one.operator == row.target), None)
        if number is None:
            return [f"{row.phase} {row.node}: {row.target} did not run"]
        numbers[number] = place
    found = []
    for number, place in numbers.items():
        row, one = planned[place], mode.ran[number]
        alive, after = (sum(m.nbytes for m in some if m.by in numbers) for some in (one.alive, one.after))
        if (alive, after) != (row.made, row.kept):
            plan = f"planned {row.made} and {row.kept} bytes"
            found.append(f"{row.phase} {row.node} ({row.target}): {plan}, measured {alive} and {after}")
    return found
