"""Where the tensors of a call lie in the caller's memory.

The tensors of a trace do not tell. After a write, functionalization continues with the new value, which has memory of
its own: a view that is taken then begins where it begins in that value. So the statements about aliases are repeated
here, in the user's order, on tensors without data ("meta") that lie where the caller's do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from aotviz.ir.view_and_mutation import Layout
from aotviz.recorder.naming import size, sizes
from aotviz.recording.sizes import reach
from aotviz.torch_private import dispatch, pytree
from aotviz.torch_private.tensors import storage_key, with_bits
from aotviz.tracing import functional
from aotviz.tracing.events import MetadataOp, TensorNumber, Viewed, Wrote
from aotviz.tracing.ledger import Ledger
from aotviz.tracing.views import layout


@dataclass(frozen=True, eq=False)
class Place:
    """A tensor from its creation, or from an in-place metadata op, up to the next one."""

    tensor: torch.Tensor  # of the trace
    stand_in: torch.Tensor | None  # None for a tensor without one storage, and where the position is not known
    by: Viewed | MetadataOp | None = None  # the statement that placed it; None for an argument, and for a fresh result
    item: int = 0  # which of the results of `by` it is
    source: Place | None = None  # what it was taken from, or was before

    @property
    def storage(self) -> int | None:
        return None if self.stand_in is None else storage_key(self.stand_in)


class Placing:
    """The places of all tensors of a run, by the statements that made them."""

    def __init__(self, ledger: Ledger, given: Sequence[tuple[Any, Any]], results: Sequence[Any]) -> None:
        """`given`: for each tensor that was passed its fake, as it was before the call, and the tensor of the trace."""
        self.first: dict[int, Place] = {}  # id of a tensor -> its first place
        self.last: dict[int, Place] = {}  # the same, after the events so far
        self.written: dict[int, Place] = {}  # position of an event that wrote a tensor -> where that tensor was
        self._tensors = ledger.tensors
        self._memory: dict[int, torch.Tensor] = {}  # storage of a fake -> the memory that stands for it
        self._by_storage: dict[Any, Place] = {}  # storage of an argument in the trace -> its place
        numbers = (n for fake, _ in given for n in (*fake.shape, *_strides(fake)))
        symbolic = any(not isinstance(n, int) for n in numbers)
        with _on_meta(next((fake for fake, _ in given), None), symbolic):
            for fake, traced in given:
                self._put(Place(traced, self._like(fake)))
                with contextlib.suppress(RuntimeError, NotImplementedError):
                    self._by_storage.setdefault(functional.storage(traced), self.last[id(traced)])
            for position, event in enumerate(ledger.events):
                if isinstance(event, Viewed):
                    self._view(event)
                elif isinstance(event, MetadataOp):
                    self.written[position] = self._at(self._tensors[event.tensor], _before(event))
                    self._move(event)
                elif isinstance(event, Wrote):
                    owns = ledger.origin(event.tensor) is None
                    self.written[position] = self._at(self._tensors[event.tensor], event.where if owns else None)
            for result in results:
                self._at(result)

    def _put(self, place: Place) -> None:
        self.first.setdefault(id(place.tensor), place)
        self.last[id(place.tensor)] = place

    def _at(self, tensor: torch.Tensor, where: Layout | None = None) -> Place:
        """The current place of a tensor. `where`: the layout of one that is not placed yet; by default, what it has."""
        if id(tensor) not in self.last:
            shared = None
            with contextlib.suppress(RuntimeError, NotImplementedError):
                shared = self._by_storage.get(functional.storage(tensor))
            where = (where or layout(tensor)) if functional.has_storage(tensor) else None  # a subclass has parts
            self._put(Place(tensor, _fresh(tensor, where, shared), source=shared))
        return self.last[id(tensor)]

    def _like(self, fake: Any) -> torch.Tensor | None:
        if not functional.has_storage(fake):
            return None
        key = storage_key(fake)
        if key not in self._memory:
            nbytes = fake.untyped_storage().nbytes()
            self._memory[key] = torch.empty(nbytes, dtype=torch.uint8, device="meta")
        return _laid(self._memory[key], fake, layout(fake))

    def _view(self, event: Viewed) -> None:
        source = self._at(self._tensors[event.source], event.source_layout)
        made = self._repeated(event, source)
        for item, number in enumerate(event.results):
            result = self._tensors[number]
            self._put(Place(result, made[item] if isinstance(made, (list, tuple)) else made, event, item, source))

    def _move(self, event: MetadataOp) -> None:
        tensor = self._tensors[event.tensor]
        before = self.last[id(tensor)]
        if before.stand_in is None:
            return
        moved = _laid(before.stand_in, before.stand_in, layout(before.stand_in))
        known = self._repeated(event, Place(tensor, moved)) is not None
        after = Place(tensor, moved if known else None, event, 0, before)
        if after.storage != before.storage and event.args and isinstance(event.args[0], TensorNumber):  # `set_`
            after = replace(after, source=self._at(self._tensors[event.args[0]]))
        if not known or layout(moved) != layout(before.stand_in) or after.storage != before.storage:
            self._put(after)

    def _repeated(self, event: Viewed | MetadataOp, source: Place) -> Any:
        """What the statement returns for the stand-ins. None if it cannot be repeated."""
        if source.stand_in is None:
            return None
        flat, spec = pytree.tree_flatten((event.args, dict(event.kwargs)))
        known = [self._at(self._tensors[one]).stand_in if isinstance(one, TensorNumber) else one for one in flat]
        args, kwargs = pytree.tree_unflatten(known, spec)
        try:
            return event.operator(source.stand_in, *args, **kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            return None


@contextlib.contextmanager
def _on_meta(fake: Any, symbolic: bool) -> Iterator[None]:
    """Operators run on tensors without data, outside of all traces, and sizes that are symbols get no new guards."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(dispatch.without_modes())
        stack.enter_context(torch.no_grad())
        if not symbolic:
            stack.enter_context(dispatch.no_python_dispatcher())
        else:
            stack.enter_context(dispatch.enable_python_dispatcher())
            shape_env = getattr(getattr(fake, "fake_mode", None), "shape_env", None)
            if shape_env is not None:
                stack.enter_context(shape_env.suppress_guards())
        yield


