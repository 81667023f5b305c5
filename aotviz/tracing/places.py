"""Places outside a function where it finds tensors that it does not take: a cell, a global, an item, an attribute."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, eq=False)
class Place:
    """Where a value is. `path` is what the user would write for it; `write` is None where nothing can be put."""

    path: str
    read: Callable[[], Any]
    write: Callable[[Any], None] | None
    holder: object  # the container it lies in, or the owner of the cell
    kind: str = ""  # "held": a module has it as a parameter or buffer
    outer: Place | None = None  # where the tuple lies that must be replaced with it

    def value(self) -> Any:
        """What is there now; None where nothing is."""
        try:
            return self.read()
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return None


@contextlib.contextmanager
def swapped(places: Sequence[Place], values: Sequence[Any]) -> Iterator[None]:
    """Put `values` in the places, where they are tensors.

    Raises:
        NotImplementedError: the block put another tensor there, which a compiled call would not do.
    """
    pairs = [(place, value) for place, value in zip(places, values, strict=True) if isinstance(value, torch.Tensor)]
    outermost = [place.outer or place for place, _ in pairs]
    before = [place.read() for place in outermost]
    try:
        for place, value in pairs:
            assert place.write is not None
            place.write(value)
        yield
        for place, value in pairs:
            if place.value() is not value:
                raise NotImplementedError(
                    f"the call puts another tensor into {place.path!r}, which a compiled call would not do: write into "
                    f"the one that is there ({place.path}.copy_(...)), or return the new one"
                )
    finally:
        for place, value in zip(reversed(outermost), reversed(before), strict=True):
            assert place.write is not None
            place.write(value)
