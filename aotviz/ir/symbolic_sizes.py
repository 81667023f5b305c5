"""Sizes that may be symbols: what is known of one without a guard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true


def expression(value: Any) -> Any:
    """What a symbolic number is, as an expression of the symbols."""
    return value.node.expr


def is_concrete(value: Any) -> bool:
    """Whether a size, stride or offset is a plain int."""
    return isinstance(value, int)


def hint(value: Any) -> int:
    """A size as it is in the call that is being traced. Asks for no guard."""
    return value if isinstance(value, int) else int(value.node.hint)


def has_hint(value: Any) -> bool:
    """Whether a size is known in the call that is being traced: it does not depend on values."""
    return isinstance(value, int) or value.node.has_hint()


def statically_equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether sizes are known to be the same. Asks for no guard."""
    return len(one) == len(other) and all(statically_known_true(a == b) for a, b in zip(one, other, strict=True))


def all_concrete(values: Sequence[Any]) -> bool:
    return all(map(is_concrete, values))


def is_symbolic(value: Any) -> bool:
    """Whether a value is a symbolic number."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))