def _fresh(tensor: torch.Tensor, where: Layout | None, shared: Place | None) -> torch.Tensor | None:
    """A stand-in for a tensor that is not known to be a view: in memory of its own, or in that of an argument."""
    if where is None or (shared is not None and shared.stand_in is None):
        return None
    if shared is not None:
        return _laid(shared.stand_in, tensor, where)
    end = reach(size(where.offset), sizes(where.size), sizes(where.stride))
    if end is None:
        end = where.offset + 1 + sum((n - 1) * step for n, step in zip(where.size, where.stride, strict=True))
    return _laid(torch.empty(end * tensor.dtype.itemsize, dtype=torch.uint8, device="meta"), tensor, where)


def _laid(memory: Any, like: torch.Tensor, where: Layout) -> torch.Tensor:
    """A tensor at this place of a storage, with the dtype of `like`."""
    made = torch.empty(0, dtype=like.dtype, device="meta")
    made.set_(memory.untyped_storage(), where.offset, where.size, where.stride)
    return with_bits(made, like)


def _before(event: MetadataOp) -> Layout | None:
    """The layout that a fresh result had before its first metadata op, if that has a node."""
    taken = event.node.args[0] if isinstance(event.node, fx.Node) and event.node.args else None
    value: Any = taken.meta.get("val") if isinstance(taken, fx.Node) else None
    return layout(value) if functional.has_storage(value) else None


def _strides(fake: Any) -> Sequence[Any]:
    return fake.stride() if functional.has_storage(fake) else ()
