"""Python's garbage collector while a program is traced."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_has_frozen = False  # whether this process has set objects apart by `gc.freeze`, as far as is known


@contextlib.contextmanager
def not_collected() -> Iterator[None]:
    """A trace allocates much and frees little, so collections inside are wasted time.

    What it made lives on: afterwards it counts as old, and is not walked again. That is not done where the process has
    frozen objects, which would be thawed. Those are counted once: that walks through all of them.
    """
    global _has_frozen
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            _has_frozen = _has_frozen or gc.get_freeze_count() > 0
            if not _has_frozen:
                gc.freeze()
                gc.unfreeze()
            gc.enable()
