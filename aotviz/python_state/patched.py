"""Attributes and items that are others inside a block, and what they were after it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def patched(owner: Any, **values: Any) -> Iterator[None]:
    """Give a module, class or object other attributes inside the block."""
    before = {name: vars(owner)[name] for name in values if name in vars(owner)}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in values:
            if name in before:
                setattr(owner, name, before[name])
            else:
                delattr(owner, name)


@contextlib.contextmanager
def items_kept(items: dict[str, Any], *names: str) -> Iterator[None]:
    """Restore these items of a dict after the block."""
    before = {name: items[name] for name in names if name in items}
    try:
        yield
    finally:
        for name in names:
            items.pop(name, None)
        items.update(before)
