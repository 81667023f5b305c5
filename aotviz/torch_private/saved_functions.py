"""`torch.compile(f, fullgraph=True).aot_compile(inputs)`: what torch asks of a backend whose result goes into a file.

torch writes the file with pickle: its own part is the bytecode and the guards of the function. Of the backend's result
it keeps the bytes that `serialize_compile_artifacts` returns, and the class, by name, which gets them when another
process loads the file.

This file is imported when Dynamo gives a graph an id, which it does only if the graph is kept.
"""

from __future__ import annotations

import sys
from types import FrameType

from torch._dynamo.aot_compile import aot_compile_fullgraph
from torch._dynamo.aot_compile_types import SerializableCallable

__all__ = ["SerializableCallable", "is_wanted"]


def is_wanted() -> bool:
    """Whether torch called the backend for a function that can be saved."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is aot_compile_fullgraph.__code__:
            return True
        frame = frame.f_back
    return False
