"""The memory of a call: its storages, the tensors in each, and what the user's code writes to them.

The source is the ledger of the first run (tracing/ledger.py), which saw the user's tensors before any calling
convention changed. Inputs share a storage if their fakes do, and a view is in the storage of its source. Intermediates
are listed only if they are written, or if an output is made from them. A synthetic base is put before its members.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx
from msgspec.structs import replace

from aotviz.ir.descriptors import SyntheticBaseInput
from aotviz.ir.forms import TracedCall
from aotviz.recorder.naming import size, sizes
from aotviz.recording.events import NONE, AliasTensor, StorageRecord, StorageWrite
from aotviz.recording.sizes import reach
from aotviz.recording.sources import innermost
from aotviz.recording.strings import clean
from aotviz.torch_private import snapshotting
from aotviz.tracing import functional
from aotviz.tracing.forward import ForwardTrace
from aotviz.tracing.ledger import Moved, Viewed, Wrote

MOST = 400  # tensors, or writes, of one storage
LONGEST_STEP = 160  # characters

Frames = Callable[[str], str]  # finds the user's frames in a stack trace


def storages(call: TracedCall, frames: Frames) -> list[StorageRecord]:
    """One record for each storage, those of the inputs first. `call` is the metadata stage's result.

    There are none for a gradient that is differentiated, because no statement of the user's is in it.
    """
    return _Board(call, frames).records() if isinstance(call.forward, ForwardTrace) else []


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
    nbytes: Any
    device: str
    tensors: list[AliasTensor] = field(default_factory=list)
    writes: list[StorageWrite] = field(default_factory=list)
    left_out: int = 0


class _Board:
    def __init__(self, call: TracedCall, frames: Frames) -> None:
        self.ledger = call.forward.ledger
        self.frames = frames
        self.by_key: dict[Hashable, _Storage] = {}
        self.places: dict[int, tuple[_Storage, int]] = {}  # id of a tensor that the ledger knows -> where it is
        self.inputs: dict[Any, int] = {}  # storage of the traced tensor -> its id
        self.outputs = {id(value) for value in call.forward.outputs if isinstance(value, torch.Tensor)}
        for value, traced, descriptor in zip(call.args, call.forward.args, call.descriptors, strict=True):
            if isinstance(value, torch.Tensor):
                self._input(value, traced, clean(descriptor.name))
        for value, meaning in zip(call.forward.outputs, call.outputs, strict=True):
            if isinstance(value, torch.Tensor):
                self._name(value, clean(str(meaning)))
        for order, event in enumerate(self.ledger.events):
            if isinstance(event, (Wrote, Moved)):
                self._write(order, event)

    def records(self) -> list[StorageRecord]:
        return [
            StorageRecord(
                one.nbytes if type(one.nbytes) is int else None, one.device, one.tensors, one.writes, one.left_out
            )
            for one in self.by_key.values()
        ]

    def _input(self, value: torch.Tensor, traced: torch.Tensor, name: str) -> None:
        try:
            key, nbytes = snapshotting.storage_key(value), value.untyped_storage().nbytes()
            self.inputs.setdefault(functional.storage(traced), id(traced))
        except (RuntimeError, NotImplementedError):  # a tensor that is made of others has no one storage
            key, nbytes = -id(value), None
        storage = self.by_key.setdefault(("input", key), _Storage(nbytes, str(snapshotting.device(value))))
        self._add(traced, storage, _tensor(value, "input", [name]))

    def _name(self, output: torch.Tensor, name: str) -> None:
        storage, number = self._place(output)
        if number != NONE:
            known = storage.tensors[number]
            storage.tensors[number] = replace(known, names=[*known.names, name])

    def _write(self, order: int, event: Wrote | Moved) -> None:
        storage, number = self._place(event.tensor)
        if number == NONE or len(storage.writes) == MOST:
            storage.left_out += 1
            return
        kind = "data" if isinstance(event, Wrote) else "metadata"
        name = _operator(event.operator)
        storage.writes.append(StorageWrite(order, number, kind, name, *self._origin(event.node), event.mode.grad))

    def _place(self, tensor: torch.Tensor) -> tuple[_Storage, int]:
        """Where a tensor is on the board. Adds it and the tensors that it is a view of if they are missing."""
        root, steps = self.ledger.path(tensor, lambda one: id(one) in self.places)
        if id(root) not in self.places:
            self._own(root, steps)
        for event, item in steps:
            self._view(event, item)
        return self.places[id(tensor)]

    def _own(self, tensor: torch.Tensor, steps: list[tuple[Viewed, int]]) -> None:
        """Add a tensor that is not a view: it has its own storage, or shares an input's, e.g. by `set_`."""
        role = "output" if id(tensor) in self.outputs else "intermediate"
        made = steps[0][0].node.args[0] if steps and steps[0][0].node is not None and steps[0][0].node.args else None
        origin = self._origin(made if isinstance(made, torch.fx.Node) else None)
        known = None
        with contextlib.suppress(RuntimeError, NotImplementedError):
            known = self.inputs.get(functional.storage(tensor))
        if known is not None:
            storage, parent = self.places[known]
            self._add(tensor, storage, _tensor(tensor, role, [], parent, "", origin))
            return
        record = _tensor(tensor, role, [], NONE, "", origin)
        end = reach(record.offset, record.shape, record.stride)
        nbytes = None if end is None else end * record.itemsize
        storage = self.by_key[("own", id(tensor))] = _Storage(nbytes, str(snapshotting.device(tensor)))
        self._add(tensor, storage, record)

    def _view(self, event: Viewed, item: int) -> None:
        result = event.results[item]
        storage, parent = self.places[id(event.source)]
        role = "output" if id(result) in self.outputs else "intermediate"
        step = _step(event, item)
        self._add(result, storage, _tensor(result, role, [], parent, step, self._origin(event.node)))

    def _add(self, tensor: torch.Tensor, storage: _Storage, record: AliasTensor) -> None:
        if len(storage.tensors) == MOST:
            storage.left_out += 1
            self.places[id(tensor)] = (storage, NONE)
            return
        self.places[id(tensor)] = (storage, len(storage.tensors))
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
    try:
        stride, offset = sizes(value.stride()), size(value.storage_offset())
    except (RuntimeError, NotImplementedError):  # a layout without strides
        stride, offset = [], 0
    return AliasTensor(
        names, role, sizes(value.shape), stride, offset, int(value.element_size()), view_of, step, *origin
    )


def _operator(operator: Any) -> str:
    return clean(str(getattr(getattr(operator, "overloadpacket", operator), "__name__", operator)))


def _step(event: Viewed, item: int) -> str:
    arguments = [_text(value) for value in event.args] + [f"{name}={_text(v)}" for name, v in event.kwargs.items()]
    text = f"{_operator(event.operator)}({', '.join(arguments)}){f'[{item}]' if event.several else ''}"
    return clean(text if len(text) <= LONGEST_STEP else text[: LONGEST_STEP - 1] + "…")


def _text(value: Any) -> str:
    return "tensor" if isinstance(value, torch.Tensor) else str(value) if not isinstance(value, str) else repr(value)
