"""Sizes that may be symbolic, examined without adding guards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def expression(value: Any) -> Any:
    """The sympy expression of a symbolic number."""
    return value.node.expr


def is_concrete(value: Any) -> bool:
    """Whether a size, stride or offset is a plain int."""
    return isinstance(value, int)


def hint(value: Any) -> int:
    """The value of a size in the call that is being traced. Adds no guard."""
    return value if isinstance(value, int) else int(value.node.hint)


def has_hint(value: Any) -> bool:
    """Whether the value of a size is known in the call that is being traced, so it does not depend on tensor data."""
    return isinstance(value, int) or value.node.has_hint()


def statically_equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether sizes are known to be equal. Adds no guard."""
    return len(one) == len(other) and all(statically_known_true(a == b) for a, b in zip(one, other, strict=True))


def all_concrete(values: Sequence[Any]) -> bool:
    return all(map(is_concrete, values))


def is_symbolic(value: Any) -> bool:
    return isinstance(value, SYMBOLIC)
