"""Results that share memory with an argument although the operator's schema says that they are new.

`unsafe_chunk` and `unsafe_split` return parts of a tensor that autograd does not know as views. In eager, a write to
the tensor shows in the parts, and the other way round. A graph has values, not memory, and would show the old ones. So
the use of a tensor after such a write under another name is refused. Without a use, as in torch's LSTM, which writes to
the parts of a tensor that it then drops, nothing is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from aotviz.ir.refusals import Refused
from aotviz.torch_private import operators, pytree

Root = Callable[[Any], Any]  # the tensor that owns the memory of another, as far as the schemas tell
_aten = torch.ops.aten
_HIDING = {_aten.unsafe_split.Tensor, _aten.unsafe_split_with_sizes.default, _aten.unsafe_chunk.default}


class HiddenAliases:
    """Those of one run."""

    def __init__(self) -> None:
        self._wholes: defaultdict[int, list[Any]] = defaultdict(list)  # id of a part -> what it is a part of
        self._parts: defaultdict[int, list[Any]] = defaultdict(list)  # id of a whole -> its parts, and theirs
        self._outdated: dict[int, str] = {}  # id of an owner whose memory was written elsewhere -> the operator

    def note(self, root: Root, operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        """Called after each operator."""
        if operator in _HIDING:
            whole = root(args[0])
            wholes = [whole, *self._wholes[id(whole)]]
            for part in result:
                self._wholes[id(part)] = wholes
                for one in wholes:
                    self._parts[id(one)].append(part)
        elif self._parts:
            for written_by in self.outdated(root, (*args, *kwargs.values())):
                raise Refused("part that is not a view", written_by)
            for tensor in operators.written(operator, args, kwargs) if operators.writes(operator) else ():
                owner, name = id(root(tensor)), operators.name(operator).rpartition("::")[2]
                self._outdated.update((id(one), name) for one in (*self._wholes[owner], *self._parts[owner]))

    def outdated(self, root: Root, used: Iterable[Any]) -> Iterator[str]:
        """The operators that wrote the memory of what is used under another name; `used` by the caller, after the run,
        too."""
        for value in pytree.tree_leaves(list(used)) if self._outdated else ():
            if isinstance(value, torch.Tensor) and id(root(value)) in self._outdated:
                yield self._outdated[id(root(value))]
