"""Results that share memory with an argument although the operator's schema says that they are new.

`unsafe_chunk` and `unsafe_split` return parts of a tensor that autograd does not know as views. In eager, a write to
the tensor shows in the parts, and the other way round. A graph has values, not memory, and would show the old ones. So
the use of a tensor after such a write under another name is refused. Without a use, as in torch's LSTM, which writes to
the parts of a tensor that it then drops, nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from aotviz.ir.refusals import Refused
from aotviz.torch_private import operators

Root = Callable[[Any], Any]  # the tensor that owns the memory of another, as far as the schemas tell
_aten = torch.ops.aten
_HIDING = {_aten.unsafe_split.Tensor, _aten.unsafe_split_with_sizes.default, _aten.unsafe_chunk.default}


class HiddenAliases:
    """Those of one run."""

    def __init__(self) -> None:
        self._taken: list[tuple[Any, tuple[Any, ...]]] = []  # (the owner of the whole, the parts)
        self._outdated: dict[int, str] = {}  # id of an owner whose memory was written elsewhere -> the operator

    def note(self, root: Root, operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        """Called after each operator."""
        if operator in _HIDING:
            self._taken.append((root(args[0]), tuple(result)))
        elif self._taken:
            for written_by in self.outdated(root, (*args, *kwargs.values())):
                raise Refused("part that is not a view", written_by)
            for tensor in operators.written(operator, args, kwargs) if operators.writes(operator) else ():
                self._written(root(tensor), operators.name(operator).rpartition("::")[2])

    def _written(self, owner: Any, operator: str) -> None:
        wholes, parts = [owner], [owner]
        for one in parts:
            parts += [part for whole, taken in self._taken if whole is one for part in taken]
        for one in wholes:
            wholes += [whole for whole, taken in self._taken if any(part is one for part in taken)]
        self._outdated.update((id(one), operator) for one in (*wholes[1:], *parts[1:]))

    def outdated(self, root: Root, used: Iterable[Any]) -> Iterator[str]:
        """The operators that wrote the memory of what is used under another name; `used` by the caller, after the run,
        too."""
        for value in used if self._outdated else ():
            if isinstance(value, (list, tuple)):
                yield from self.outdated(root, value)
            elif isinstance(value, torch.Tensor) and id(root(value)) in self._outdated:
                yield self._outdated[id(root(value))]
