"""What Dynamo keeps for the next process, while `torch._dynamo.config.caching_precompile` is set.

Dynamo then writes its bytecode and guards to a file when the user calls `torch.compiler.save_cache_artifacts()`, and
with each graph what its backend has recorded here under the graph's id. When a process compiles the function again,
torch unpickles the file, and installs the guards and what `after_deserialization` returns.

This file is imported when Dynamo gives a graph an id, which it does only then.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

from torch._dynamo.eval_frame import _TorchDynamoContext, innermost_backend
from torch._dynamo.precompile_context import BackendCacheArtifact, PrecompileContext

__all__ = ["BackendCacheArtifact", "keep", "wrapping"]

keep = PrecompileContext.record_artifact


def wrapping() -> tuple[Any, Mapping[str, Any]] | None:
    """The backend for which torch is wrapping a function in this thread, and torch.compile's arguments for it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _TorchDynamoContext.__call__.__code__:
            backend: Any = innermost_backend(frame.f_locals["self"].callback)
            return getattr(backend, "compiler_fn", backend), getattr(backend, "kwargs", {})
        frame = frame.f_back
    return None
