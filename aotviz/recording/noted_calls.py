"""A call of a compiled function, noted while Dynamo compiled something for it, so that it can be repeated.

It holds no tensor and keeps no function alive. recorder/calls.py notes it, and comparing/trying.py repeats it. This
module does not import torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_count = itertools.count()


@dataclass(frozen=True)
class Made:
    """An input tensor: one like it can be made, with other values. An input that is passed twice is one object."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any
    device: Any
    requires_grad: bool
    is_leaf: bool
    is_parameter: bool
    marks: Mapping[str, Any]  # of `mark_dynamic` and its like


@dataclass(frozen=True)
class NotMade:
    """An input that is neither a plain tensor nor a plain value."""

    kind: str  # the name of its class


@dataclass(frozen=True, eq=False)
class NotedCall:
    """One call from outside into a compiled function."""

    name: str  # of the function
    function: Callable[[], tuple[Any, Any] | None]  # (Dynamo's context, what it compiles); None if one is gone
    token: object  # an object of this call alone
    inputs: Sequence[Made | NotMade | Any]  # leaves of (args, kwargs); others are plain values
    structure: Any  # of (args, kwargs)
    modes: Any  # grad mode, autocast, ... (torch_private/context.py)
    attributes: Sequence[Mapping[str, Any]]  # the plain ones of each module that the function reaches
    hooks: frozenset[int] = frozenset()  # the numbers of the hooks of these modules
    number: int = field(default_factory=lambda: next(_count))  # in the order of the calls

    @property
    def foreign(self) -> list[str]:
        """The classes of the inputs that cannot be made."""
        return sorted({one.kind for one in self.inputs if isinstance(one, NotMade)})
