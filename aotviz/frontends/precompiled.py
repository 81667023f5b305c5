"""Graphs that Dynamo captured in an earlier process, while `torch._dynamo.config.caching_precompile` was set.

With this setting, torch keeps Dynamo's bytecode and guards in a file, and next to them what each graph's backend keeps.
We keep the graph, as data. In the next process Dynamo installs its bytecode and checks its guards at each call, but
captures nothing. At the first call, a backend of ours compiles the graph as if Dynamo had just captured it, with the
options of that process; the cache then has its program. So an option may change, and the cache may have been emptied.

torch unpickles its file. What it cannot use must fail while it does so: torch then ignores the file. It cannot cope
with an error that comes later, in `after_deserialization`.

This file is imported only where Dynamo keeps graphs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aotviz.cache import captured_graphs
from aotviz.ir.dynamo_capture import CapturedGraph
from aotviz.ir.spelling import called
from aotviz.torch_private import dynamo, precompiled


class Unusable(ValueError):
    """What an earlier process kept is not for this process's backend."""


class Kept(precompiled.BackendCacheArtifact[Any]):
    """A graph as torch keeps it: `key` is Dynamo's id of it, and `content` are its bytes."""

    graph: CapturedGraph | None = None  # after it was read

    def __reduce__(self) -> Any:
        return _read, (self.key, self.content, precompiled.names_made())

    def __deepcopy__(self, memo: Any) -> Kept:
        return self

    def after_deserialization(self) -> Callable[..., Any]:
        backend = _backend()
        if backend is None or self.graph is None:
            raise Unusable(_FOR_OURS)
        number = dynamo.compile_id()
        return backend.restored(replace(self.graph, compile_id="" if number is None else str(number)), _KEPT)


_KEPT = "Dynamo traced nothing here: its part comes from its own cache, where an earlier process kept it"
_FOR_OURS = "aotviz kept its graphs, and they are for torch.compile with one of aotviz's backends, or aotviz.compile"


def keep(number: str, data: bytes) -> None:
    """Let Dynamo keep a graph in bytes under the number that it gave it."""
    precompiled.keep(Kept(number, data))


def compiled(fn: Any, wrap: Callable[[], Any]) -> Any:
    """`wrap()`, which compiles `fn` with a backend of ours. torch finds what was kept by the function's name alone: if
    another backend has kept it, it is not used, and a warning says so."""
    before = precompiled.all_kept()
    made = wrap()
    if all(isinstance(one, Kept) for number, one in precompiled.all_kept().items() if number not in before):
        return made
    warnings.warn(
        f"Dynamo kept {called(fn)} with what another backend compiled, and its cache does not tell backends apart: "
        "the function is traced again. Set another TORCHINDUCTOR_CACHE_DIR for each backend.",
        stacklevel=3,
    )
    precompiled.forget(fn)
    with dynamo.config.patch(caching_precompile=False):
        return wrap()


def _read(key: str, content: bytes, names: int) -> Kept:
    if _backend() is None:
        raise Unusable(_FOR_OURS)
    made = Kept(key, content)
    made.graph = captured_graphs.read(content)
    precompiled.skip_names(names)
    return made


def _backend() -> Any:
    """The backend of ours for which torch is wrapping a function; None for another, or if it is wrapping none."""
    function, arguments = precompiled.wrapping() or (None, {})
    if hasattr(function, "restored"):
        return function
    make = getattr(function, "made_with", None)
    return None if make is None else make(arguments.get("options"), arguments.get("mode"))
