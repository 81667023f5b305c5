"""The user's names of tensors: what the variables and modules around a call of `backward()` call them.

Autograd's nodes know no names. A parameter is `encoder.0.weight` if a module that the caller can reach has it by that
path, and `model.encoder.0.weight` where two modules have different tensors by one path; a tensor in a variable has that
variable's name. A leaf that nothing around reaches is `leaf_0`. The gradient of a leaf is called after the leaf.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import torch

from aotviz.ir.user_code import is_library, variables

_WRAPPERS = ("_orig_mod.", "module.")  # of torch.compile and of data parallel modules
MOST_FRAMES = 20


def names_around(frame: FrameType | None, leaves: Sequence[torch.Tensor] = ()) -> dict[int, str]:
    """id of a tensor -> its name, for tensors that the user's functions in the stack of `frame` can reach, and for
    `leaves` and their `.grad`. No two have the same name."""
    found: dict[int, str] = {}
    owners: dict[str, int] = {}  # name -> id of the tensor that has it
    for variable, path, tensor in _tensors(frame):
        if id(tensor) not in found:
            name = path or variable
            if owners.setdefault(name, id(tensor)) != id(tensor) and path:
                name = f"{variable}.{path}"
            if owners.setdefault(name, id(tensor)) == id(tensor):
                found[id(tensor)] = name
    for number, leaf in enumerate(leaves):
        name = found.setdefault(id(leaf), f"leaf_{number}")
        if leaf.grad is not None:
            found[id(leaf.grad)] = f"{name}.grad"
    return found


def _tensors(frame: FrameType | None) -> Iterator[tuple[str, str, torch.Tensor]]:
    """(variable, path in it, tensor), the innermost function first."""
    count = 0
    while frame is not None and count < MOST_FRAMES:
        if not is_library(frame.f_code.co_filename):
            count += 1
            used = ((name, frame.f_globals[name]) for name in frame.f_code.co_names if name in frame.f_globals)
            for name, value in (*variables(frame).items(), *used):
                yield from _inside(name, value)
        frame = frame.f_back


def _inside(name: str, value: Any, is_variables: bool = True) -> Iterator[tuple[str, str, torch.Tensor]]:
    """The tensors of a variable's value, and of the attributes of an object such as a trainer."""
    if isinstance(value, torch.Tensor):
        yield name, "", value
    elif isinstance(value, torch.nn.Module):
        for path, tensor in itertools.chain(value.named_parameters(), value.named_buffers()):
            for wrapper in _WRAPPERS:
                path = path.removeprefix(wrapper)
            yield name, path, tensor
    elif is_variables and _has_attributes(value):
        for key, held in list(vars(value).items()):
            yield from _inside(f"{name}.{key}", held, is_variables=False)


def _has_attributes(value: Any) -> bool:
    return hasattr(value, "__dict__") and not isinstance(value, type) and type(value).__module__ != "builtins"
