"""What Dynamo keeps for the next process, while `torch._dynamo.config.caching_precompile` is set.

Dynamo then writes its bytecode and guards to a file when the user calls `torch.compiler.save_cache_artifacts()`, and
with each graph what its backend has recorded here under the graph's id. When a process compiles the function again,
torch unpickles the file, and installs the guards and what `after_deserialization` returns.

This file is imported when Dynamo gives a graph an id, which it does only then.
"""

from __future__ import annotations

import contextlib
import copy
import re
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from torch._C._dynamo.eval_frame import _reset_precompile_entries
from torch._dynamo import config
from torch._dynamo.bytecode_transformation import _unique_id_counter
from torch._dynamo.eval_frame import _TorchDynamoContext, innermost_backend, innermost_fn
from torch._dynamo.precompile_context import BackendCacheArtifact, PrecompileContext

__all__ = ["BackendCacheArtifact", "all_kept", "forget", "keep", "names_made", "skip_names", "switched_off", "wrapping"]

keep = PrecompileContext.record_artifact


def all_kept() -> dict[Any, Any]:
    """What backends of this process and of earlier ones have kept, by Dynamo's number of the graph."""
    return dict(PrecompileContext._backend_artifacts_by_key)


def forget(fn: Any) -> None:
    """Remove the programs that an earlier process kept for a function from this process."""
    own = innermost_fn(getattr(fn, "forward", fn))
    _reset_precompile_entries(own.__code__)
    numbers = [int(found[1]) for name in own.__globals__ if (found := re.fullmatch(r"__\w+?_+(\d+)", name))]
    skip_names(max(numbers, default=-1) + 1)


def names_made() -> int:
    """How many names Dynamo has made in this process. Each ends with its number."""
    return next(copy.copy(_unique_id_counter))


def skip_names(count: int) -> None:
    """Let Dynamo's next name have at least this number: it fails if a name is in the module already, and what it kept
    in another process brings names with it."""
    while names_made() < count:
        next(_unique_id_counter)


@contextlib.contextmanager
def switched_off() -> Iterator[None]:
    """Dynamo keeps nothing for a function that is compiled in this block, and has nothing of it."""
    with config.patch(caching_precompile=False):
        yield


def wrapping() -> tuple[Any, Mapping[str, Any]] | None:
    """The backend for which torch is wrapping a function in this thread, and torch.compile's arguments for it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _TorchDynamoContext.__call__.__code__:
            backend: Any = innermost_backend(frame.f_locals["self"].callback)
            return getattr(backend, "compiler_fn", backend), getattr(backend, "kwargs", {})
        frame = frame.f_back
    return None
