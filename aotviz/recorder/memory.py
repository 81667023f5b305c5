"""The memory of a call: its storages, the tensors in each, and what the user's code writes to them.

The source is the ledger of the first run (tracing/ledger.py), which saw the user's tensors before any calling
convention changed. Where they lie is computed in placing.py. Intermediates are listed only if they are written, or if
an output is made from them. A tensor that an in-place metadata op moves has a row for each place. A synthetic base is
put before its members.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx
from msgspec.structs import replace

from aotviz.ir.descriptors import SyntheticBaseInput
from aotviz.ir.forms import TracedCall
from aotviz.recorder.naming import size, sizes
from aotviz.recorder.placing import Place, Placing
from aotviz.recording.schema import NONE, AliasTensor, StorageRecord, StorageWrite
from aotviz.recording.sources import innermost
from aotviz.recording.strings import clean
from aotviz.torch_private.tensors import device
from aotviz.tracing.events import MetadataOp, TensorNumber, Viewed, Wrote
from aotviz.tracing.forward import Run

MOST = 400  # tensors, or writes, of one storage
LONGEST_STEP = 160  # characters

Frames = Callable[[str], str]  # finds the user's frames in a stack trace
Position = tuple[list[int | str], int | str]  # stride and offset


@dataclass(frozen=True)
class Memory:
    """The storages of a call, those of the inputs first, and where each of its outputs lies."""

    trace: Any  # the Run that it was read from
    storages: list[StorageRecord]
    outputs: list[Position | None]  # one per output; None for a value without strides
    inputs: list[tuple[Any, str]]  # the tensor of the trace, and its name, of each tensor that the user passed


def of(call: TracedCall, frames: Frames, known: Memory | None = None) -> Memory:
    """The memory of a call. `known`: what was read from an earlier form of it. This is returned, unless the call was
    traced again with the user's inputs: a call with synthetic bases lacks those that it makes from a base.

    There are no storages for a gradient that is differentiated, because no statement of the user's is in it.
    """
    if known is not None and (known.trace is call.forward or not _has_all_inputs(call)):
        return known
    if isinstance(call.forward, Run) and _has_all_inputs(call):
        return _Board(call, frames).memory()
    return Memory(call.forward, [], [stride_and_offset(value) for value in call.forward.outputs], [])


def _has_all_inputs(call: TracedCall) -> bool:
    if any(isinstance(one, SyntheticBaseInput) for one in call.graph_inputs):
        return False
    inputs = zip(call.args, call.descriptors, call.duplicate_of, strict=True)
    wanted = {one for value, one, first in inputs if first is None and isinstance(value, torch.Tensor)}
    return wanted <= set(call.graph_inputs)


def with_bases(records: list[StorageRecord], call: TracedCall) -> list[StorageRecord]:
    """The records with the synthetic bases that `call` takes in place of the user's inputs."""
    values = call.forward.program.args if records else ()
    for descriptor, value in zip(call.graph_inputs, values, strict=False):
        if isinstance(descriptor, SyntheticBaseInput):
            members = {clean(str(member)) for member in descriptor.members}
            base = _tensor(value, "base", [clean(str(descriptor))])
            records = [_based(record, members, base) for record in records]
    return records


def _based(record: StorageRecord, members: set[str], base: AliasTensor) -> StorageRecord:
    inside = [bool(members.intersection(tensor.names)) for tensor in record.tensors]
    if not any(inside) or base.names[0] in (tensor.names[0] for tensor in record.tensors if tensor.names):
        return record
    moved = [
        replace(tensor, view_of=0 if member else NONE if tensor.view_of == NONE else tensor.view_of + 1)
        for tensor, member in zip(record.tensors, inside, strict=True)
    ]
    writes = [replace(write, tensor=write.tensor + 1) for write in record.writes]
    return replace(record, tensors=[base, *moved], writes=writes)


@dataclass
class _Storage:
    device: str
    stand_in: torch.Tensor | None  # of a tensor in it
    tensors: list[AliasTensor] = field(default_factory=list)
    writes: list[StorageWrite] = field(default_factory=list)
    left_out: int = 0

    def record(self) -> StorageRecord:
        nbytes = None if self.stand_in is None else self.stand_in.untyped_storage().nbytes()
        known = nbytes if type(nbytes) is int else None
        return StorageRecord(known, self.device, self.tensors, self.writes, self.left_out)


