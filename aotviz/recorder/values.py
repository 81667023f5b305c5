"""Traced values by number: the same number means the same value, in the graphs of all stages.

Stages hand on the same FakeTensor objects in `node.meta["val"]`, so each object is described once, however many graphs
it is in. Objects are recognised by their address, so they are kept alive until `release()`. After the compilation only
those stay that the program keeps itself: the values of the graph that is compiled later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from itertools import chain, count, starmap
from typing import Any

import torch

from aotviz.recorder.naming import sizes
from aotviz.recording.schema import NONE, ValueRecord
from aotviz.recording.strings import StringTable
from aotviz.torch_private.tensors import device, storage_key

SYMBOLIC = {torch.SymInt: "symint", torch.SymFloat: "symfloat", torch.SymBool: "symbool"}

Layout = tuple[int, list[int | str], list[int | str], int]  # dtype, shape, stride, device, as in ValueRecord


class Values:
    """The values of one compilation.

    >>> values = Values(StringTable())
    >>> x = torch.ones(2)
    >>> values.numbers([x, (x, None), x])
    [0, 1, 0]
    >>> [record.kind for record in values.take()]
    ['tensor', 'tuple']
    """

    def __init__(self, strings: StringTable) -> None:
        self._strings = strings
        self._by_id: dict[int, int] = {id(None): NONE}  # id of a kept value -> its number
        self._kept: list[torch.Tensor] = []
        self._others: list[Any] = []  # kept too
        self._new: list[ValueRecord] = []
        self._storage_of: list[int] = []  # of each value: its storage group
        self._tuples: dict[tuple[int, ...], int] = {}
        self._layouts: dict[tuple[Any, ...], Layout] = {}
        self._facts: dict[Any, int] = {}  # a dtype's or device's text
        self._storages: dict[int, int] = {}  # storage address -> group, for storages of kept values
        self._new_group = count()
        self._settled = 0  # of `_by_id`, those that stay
        self._joined = True  # whether `_storages` has those of the kept values

    def numbers(self, examples: Iterable[Any]) -> list[int]:
        """The number of each value's record: the same for the same object.

        One call for many is faster, because it reads attribute by attribute.
        """
        by_id = self._by_id
        examples = list(examples)
        unknown = {id(example): example for example in examples if id(example) not in by_id}
        tensors: list[torch.Tensor] = []
        if unknown:
            tensors = [example for example in unknown.values() if isinstance(example, torch.Tensor)]
            by_id.update(zip(map(id, tensors), self._add(self._tensors(tensors)), strict=True))
            self._kept += tensors
        if len(unknown) > len(tensors):
            others = [example for example in unknown.values() if not isinstance(example, torch.Tensor)]
            self.numbers(chain.from_iterable(example for example in others if isinstance(example, (tuple, list))))
            by_id.update(zip(map(id, others), map(self._other, others), strict=True))
            self._others += others
        return [by_id[id(example)] for example in examples]

    def take(self) -> list[ValueRecord]:
        """The records that are new since the last call, in the order of their numbers."""
        taken, self._new = self._new, []
        return taken

    def release(self, again: Sequence[Any] = ()) -> bool:
        """Release every value except those in `again` and in its tuples. Returns whether there was any to release."""
        if again and len(self._by_id) == self._settled:
            return False
        inside = chain.from_iterable(example for example in again if isinstance(example, (tuple, list)))
        keys = {id(example): example for example in chain(again, inside) if example is not None}
        known = {key: self._by_id[key] for key in keys if key in self._by_id}
        self._kept = [keys[key] for key in known if isinstance(keys[key], torch.Tensor)]
        self._others = [keys[key] for key in known if not isinstance(keys[key], torch.Tensor)]
        self._storages.clear()
        self._layouts.clear()
        self._by_id = {id(None): NONE, **known}
        self._joined, self._settled = False, len(self._by_id)
        return True

    def _add(self, records: list[ValueRecord]) -> range:
        self._new += records
        self._storage_of += [record.storage for record in records]
        return range(len(self._storage_of) - len(records), len(self._storage_of))

    def _other(self, example: Any) -> int:
        """The number of a value that is not a tensor. Tuples of the same values have the same number."""
        if not isinstance(example, (tuple, list)):
            kind = SYMBOLIC.get(type(example), "other")
            return self._add([without_tensor(kind, text=self._strings.add(str(example)))])[0]
        parts = tuple([self._by_id[id(part)] for part in example])
        number = self._tuples.get(parts)
        if number is None:
            number = self._tuples[parts] = self._add([without_tensor("tuple", parts=list(parts))])[0]
        return number

    def _tensors(self, tensors: list[torch.Tensor]) -> list[ValueRecord]:
        if not tensors:
            return []
        strides: list[Sequence[int]]
        try:
            strides, offsets = [t.stride() for t in tensors], sizes([t.storage_offset() for t in tensors])
            storages = self._groups(list(map(storage_key, tensors)))
        except (RuntimeError, NotImplementedError):  # a layout without strides, or without one storage
            if len(tensors) > 1:
                return [record for tensor in tensors for record in self._tensors([tensor])]
            strides, offsets, storages = [()], [0], [NONE]
        devices = map(device, tensors)
        facts = list(zip([t.dtype for t in tensors], [t.shape for t in tensors], strides, devices, strict=True))
        # A ragged size has a hash, unlike other symbols, and a comparison with it would become a guard.
        ragged = any(t.is_nested for t in tensors)
        layouts = starmap(self._layout, facts) if ragged else self._described(facts)
        return [
            ValueRecord("tensor", dtype, shape, stride, offset, device, storage, tensor.requires_grad, [], NONE)
            for tensor, (dtype, shape, stride, device), offset, storage in zip(
                tensors, layouts, offsets, storages, strict=True
            )
        ]

    def _described(self, facts: list[tuple[Any, ...]]) -> list[Layout]:
        """The layouts of (dtype, shape, stride, device), cached because a model has few different ones."""
        try:
            for fact in facts:
                if fact not in self._layouts:
                    self._layouts[fact] = self._layout(*fact)
            return [self._layouts[fact] for fact in facts]
        except TypeError:  # symbols have no hash
            return list(starmap(self._layout, facts))

    def _layout(self, dtype: torch.dtype, shape: Any, stride: Any, device: torch.device) -> Layout:
        return self._fact(dtype), sizes(shape), sizes(stride), self._fact(device)

    def _fact(self, thing: Any) -> int:
        number = self._facts.get(thing)
        if number is None:
            number = self._facts[thing] = self._strings.add(str(thing))
        return number

    def _groups(self, keys: list[int]) -> list[int]:
        """The storage groups of storages by their addresses."""
        if not self._joined:
            self._join()
        for key in keys:
            if key not in self._storages:
                self._storages[key] = next(self._new_group)
        return [self._storages[key] for key in keys]

    def _join(self) -> None:
        """Register the storages of kept values: a new tensor may share one of them."""
        self._joined = True
        for tensor in self._kept:
            with contextlib.suppress(RuntimeError, NotImplementedError):
                number = self._by_id[id(tensor)]
                self._storages.setdefault(storage_key(tensor), self._storage_of[number])


def without_tensor(kind: str, parts: list[int] | None = None, text: int = NONE) -> ValueRecord:
    """The record of a value that is not a tensor."""
    return ValueRecord(kind, NONE, [], [], 0, NONE, NONE, False, parts or [], text)
