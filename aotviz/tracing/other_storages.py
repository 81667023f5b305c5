"""Tensors that a run gives another storage, by `set_` or `.data`, and what shares their memory: conditions of rules.

The graph and the wrapper follow one tensor to its new storage. They cannot follow an alias of it: of a view's new
storage, or of the old storage of a tensor that is not a view.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from aotviz.ir.refusals import Names
from aotviz.ir.wrapper_subclasses import parts_by_path
from aotviz.tracing.events import TensorNumber
from aotviz.tracing.ran import Ran


class _Held:
    """What the caller has when the function has returned."""

    def __init__(self, ran: Ran) -> None:
        ledger = self.ledger = ran.ledger
        self.leaving = [ledger.number(one) for one in ran.outputs if isinstance(one, torch.Tensor)]
        arguments = [one for one in ran.args if isinstance(one, torch.Tensor)]
        wholes = (*arguments, *ran.members.values())
        self.given = set(map(ledger.number, (*wholes, *(part for one in arguments for _, part in parts_by_path(one)))))
        self.written = [(k, event.tensor) for k, event in ledger.writes()]
        self.place = {event: k for k, event in enumerate(ledger.events)}

    def has(self, source: TensorNumber | None) -> bool:
        """Whether the caller has a tensor over the storage of `source`: an input or a result."""
        ledger = self.ledger
        while source is not None:
            root = ledger.root(source)
            if root in self.given or any(ledger.root(end) == root for end in self.leaving):
                return True
            source = next((ledger.given_by(k) for k, tensor, _ in ledger.parted if tensor == root), None)
        return False

    def is_shared(self, position: int, tensor: TensorNumber) -> bool:
        """Whether an input gets, at this event, the storage of another input that the call writes: both would have to
        see the writes."""
        source, root = self.ledger.given_by(position), self.ledger.root
        if source is None or root(source) not in self.given:
            return False
        whose = root(source)
        return whose == tensor or any(root(o) == whose or (k > position and root(o) == tensor) for k, o in self.written)

    def ends(self, position: int, tensor: TensorNumber) -> Iterator[bool]:
        """For each alias of a tensor that is returned, or written after this event: whether it is over the storage to
        which the tensor is not followed."""
        is_view = self.ledger.origin(tensor) is not None
        for end in (*self.leaving, *(one for k, one in self.written if k > position and is_view)):
            root, path = self.ledger.path(end, tensor.__eq__)
            if root == tensor:
                yield (not path or self.place[path[0][0]] > position) is is_view


def old_storage_is_written(ran: Ran) -> Iterator[Names]:
    """An input was written, then given another storage, and an alias of it is returned that was taken before."""
    ledger, changed = ran.ledger, ran.ledger.replacements()
    if not changed:
        return
    held = _Held(ran)
    for position, tensor in changed:
        if tensor in held.given and any(k < position and ledger.root(one) == tensor for k, one in held.written):
            paths = [ledger.path(end)[1] for end in held.leaving if ledger.root(end) == tensor]
            if any(path and held.place[path[0][0]] < position for path in paths):
                yield "an input"


def is_shared(reason: str, ran: Ran) -> Iterator[Names]:
    """Results, and writes, over a storage to which a tensor is not followed, or that the caller has too. `reason`: the
    rule, of `.data` or of `set_`."""
    parted = [(position, tensor) for position, tensor, why in ran.ledger.parted if why == reason]
    if not parted:
        return
    held = _Held(ran)
    for position, tensor in parted:
        if tensor in held.given:
            yield from ("an input, after set_, and another one",) if held.is_shared(position, tensor) else ()
            continue
        ends = list(held.ends(position, tensor))
        if any(ends):
            whose = "an intermediate" if ran.ledger.origin(tensor) is None else "a view"
            yield f"{whose} and an alias of it" if reason.startswith("alias") else whose
        elif ends and held.has(ran.ledger.given_by(position)):
            yield "an intermediate, after set_, and what it was set to"
