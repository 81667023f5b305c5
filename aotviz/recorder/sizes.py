"""How much memory a recorded graph speaks of, read off its values."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from aotviz.recorder.events import NONE, GraphSnapshot, ValueRecord


def element_bytes(dtype: str) -> int:
    """Of a dtype by its name; what is smaller than a byte counts as one.

    >>> [element_bytes(name) for name in ("torch.float32", "torch.bool", "torch.float8_e4m3fn", "torch.complex64")]
    [4, 1, 1, 8]
    """
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1


def graph_bytes(graph: GraphSnapshot, values: Sequence[ValueRecord], strings: Sequence[str]) -> int:
    """Bytes of all that the graph's operators make, each storage once, without inputs. NONE where one is symbolic."""
    largest: dict[int, int] = {}
    given = {
        values[number].storage for op, number in zip(graph.op, graph.value, strict=True) if op == "p" and number >= 0
    }
    pending = [number for op, number in zip(graph.op, graph.value, strict=True) if op not in "po" and number >= 0]
    seen: set[int] = set()  # a tuple may hold a value twice, and be held twice
    while pending:
        number = pending.pop()
        if number in seen:
            continue
        seen.add(number)
        value = values[number]
        pending += value.parts
        if value.kind != "tensor" or (value.storage >= 0 and value.storage in given):
            continue
        if not all(isinstance(size, int) for size in value.shape):
            return NONE
        nbytes = math.prod(size for size in value.shape if isinstance(size, int)) * element_bytes(strings[value.dtype])
        key = value.storage if value.storage >= 0 else ~number  # of an unknown storage: its own
        largest[key] = max(largest.get(key, 0), nbytes)
    return sum(largest.values())
