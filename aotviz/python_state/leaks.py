"""Tensors of a trace that user code still holds after the trace.

A traced function can store a tensor anywhere: in a cache behind `lru_cache`, a dict that a helper fills, an attribute
of some object. Eager code that finds this fake later breaks. The places cannot be listed in advance, so the search
starts from the tensors: each functional tensor of a trace is remembered by a weak reference. Those that are alive
afterwards and are held by more than the trace itself have leaked. `reference_search.py` finds the holders, removes the
tensors, and describes the places.

Note [References are counted first]
Asking Python who refers to an object takes as long as a small compilation, because it looks at every object of the
process. Counting references takes microseconds: walk the objects of the trace, and count the references to each tensor.
If its reference count is not higher, nothing else holds it. A container on the walk with a higher count is also held by
something else, and so is all that it leads to. Python's garbage collector counts in this way.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from types import CellType, FrameType, FunctionType
from typing import cast

import torch
from torch.autograd.graph import Node

from aotviz.ir import autograd_graph
from aotviz.ir.refusals import Refused
from aotviz.python_state import reference_search
from aotviz.torch_private import dispatch, functional_tensors
from aotviz.torch_private.functional_tensors import FunctionalTensor
from aotviz.torch_private.tensors import base_of, is_kept_by_autograd

_ITERATORS: tuple[type, ...] = (zip, map, enumerate, type(iter([])), type(iter(())))
_CONTAINERS = (list, tuple, dict, set, frozenset, CellType, FunctionType, *_ITERATORS)


class _Made:
    """The tensors that one compilation created, and the objects of ours that may hold them."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.tensors: list[weakref.ref[torch.Tensor]] = []
        self.owners: list[tuple[weakref.ref[object], tuple[str, ...]]] = []  # with attributes that hold no tensors

    def note(self, tensor: torch.Tensor) -> None:
        if threading.get_ident() == self.thread:
            self.tensors.append(weakref.ref(tensor))


class _Thread(threading.local):
    def __init__(self) -> None:
        self.open: list[_Made] = []


_thread = _Thread()


def exclude_from_search(holder: object, *apart: str) -> None:
    """Record that `holder`, an object of the trace, may keep tensors in attributes other than `apart`."""
    if _thread.open:
        _thread.open[-1].owners.append((weakref.ref(holder), apart))


@contextlib.contextmanager
def undone(name: str, roots: Sequence[object]) -> Iterator[None]:
    """Remove tensors of a trace from the user's objects.

    Args:
        name: the user's name of the function that is traced.
        roots: objects of the user that the trace knows too, that function first.

    Raises:
        Refused: "tensor is kept", if tensors were found and the block itself has not failed.
    """
    made, before = _Made(), reference_search.Before(roots[0])
    _thread.open.append(made)
    try:
        with functional_tensors.made(made.note):
            yield
    except BaseException as error:
        if found := _taken_out(made, before, roots, list(dispatch.frames_of(error))):
            places = " and ".join(found)
            error.add_note(f"aotviz: tracing stored FakeTensors in {places}. They have been removed again.")
        raise
    else:
        if found := _taken_out(made, before, roots, ()):
            raise Refused("tensor is kept", " and ".join(found), name)
    finally:
        _thread.open.pop()


def _taken_out(
    made: _Made, before: reference_search.Before, roots: Sequence[object], frames: Sequence[FrameType]
) -> tuple[str, ...]:
    """Remove the tensors; return descriptions of their places."""
    if not _held_elsewhere(made, frames) or not _held_elsewhere(made, frames, _custom_functions(made)):
        return ()
    gc.collect()  # what only cycles hold is not reachable
    kept = _held_elsewhere(made, frames)
    return reference_search.taken_out(kept, before, roots) if kept else ()


def _custom_functions(made: _Made) -> list[Node]:
    """The autograd nodes of custom Functions that the tensors' gradients reach. Their attributes can be tensors."""
    alive = (tensor for reference in made.tensors if (tensor := reference()) is not None)
    # To read the `grad_fn` of a view may make autograd regenerate it.
    nodes = autograd_graph.nodes_behind(tensor.grad_fn for tensor in alive if base_of(tensor) is None)
    return list(filter(autograd_graph.from_custom_function, nodes))


