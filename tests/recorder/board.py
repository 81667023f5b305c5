"""The tables of a recording compared with the tensors that the caller passed and got.

`disagreements` calls a compiled function once and reads from the real tensors what each row claims: shape, stride and
offset, which rows share a storage and how large it is, and which inputs are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from aotviz.ir.wrapper_subclasses import inside
from aotviz.reading.recording import Compilation
from aotviz.recording.schema import CompilationData, StorageRecord
from aotviz.torch_private.dispatch import TorchDispatchMode
from aotviz.torch_private.pytree import tree_flatten
from aotviz.torch_private.tensors import storage_key, version
from tests.oracle.compare import Setup

Place = tuple[list[int], list[int], int]


def disagreements(
    build: Callable[[], Setup], compile_: Callable[[Any], Callable[..., Any]], recorded: Callable[[Any], Compilation]
) -> list[str]:
    """What the tables of one call say, and the tensors do not. `recorded` finds the compilation of the function."""
    eager, setup = build(), build()
    inputs = filter(_has_one_storage, tree_flatten((eager.args, dict(eager.kwargs)))[0])
    with torch.enable_grad(), eager.context(), _Seeing(inputs) as in_eager:
        eager.fn(*eager.args, **eager.kwargs)
    compiled = compile_(setup.fn)
    given = tree_flatten((setup.args, dict(setup.kwargs)))[0]
    before = [_Seen(value) if _has_one_storage(value) else None for value in given]
    with torch.enable_grad(), setup.context():  # some programs leave another mode
        made = tree_flatten(compiled(*setup.args, **setup.kwargs))[0]
    after = [_Seen(value) if _has_one_storage(value) else None for value in made]
    return list(_Tables(recorded(compiled).data, before).differ(given, after, in_eager.places))


class _Seeing(TorchDispatchMode):
    """Keeps where the inputs lie, and each operator's results."""

    def __init__(self, inputs: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.places = {str(_Seen(one).place) for one in inputs}

    def __torch_dispatch__(self, operator: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operator(*args, **kwargs or {})
        results = [one for one in tree_flatten(result)[0] if _has_one_storage(one)]
        self.places.update(str(_Seen(one).place) for one in results)
        return result


def _idle_as_one(shape: list[int], stride: list[int], offset: int) -> Place:
    """A place without the strides that do not matter: of one element, and in a tensor without elements."""
    return shape, [step if size > 1 and 0 not in shape else 1 for size, step in zip(shape, stride, strict=True)], offset


class _Seen:
    """A real tensor, as it is now."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.place = _idle_as_one(list(tensor.shape), list(tensor.stride()), tensor.storage_offset())
        self.storage, self.nbytes = storage_key(tensor), tensor.untyped_storage().nbytes()
        self.version, self.tensor = version(tensor), tensor


def _has_one_storage(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not inside(value)


class _Tables:
    def __init__(self, data: CompilationData, before: Sequence[_Seen | None]) -> None:
        assert len(data.inputs) == len(before)
        self.data, self.before = data, before
        self.rows = {name: (card, row) for card in data.storages for row in card.tensors for name in row.names}
        self.cards: list[tuple[str, StorageRecord, int]] = []
        self.resizes = any(record.storage_resized for record in data.inputs)  # it may have been larger in between
        self.symbols: dict[str, Any] = {"Max": max, "Min": min}
        for record, seen in zip(data.inputs, before, strict=True):
            if seen is not None:
                for shape in (record.shape, self.rows[record.name][1].shape):  # a size may be specialised in between
                    self.symbols.update(zip(map(str, shape), seen.place[0], strict=True))

    def differ(self, given: Sequence[Any], after: Sequence[_Seen | None], in_eager: set[str]) -> Iterator[str]:
        for record, seen in zip(self.data.inputs, self.before, strict=True):
            if seen is not None:
                yield from self._row(record, seen, "inputs")
        for result, seen in zip(self.data.outputs, after, strict=False):  # the recording also has hooked intermediates
            if seen is not None:
                yield from self._row(result, seen, "outputs")
        for one, card, storage in self.cards:
            for other, others_card, others_storage in self.cards:
                if (card is others_card) != (storage == others_storage):
                    yield f"{one} and {other} on one card: {card is others_card}, in fact {storage == others_storage}"
        yield from self._writes(given)
        for row in (row for card in self.data.storages for row in card.tensors):
            if row.role == "intermediate" and str(self._place(row)) not in in_eager:
                yield f"board: {row.step or row.node}: nothing lies in eager at {self._place(row)}"

    def _row(self, record: Any, seen: _Seen, table: str) -> Iterator[str]:
        if self._place(record) != seen.place:
            yield f"{table}: {record.name}: {self._place(record)}, in fact {seen.place}"
        if record.name not in self.rows:
            yield f"board: {record.name} is missing"
            return
        card, row = self.rows[record.name]
        self.cards.append((record.name, card, seen.storage))
        if self._place(row) != seen.place:
            yield f"board: {record.name}: {self._place(row)}, in fact {seen.place}"
        most = max(seen.nbytes, seen.tensor.untyped_storage().nbytes())
        if card.nbytes is not None and (card.nbytes < most or (card.nbytes > most and not self.resizes)):
            yield f"board: the storage of {record.name}: {card.nbytes} bytes, in fact {most}"

    def _writes(self, given: Sequence[Any]) -> Iterator[str]:
        """An input whose version counter moved is written on its card, and the reverse."""
        for record, value, was in zip(self.data.inputs, given, self.before, strict=True):
            if was is None or was.version is None or record.name not in self.rows:
                continue
            card, _ = self.rows[record.name]
            if value._version != was.version and not card.writes:
                yield f"board: {record.name} was written, and no write is on its card"

    def _place(self, row: Any) -> Place:
        shape, stride = ([self._number(n) for n in numbers] for numbers in (row.shape, row.stride))
        return _idle_as_one(shape, stride, self._number(row.offset))

    def _number(self, number: int | str) -> int:
        return int(eval(number, self.symbols)) if isinstance(number, str) else number
