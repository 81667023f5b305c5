"""What Dynamo keeps for other processes: while `torch._dynamo.config.caching_precompile` is set, and in a file by
`torch.compile(f, fullgraph=True).aot_compile(inputs)`.

With the setting, Dynamo writes its bytecode and guards to a file when the user calls
`torch.compiler.save_cache_artifacts()`, and with each graph what its backend has recorded here under the graph's id.
When a process compiles the function again, torch unpickles the file, and installs the guards and what
`after_deserialization` returns.

Of a function that is compiled for a file, torch pickles the bytecode and the guards, of the backend's result the bytes
that `serialize_compile_artifacts` returns, and the class, by name, which gets them when another process loads the file.

This file is imported when Dynamo gives a graph an id, which it does only in these two cases.
"""

from __future__ import annotations

import copy
import re
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from torch._C._dynamo.eval_frame import _reset_precompile_entries
from torch._dynamo.aot_compile import aot_compile_fullgraph
from torch._dynamo.aot_compile_types import SerializableCallable as SerializableCallable
from torch._dynamo.bytecode_transformation import _unique_id_counter
from torch._dynamo.eval_frame import _TorchDynamoContext, innermost_backend, innermost_fn
from torch._dynamo.precompile_context import BackendCacheArtifact as BackendCacheArtifact
from torch._dynamo.precompile_context import PrecompileContext

keep = PrecompileContext.record_artifact


def all_kept() -> dict[Any, Any]:
    """What backends of this process and of earlier ones have kept, by Dynamo's number of the graph."""
    return dict(PrecompileContext._backend_artifacts_by_key)


def is_for_file() -> bool:
    """Whether torch called the backend for a function that goes into a file."""
    frames = traceback.walk_stack(sys._getframe(1))
    return any(frame.f_code is aot_compile_fullgraph.__code__ for frame, _ in frames)


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


def wrapping() -> tuple[Any, Mapping[str, Any]] | None:
    """The backend for which torch is wrapping a function in this thread, and torch.compile's arguments for it."""
    for frame, _ in traceback.walk_stack(sys._getframe(1)):
        if frame.f_code is _TorchDynamoContext.__call__.__code__:
            backend: Any = innermost_backend(frame.f_locals["self"].callback)
            return getattr(backend, "compiler_fn", backend), getattr(backend, "kwargs", {})
    return None
