"""The user's code: which source files belong to it, and the variables of its running functions."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from types import FrameType
from typing import Any

import torch

TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
HOUSE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@functools.lru_cache(4096)  # asked of each frame below each traced operator
def is_library(filename: str) -> bool:
    """Whether a source file belongs to torch, aotviz or Python's frozen modules, and not to the user."""
    return filename.startswith((TORCH, HOUSE, "<frozen"))


def variables(frame: FrameType) -> dict[str, Any]:
    """A copy of a frame's variables, which leaves the frame as it was: see Note [Snapshots of variables]."""
    found = frame.f_locals
    copy = dict(found)
    is_snapshot = sys.version_info < (3, 13) and bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)
    is_watched = sys.gettrace() is not None or sys.getprofile() is not None
    if is_snapshot and not is_watched and sys.getrefcount(found) == _REFERENCES:
        found.clear()
    return copy


_REFERENCES = 3  # to a snapshot: the frame's, the variable `found`, and the argument of `getrefcount`

# Note [Snapshots of variables]
# Before Python 3.13, `f_locals` of a function is a snapshot, a dict that the frame keeps until it ends. It would keep
# alive what the function deletes later, so it is emptied again. It is left as it is if the user holds it too
# (`settings = locals()`), and under a debugger or profiler: Python assigns the snapshot's values to the variables when
# the debugger's function returns. `f_locals` of a module or a class body holds the variables themselves, as
# does that of a function since 3.13.
