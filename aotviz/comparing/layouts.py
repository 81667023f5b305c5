"""Where tensors lie in memory, as numbers that can be changed, and tensors that lie there.

`layouts_of` reads the layouts of some arguments, and `tensors_of` makes arguments with given layouts. Arguments in one
memory are views of one base, as slices of one tensor are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from aotviz.torch_private import tensors

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool)
}


@dataclass(frozen=True)
class Layout:
    """Where a tensor lies. `memory` names the argument in whose memory it lies; its own name for memory of its own."""

    memory: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]  # elements, one per dimension
    offset: int  # elements
    dtype: torch.dtype
    requires_grad: bool
    same_as: str = ""  # the argument that is the same tensor; then nothing else here counts

    @property
    def reach(self) -> int:
        """How many elements of this dtype its memory must have."""
        if 0 in self.shape:
            return self.offset
        return self.offset + 1 + sum((n - 1) * step for n, step in zip(self.shape, self.stride, strict=True))

    @property
    def plain(self) -> bool:
        """Whether it is contiguous and begins at the start of its memory."""
        steps, step = [], 1
        for n in reversed(self.shape):
            steps.append(step)
            step *= n
        return self.offset == 0 and self.stride == tuple(reversed(steps))


def layouts_of(arguments: Mapping[str, torch.Tensor]) -> dict[str, Layout]:
    """The layout of each argument.

    >>> m = torch.zeros(8)
    >>> found = layouts_of({"a": m[:5], "b": m[3:], "c": torch.ones(2)})
    >>> [(layout.memory, layout.offset) for layout in found.values()]
    [('a', 0), ('a', 3), ('c', 0)]
    """
    owners: dict[object, str] = {}
    names: dict[int, str] = {}
    found = {}
    for name, tensor in arguments.items():
        owner = owners.setdefault(tensors.storage_key(tensor), name)
        same = names.setdefault(id(tensor), name)
        found[name] = Layout(
            memory=owner,
            shape=tuple(tensor.shape),
            stride=tuple(tensor.stride()),
            offset=int(tensor.storage_offset()),
            dtype=tensor.dtype,
            requires_grad=tensor.requires_grad,
            same_as=same if same != name else "",
        )
    return found


def tensors_of(layouts: Mapping[str, Layout], contents: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """New tensors with these layouts. The memory of an argument begins with the content of that argument's storage.

    >>> layouts = layouts_of({"a": torch.arange(4.0), "b": torch.zeros(2)})
    >>> from dataclasses import replace
    >>> moved = {**layouts, "b": replace(layouts["b"], memory="a", offset=2)}
    >>> tensors_of(moved, {"a": torch.arange(4.0), "b": torch.zeros(2)})["b"]
    tensor([2., 3.])
    """
    made: dict[str, torch.Tensor] = {}
    for owner in dict.fromkeys(layout.memory for layout in layouts.values()):
        members = {n: layout for n, layout in layouts.items() if layout.memory == owner and not layout.same_as}
        if members:
            made |= _in_one_memory(members, contents[owner])
    return {name: made[layout.same_as or name] for name, layout in layouts.items()}


def moved(layouts: Mapping[str, Layout], name: str, **changes: Any) -> dict[str, Layout]:
    """The layouts after a change of one. `memory` and `same_as` may name any argument.

    >>> layouts = layouts_of({"a": torch.zeros(4), "b": torch.zeros(2)})
    >>> both = moved(layouts, "b", memory="a")
    >>> [layout.memory for layout in both.values()], [layout.memory for layout in moved(both, "a", memory="a").values()]
    (['a', 'a'], ['a', 'b'])
    """
    others = {other: layout for other, layout in layouts.items() if other != name}
    layout = layouts[name]
    if "same_as" in changes:
        root = layouts[changes["same_as"]].same_as or changes["same_as"]
        if root == name:  # the other one is this tensor already
            return dict(layouts)
        changes["same_as"] = root
    stays = False  # in the memory that it owns
    if "memory" in changes:
        changes["same_as"] = ""
        if changes["memory"] != name:
            changes["memory"] = layouts[changes["memory"]].memory
            stays = changes["memory"] == name
    if layout.memory == name and not stays and ("memory" in changes or changes.get("same_as")):
        others = _without_owner(others, name)
    if changes.get("same_as"):  # what was this tensor is the other one now too
        others = {n: replace(o, same_as=changes["same_as"]) if o.same_as == name else o for n, o in others.items()}
    return {n: replace(layout, **changes) if n == name else others[n] for n in layouts}


def _without_owner(others: Mapping[str, Layout], owner: str) -> dict[str, Layout]:
    """The layouts of the arguments that stay in a memory whose owner leaves it: the first of them owns it now."""
    heirs = [n for n, layout in others.items() if layout.memory == owner and not layout.same_as]
    return {n: replace(o, memory=heirs[0]) if o.memory == owner and heirs else o for n, o in others.items()}


def is_movable(value: Any) -> bool:
    """Whether a value is an ordinary tensor in memory."""
    if (
        not isinstance(value, torch.Tensor)
        or value.layout is not torch.strided
        or tensors.is_traceable_wrapper_subclass(value)
    ):
        return False
    return value.device.type != "meta"


def _in_one_memory(members: Mapping[str, Layout], content: torch.Tensor) -> dict[str, torch.Tensor]:
    first = next(iter(members.values()))
    device = content.device
    old = torch.empty(0, dtype=torch.uint8, device=device).set_(content.detach().untyped_storage())
    if len(members) == 1 and first.plain:
        made = torch.zeros(first.shape, dtype=first.dtype, device=device)
        _fill(made, old)
        return {name: made.requires_grad_(layout.requires_grad) for name, layout in members.items()}
    sizes = [layout.dtype.itemsize for layout in members.values()]
    nbytes = max(layout.reach * size for layout, size in zip(members.values(), sizes, strict=True))
    nbytes = -(-max(nbytes, len(old)) // max(sizes)) * max(sizes)
    base = torch.zeros(nbytes // first.dtype.itemsize, dtype=first.dtype, device=device)
    _fill(base, old)
    return {
        name: _typed(base, layout.dtype)
        .as_strided(layout.shape, layout.stride, layout.offset)
        .requires_grad_(layout.requires_grad)
        for name, layout in members.items()
    }


def _typed(base: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return base if base.dtype is dtype else base.view(dtype)


def _fill(tensor: torch.Tensor, content: torch.Tensor) -> None:
    into = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
    count = min(len(into), len(content))
    into[:count].copy_(content[:count])
