"""The text that a snapshot has for torch's objects: sizes, operators, source frames, modules, descriptors.

A recording is read without torch, by a person, so these are what that person would type or see in a traceback, without
what tracers add.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import torch

from aotviz.recording.sources import module_path
from aotviz.torch_private import operators, registered_operators

OURS = (os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep,)
TORCHS = (os.path.dirname(os.path.abspath(torch.__file__)) + os.sep,)
OPTIMIZERS = os.path.join(TORCHS[0], "optim", "")
FILE = '  File "'
_text_of_operator = lru_cache(4096)(str)


def size(number: Any) -> int | str:
    """A size in elements; a symbolic one as its expression, e.g. "s0*2"."""
    return number if type(number) is int else str(number)


def sizes(numbers: Any) -> list[int | str]:
    """Sizes or strides in elements."""
    found = list(numbers)
    for number in found:
        if type(number) is not int:
            return list(map(size, found))
    return found


def describe(descriptor: Any) -> str:
    """What a placeholder or output means to the user, in words (ir/descriptors.py).

    The descriptors that torch's partitioners put on saved values are written as Python expressions.
    """
    kind: Any = type(descriptor)
    if _has_plain_str(kind) and hasattr(descriptor, "expr"):
        return str(descriptor.expr())
    return str(descriptor)


@lru_cache(256)
def _has_plain_str(kind: Any) -> bool:
    return not any("__str__" in vars(base) for base in kind.__mro__[:-1])


def target_name(target: Any) -> str:
    """What a node calls, by the name that a user would type.

    >>> target_name(torch.ops.aten.add.Tensor), target_name(operator.getitem), target_name("weight")
    ('aten.add.Tensor', 'operator.getitem', 'weight')
    """
    if isinstance(target, str):
        return target
    if registered_operators.is_operator(target):
        return _text_of_operator(target)
    name = getattr(target, "__name__", None) or str(target)
    if operators.is_higher_order(target):
        return f"higher_order.{name}"
    if getattr(operator, name, None) is target:
        return f"operator.{name}"
    module = getattr(target, "__module__", None) or ("torch" if getattr(torch, name, None) is target else "")
    return f"{module}.{name}" if module else name


def user_frames(trace: str) -> str:
    r"""A traceback's text without the frames inside torch and aotviz, and without the rows of carets.

    >>> user_frames('  File "model.py", line 3, in forward\n    return x.cos()\n           ^^^^^^^\n')
    '  File "model.py", line 3, in forward\n    return x.cos()'
    """
    frames = trace.split(FILE)[1:]
    found = list(filter(None, map(_user_frame, frames)))
    return "\n".join(found or [_without_carets(one) for one in frames if one.startswith(OPTIMIZERS)][-1:])


@lru_cache(4096)
def _user_frame(frame: str) -> str:
    """One frame of a trace that was split at FILE; "" for a frame that is not the user's."""
    if frame.startswith(TORCHS + OURS):
        return ""
    return _without_carets(frame)


def _without_carets(frame: str) -> str:
    lines = (line for line in frame.splitlines() if line.strip(" ^~"))
    return FILE + "\n".join(lines)


def module_lines(entries: Iterable[tuple[str, Any]]) -> str:
    """A module stack as "path|Class" lines, outermost first; the paths as the user would write them.

    >>> module_lines([("L['self'].h.0", torch.nn.Linear)])
    'h.0|Linear'
    """
    return "\n".join([_module_line(path, kind if isinstance(kind, str) else kind.__name__) for path, kind in entries])


@lru_cache(4096)  # a module is in the stack of everything that it calls
def _module_line(path: str, kind: str) -> str:
    return f"{module_path(path)}|{kind.rsplit('.', 1)[-1]}".replace("\n", " ")
