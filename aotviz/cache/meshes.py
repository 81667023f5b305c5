"""Meshes of devices and process groups in entries: those of the call, found again by their descriptions.

They are connected to other processes, so they cannot be stored. The key describes those that are inputs, or that inputs
have, such as the mesh of a DTensor, and those that functions in the graph read: before torch 2.13 Dynamo makes such a
function of `DTensor.from_local`. An entry has a digest of such a description, and the program from the cache gets what
this call's key describes with the same one. Another mesh can be a part of one of these, such as `mesh["tp"]`. Its entry
has the names of its dimensions too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from aotviz.cache import bypasses
from aotviz.cache.content import digest
from aotviz.ir import wrapper_subclasses
from aotviz.torch_private import distributed, script_objects
from aotviz.torch_private.dispatch import without_modes


def of_call(args: Iterable[Any]) -> list[Any]:
    """The meshes and process groups that arguments are or have, each once."""
    found = {id(one): one for value in args for one in _held(value)}
    return list(found.values())


def _held(value: Any) -> Iterator[Any]:
    real = script_objects.real(value)
    if distributed.is_shared(real):
        yield real
    elif wrapper_subclasses.is_subclass(value):
        names, context = wrapper_subclasses.anatomy(value)
        for held in (*(wrapper_subclasses.attribute(value, name) for name in names), context):
            yield from _held(held)
    elif type(value) is tuple:  # a context
        for one in value:
            yield from _held(one)
    else:
        yield from filter(distributed.is_shared, distributed.taken_apart(value) or ())


class Meshes:
    """Those of one call."""

    def __init__(self, known: Sequence[Any] = ()) -> None:
        self._known = known
        self._packed: dict[int, tuple[Any, list[Any]]] = {}  # id -> what keeps it, and its data
        self._found: dict[tuple[str, ...], Any] = {}

    def packed(self, value: Any) -> list[Any]:
        """What `found` takes.

        Raises:
            Uncacheable: no argument has it, or a whole that it is a part of.
        """
        known = self._packed.get(id(value))
        if known is None:
            known = self._packed[id(value)] = value, self._data(value)
        return known[1]

    def _data(self, value: Any) -> list[Any]:
        equal = next((one for one in self._known if one is value or one == value), None)
        if equal is not None:  # the groups of `value` itself may be gone: torch's tables of DTensors keep old meshes
            return [_digest(equal)]
        sign, names = _digest(value), tuple(getattr(value, "mesh_dim_names", None) or ())
        if not names or self._search(sign, names) is None:
            raise bypasses.VALUE(f"{bypasses.kind_of(value)} that no input has cannot be stored")
        return [sign, *names]

    def found(self, sign: str, *names: str) -> Any:
        """The one of this call; LookupError if it has none."""
        found = self._search(sign, names)
        if found is None:
            raise LookupError("this call has no such mesh or process group")
        return found

    def _search(self, sign: str, names: tuple[str, ...]) -> Any:
        place = sign, *names
        if place not in self._found:
            self._found[place] = next((one for one in self._candidates(names) if _digest(one) == sign), None)
        return self._found[place]

    def _candidates(self, names: tuple[str, ...]) -> Iterator[Any]:
        if not names:
            yield from self._known
            return
        with without_modes():
            parts = [distributed.part_of_mesh(one, names) for one in self._known if distributed.is_mesh(one)]
        yield from (one for one in parts if one is not None)


def _digest(value: Any) -> str:
    with without_modes():
        return digest(distributed.described(value))
