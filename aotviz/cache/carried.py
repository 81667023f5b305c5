"""The programs that a file carries: what a `Store` does, in memory and for the programs of one graph.

A look-up finds what the file has. What is compiled is added, and goes into the file if the file is written later. torch
seals nothing in its file, and unpickles it, so neither do we: who may have written it is the reader's decision. What is
in an entry is checked as in any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec

from aotviz.cache.ingredients import Nearest, differences
from aotviz.cache.kept import Entry
from aotviz.cache.seals import entry_id


class CarriedEntry(msgspec.Struct, array_like=True):
    """A program, as it is in the file."""

    key: str
    variant: str
    ingredients: dict[str, str]
    main: bytes
    parts: dict[str, bytes]  # the backwards, the recording, and in a file the code of the graphs


class Carried:
    """The programs of one graph, with the methods of a `Store` that compiling needs."""

    folder = Path("a saved function")  # in messages
    shared = None
    damaged: frozenset[str] = frozenset()  # the file as a whole is checked

    def __init__(self, held: Sequence[CarriedEntry] = ()) -> None:
        self._held = {entry_id(one.key, one.variant): one for one in held}
        self._rehearsed: set[str] = set()

    def held(self) -> list[CarriedEntry]:
        return list(self._held.values())

    def entries(self, key: str) -> list[Entry]:
        return [Entry(id_, key, one.variant, one.main) for id_, one in self._held.items() if one.key == key]

    def nearest(self, ingredients: Mapping[str, str]) -> Nearest | None:
        found = [Nearest(one.key, differences(one.ingredients, ingredients)) for one in self._held.values()]
        return min(found, key=lambda near: len(near.differing), default=None)

    def part(self, entry: Entry, name: str) -> bytes | None:
        one = self._held.get(entry.id)
        return None if one is None else one.parts.get(name)

    def save(
        self,
        key: str,
        ingredients: Mapping[str, str],
        variant: str,
        main: bytes,
        parts: Mapping[str, bytes] = MappingProxyType({}),
    ) -> Entry:
        entry = Entry(entry_id(key, variant), key, variant, main)
        self._held.setdefault(entry.id, CarriedEntry(key, variant, dict(ingredients), main, dict(parts)))
        return entry

    def add_part(self, entry: Entry, name: str, data: bytes) -> None:
        if entry.id in self._held:
            self._held[entry.id].parts.setdefault(name, data)

    def replace_part(self, entry: Entry, name: str, data: bytes) -> None:
        if entry.id in self._held:
            self._held[entry.id].parts[name] = data

    def share(self, entry: Entry, parts: Mapping[str, bytes]) -> None:
        """Nothing: the code of the graphs is looked for when the file is written."""

    def used(self, entry: Entry) -> None:
        """Nothing: no entry goes because another comes."""

    def is_rehearsed(self, entry: Entry) -> bool:
        return entry.id in self._rehearsed

    def note_rehearsed(self, entry: Entry) -> None:
        self._rehearsed.add(entry.id)

    def discard(self, entry: Entry, *, everywhere: bool = True) -> None:
        self._held.pop(entry.id, None)
