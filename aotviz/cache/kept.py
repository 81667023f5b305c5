"""What a store holds, as its users see it: an entry, and what is listed, shown and verified."""

from __future__ import annotations

import msgspec


class Entry(msgspec.Struct, frozen=True):
    """One program under a key."""

    id: str  # of the key and the variant
    key: str  # hex digest of the ingredients
    variant: str  # hex digest of its guards: several entries can share a key
    main: bytes  # opaque here

    def __repr__(self) -> str:
        return f"Entry(key={self.key[:12]!r}, variant={self.variant[:12]!r}, {len(self.main):,} bytes)"


class Kept(msgspec.Struct, frozen=True):
    """A key in a list of all."""

    key: str
    created: float  # seconds since 1970, for display only: clocks change
    used: float
    bytes: int  # of all parts of its entries
    entries: int
    parts: frozenset[str]  # the names of its entries' parts
    ingredients: dict[str, str]  # the beginning of each text
    name: str = ""  # of the function that was compiled last; no part of the key


class Held(msgspec.Struct, frozen=True):
    """An entry, without its bytes."""

    id: str
    variant: str
    created: float  # seconds since 1970, for display only
    used: float
    parts: dict[str, int]  # name: bytes


class Verified(msgspec.Struct, frozen=True):
    """What `Store.verify` read, and what was wrong with it."""

    entries: int
    bytes: int
    damaged: list[str]  # one line for each fault; what was damaged has been removed