class _Board:
    def __init__(self, call: TracedCall, frames: Frames) -> None:
        self.trace, self.frames = call.forward, frames
        self.by_key: dict[Hashable, _Storage] = {}
        self.rows: dict[int, tuple[_Storage, int]] = {}  # id of a place -> its row
        self.outputs = [value for value in call.forward.outputs if isinstance(value, torch.Tensor)]
        self.leaving = set(map(id, self.outputs))
        traced = dict(zip(call.graph_inputs, call.forward.args, strict=True))
        inputs = []
        for value, descriptor, first in zip(call.args, call.descriptors, call.duplicate_of, strict=True):
            if isinstance(value, torch.Tensor):  # of merged duplicates, only the first is traced
                kept = descriptor if first is None or descriptor in traced else call.descriptors[first]
                inputs.append((value, traced[kept], clean(descriptor.name)))
        self.inputs = [(tensor, name) for _, tensor, name in inputs]
        self.given = {id(tensor) for _, tensor, _ in inputs}
        ledger = call.forward.ledger
        self.placing = Placing(ledger, [(value, tensor) for value, tensor, _ in inputs], self.outputs)
        for value, tensor, name in inputs:
            self._input(value, self.placing.first[id(tensor)], name)
        for position, place in self.placing.written.items():
            self._write(position, ledger.events[position], place)
        for _, tensor, _ in inputs:  # where metadata ops left it
            self._row(self.placing.last[id(tensor)])
        for value, meaning in zip(call.forward.outputs, call.outputs, strict=True):
            if isinstance(value, torch.Tensor):
                self._name(self.placing.last[id(value)], clean(str(meaning)))
        self.results = [
            stride_and_offset(_shown(self.placing.last[id(value)])) if isinstance(value, torch.Tensor) else None
            for value in call.forward.outputs
        ]

    def memory(self) -> Memory:
        return Memory(self.trace, [one.record() for one in self.by_key.values()], self.results, self.inputs)

    def _input(self, value: torch.Tensor, place: Place, name: str) -> None:
        storage = self._storage(place, str(device(value)))
        self._add(place, storage, _tensor(value, "input", [name]))

    def _name(self, place: Place, name: str) -> None:
        storage, number = self._row(place)
        if number != NONE:
            known = storage.tensors[number]
            storage.tensors[number] = replace(known, names=[*known.names, name])

    def _write(self, order: int, event: Any, place: Place) -> None:
        storage, number = self._row(place)
        if number == NONE or len(storage.writes) == MOST:
            storage.left_out += 1
            return
        kind = "data" if isinstance(event, Wrote) else "metadata"
        name = operator_name(event.operator)
        storage.writes.append(StorageWrite(order, number, kind, name, *self._origin(event.node), event.mode.grad))

    def _row(self, place: Place) -> tuple[_Storage, int]:
        """The row of a place. Adds it, and the rows of what it was taken from, if they are missing."""
        missing = []
        while id(place) not in self.rows:
            missing.append(place)
            if place.source is None:
                break
            place = place.source
        for one in reversed(missing):
            self._missing(one, missing)
        return self.rows[id(missing[0] if missing else place)]

    def _missing(self, place: Place, path: list[Place]) -> None:
        tensor = place.tensor
        returned = id(tensor) in self.leaving and self.placing.last[id(tensor)] is place
        role = "output" if returned else "input" if id(tensor) in self.given else "intermediate"
        node: Any
        if place.by is not None:
            step, node = step_text(place.by, place.item), place.by.node
        else:  # a view of it names its node
            views = (one.by.node for one in path if one.source is place and isinstance(one.by, Viewed))
            step, node = "", next((node.args[0] for node in views if node is not None and node.args), None)
        storage, parent = self.rows[id(place.source)] if place.source is not None else (None, NONE)
        if storage is None or place.storage not in (None, place.source and place.source.storage):
            storage, parent = self._storage(place, str(device(tensor))), NONE
        self._add(place, storage, _tensor(_shown(place), role, [], parent, step, self._origin(node)))

    def _storage(self, place: Place, device: str) -> _Storage:
        key = ("own", id(place.tensor)) if place.storage is None else place.storage
        return self.by_key.setdefault(key, _Storage(device, place.stand_in))

    def _add(self, place: Place, storage: _Storage, record: AliasTensor) -> None:
        if len(storage.tensors) == MOST:
            storage.left_out += 1
            self.rows[id(place)] = (storage, NONE)
            return
        self.rows.setdefault(id(place), (storage, len(storage.tensors)))
        storage.tensors.append(record)

    def _origin(self, node: Any) -> tuple[str, str]:
        """A node's name and the user's line that made it."""
        if not isinstance(node, fx.Node):  # a view of a symbolic size is computed without a node
            return "", ""
        source = innermost(self.frames(node.meta.get("stack_trace") or ""))
        return node.name, clean(source.with_code)


def _tensor(
    value: torch.Tensor,
    role: str,
    names: list[str],
    view_of: int = NONE,
    step: str = "",
    origin: tuple[str, str] = ("", ""),
) -> AliasTensor:
    stride, offset = stride_and_offset(value) or ([], 0)
    return AliasTensor(
        names, role, sizes(value.shape), stride, offset, int(value.element_size()), view_of, step, *origin
    )


def _shown(place: Place) -> torch.Tensor:
    return place.tensor if place.stand_in is None else place.stand_in


def stride_and_offset(value: Any) -> Position | None:
    """None for a value without strides."""
    try:
        return (sizes(value.stride()), size(value.storage_offset())) if isinstance(value, torch.Tensor) else None
    except (RuntimeError, NotImplementedError):
        return None


def operator_name(operator: Any) -> str:
    return clean(str(getattr(getattr(operator, "overloadpacket", operator), "__name__", operator)))


def step_text(event: Viewed | MetadataOp, item: int) -> str:
    arguments = [_text(value) for value in event.args] + [f"{name}={_text(v)}" for name, v in event.kwargs.items()]
    index = f"[{item}]" if isinstance(event, Viewed) and event.several else ""
    text = f"{operator_name(event.operator)}({', '.join(arguments)}){index}"
    return clean(text if len(text) <= LONGEST_STEP else text[: LONGEST_STEP - 1] + "…")


def _text(value: Any) -> str:
    if type(value) is int and value == sys.maxsize:
        return "end"  # of a slice, in torch's words
    if isinstance(value, tuple):  # a list of the program: what an event keeps is frozen
        return f"[{', '.join(map(_text, value))}]"
    return "tensor" if isinstance(value, TensorNumber) else str(value) if not isinstance(value, str) else repr(value)
