"""A compiled function that goes into a file: `torch.compile(f, backend="aotviz", fullgraph=True).aot_compile(inputs)`.

torch writes Dynamo's bytecode and guards into the file, and what the backend made of the graph. Ours is data: the
graph as Dynamo captured it, the options of the backend, and entries of the cache, each with its backwards, and with the
code that Inductor made. In another process, torch checks the guards at each call and runs the bytecode. The first call
loads the entry that was made for such a call: nothing is captured or traced.

The key of an entry tells what it was compiled for. If this call or this process differs (arguments that share memory
in another way, another setting of torch's), the graph is compiled, and the recording says what differs. So the file
needs not be thrown away, and no program runs for which it was not compiled.

This file is imported when a function is compiled for a file, and by torch when it reads one. So the name of the class
is in files.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from aotviz.cache import bypasses, captured_graphs
from aotviz.cache.carried import Carried, CarriedEntry
from aotviz.cache.values import Broken
from aotviz.frontends import shared_code
from aotviz.frontends.backend import Backend, named
from aotviz.ir import dynamo_capture
from aotviz.live.structured_trace import Moment
from aotviz.torch_private.precompiled import SerializableCallable, is_for_file

__all__ = ["CannotBeSaved", "SavedFunction", "compiled", "is_for_file"]

_OF_A_PROCESS = ("cache", "record", "on_stage")  # options that are not for who loads the file


class CannotBeSaved(ValueError):
    """The function works in this process, but a file cannot hold it."""


class _File(msgspec.Struct, frozen=True, array_like=True):
    version: str  # first, because only this version can read the rest
    backend: str
    options: dict[str, Any]
    mode: str | None
    graph: bytes
    programs: list[CarriedEntry]


@dataclass(frozen=True)
class SavedFunction(SerializableCallable):
    """A graph that Dynamo captured, compiled by one of aotviz's backends."""

    function: Callable[..., Any]
    name: str
    backend: Backend
    carried: Carried
    graph: bytes | str  # why the graph cannot be stored

    def __call__(self, *inputs: Any) -> Any:
        return self.function(*inputs)

    @classmethod
    def serialize_compile_artifacts(cls, fn: SavedFunction) -> bytes:
        """What goes into the file.

        Raises:
            CannotBeSaved: the graph, or an option of the backend, is more than data.
        """
        if isinstance(fn.graph, str):
            raise CannotBeSaved(f"`{fn.name}` cannot be saved: {fn.graph}")
        name, options, mode = fn.backend.arguments
        options = {key: value for key, value in options.items() if key not in _OF_A_PROCESS}
        coded = ((one, shared_code.of_entry(one.main, one.parts)) for one in fn.carried.held())
        programs = [msgspec.structs.replace(one, parts={**one.parts, **code}) for one, code in coded]
        if not programs:
            text = "compiling it again takes place where the file is loaded, and the recording says why"
            warnings.warn(f"the file of `{fn.name}` has its graph, but no compiled program: {text}", stacklevel=4)
        try:
            return msgspec.msgpack.encode(_File(captured_graphs.version(), name, options, mode, fn.graph, programs))
        except TypeError as error:
            raise CannotBeSaved(f"`{fn.name}` cannot be saved: an option of its backend is no data: {error}") from error

    @classmethod
    def deserialize_compile_artifacts(cls, data: bytes) -> SavedFunction:
        """Raises Broken: another version of aotviz wrote it, or it is damaged."""
        try:
            wrote, here = msgspec.msgpack.decode(data)[0], captured_graphs.version()
            if wrote != here:
                raise Broken(f"aotviz {wrote} saved this function, and this is {here}: compile it again")
            file = msgspec.msgpack.decode(data, type=_File)
            carried = Carried(file.programs)
            backend = _carrying(named(file.backend, file.options, file.mode), carried)
        except Broken:
            raise
        except (LookupError, RecursionError, TypeError, ValueError) as error:
            raise Broken(f"a saved function is damaged: {error}") from error
        graph = captured_graphs.read(file.graph)
        return cls(backend.restored(graph, _LOADED), graph.function, backend, carried, file.graph)


_LOADED = "Dynamo traced nothing here: the function was loaded from a file, into which an earlier process saved it"


def compiled(backend: Backend, graph_module: Any, inputs: Sequence[Any]) -> SavedFunction:
    """What the backend makes of a graph for a function that may be saved."""
    about = dynamo_capture.captured_graph(graph_module, Moment().code())
    try:
        graph: bytes | str = captured_graphs.packed(about)
    except bypasses.Uncacheable as error:
        graph = error.reason
    carried = Carried()
    through = _carrying(backend, carried)
    return SavedFunction(through.compiled(graph_module, inputs), about.function, through, carried, graph)


def _carrying(backend: Backend, carried: Carried) -> Backend:
    """The backend, with the programs of a file as its cache."""
    made = copy.copy(backend)
    made.carried = carried
    return made