def _held_elsewhere(made: _Made, frames: Sequence[FrameType], nodes: Sequence[Node] = ()) -> list[FunctionalTensor]:
    """The tensors that are held by something other than the trace, `frames` and these autograd `nodes`."""
    count = _Count()
    for reference in made.tensors:
        count.add(reference())
    if not count.inside:
        return []
    count.walk_added()
    for holder in (*frames, *nodes):
        count.walk(holder, is_ours=True)
    for owner, apart in made.owners:
        count.walk(owner(), apart, is_ours=True)
    return count.tensors_held_elsewhere()


class _Count:
    """See Note [References are counted first]."""

    def __init__(self) -> None:
        self.inside: dict[int, object] = {}  # id -> object found on the walk
        self.below: dict[int, list[int]] = {}  # id -> ids of the objects that it refers to, one for each reference
        self.roots: set[int] = set()
        self.add([])
        self.own = self._references(*self.inside)  # the count of an object that only `inside` refers to
        self.inside.clear()

    def _references(self, key: int) -> int:
        return sys.getrefcount(self.inside[key])

    def add(self, item: object) -> None:
        if item is not None:
            self.inside[id(item)] = item

    def walk(self, root: object, apart: Sequence[str] = (), is_ours: bool = False) -> None:
        """Count the references reachable from `root`, except through its attributes `apart`. References to our own
        objects (`is_ours`) are not counted."""
        if is_ours:
            self.roots.add(id(root))
        if root is None or id(root) in self.below:
            return
        self.add(root)
        skipped = {id(getattr(root, name, None)) for name in apart}
        queue = [id(root)]
        while queue:
            holder = queue.pop()
            below = self.below[holder] = []
            for item in _referents(self.inside[holder]):
                key, kind = id(item), cast(Hashable, type(item))
                if key not in self.inside:
                    if key in skipped or not _leads_on(kind):
                        continue
                    self.add(item)
                below.append(key)
                if key not in self.below:
                    self.below[key] = []
                    queue.append(key)

    def walk_added(self) -> None:
        for item in list(self.inside.values()):
            self.walk(item)

    def tensors_held_elsewhere(self) -> list[FunctionalTensor]:
        met = Counter(chain.from_iterable(self.below.values()))
        queue = [key for key in self.inside if key not in self.roots and self._is_held_elsewhere(key, met[key])]
        reached = set(queue)
        while queue:
            for key in self.below.get(queue.pop(), ()):
                if key not in reached:
                    reached.add(key)
                    queue.append(key)
        return [tensor for key in reached if isinstance(tensor := self.inside[key], FunctionalTensor)]

    def _is_held_elsewhere(self, key: int, met: int) -> bool:
        item = self.inside[key]
        if not isinstance(item, (*_CONTAINERS, torch.Tensor)):
            return False  # an object of ours
        by_autograd = isinstance(item, torch.Tensor) and is_kept_by_autograd(item)
        del item
        return self._references(key) > self.own + met + by_autograd


def _referents(holder: object) -> list[object]:
    """The objects that an object refers to. For a function, only its closure: the globals are not its own. For a tensor
    of the trace, only that of which it is a view taken in inference mode."""
    if isinstance(holder, FunctionalTensor):
        base = functional_tensors.inference_base(holder)
        return [] if base is None else [base]
    if isinstance(holder, FunctionType):
        return [] if holder.__closure__ is None else [holder.__closure__]
    return gc.get_referents(holder)


@functools.lru_cache(maxsize=1024)
def _leads_on(kind: type) -> bool:
    """Whether objects of a type may hold tensors: containers, objects of ours, interpreters of graphs, subclasses with
    inner tensors. A recording is data without tensors, and a long one is large."""
    if issubclass(kind, (*_CONTAINERS, torch.fx.Interpreter)):
        return True
    made_of_tensors = issubclass(kind, torch.Tensor) and hasattr(kind, "__tensor_flatten__")
    ours = kind.__module__.startswith("aotviz.") and not kind.__module__.startswith("aotviz.recording.")
    return made_of_tensors or ours
