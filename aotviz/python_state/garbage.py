"""Python's garbage collector while a program is traced and its graphs are edited.

Both allocate much and free little, so collections meanwhile are wasted time, above all the full ones, which walk
through everything that the process has.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_has_frozen = False  # whether this process has set objects apart by `gc.freeze`, as far as is known


@contextlib.contextmanager
def not_collected() -> Iterator[None]:
    """No collections inside. The next one after it walks through what was made inside, and frees what is dropped."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def counted_as_old() -> Iterator[None]:
    """No collections inside, and what was made inside counts as old afterwards: it lives on, and is not walked again.

    That is not done where the process has frozen objects, which would be thawed. Those are counted once: that walks
    through all of them.
    """
    global _has_frozen
    with not_collected():
        try:
            yield
        finally:
            _has_frozen = _has_frozen or gc.get_freeze_count() > 0
            if not _has_frozen:
                gc.freeze()
                gc.unfreeze()
