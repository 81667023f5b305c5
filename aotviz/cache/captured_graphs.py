"""A graph from Dynamo as data, for a process in which Dynamo does not run.

Only a graph that has the same description when it is read back is stored. A key of the cache is made of this
description, so the next process finds the program under the key of the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import torch
import torch.fx as fx

from aotviz.cache import bypasses, key, stored_graphs
from aotviz.cache.canonical import Program, Symbols
from aotviz.cache.meshes import Meshes
from aotviz.cache.values import Broken, Reader, Writer, tabled
from aotviz.ir import symbolic_sizes
from aotviz.ir.dynamo_capture import CapturedGraph
from aotviz.torch_private import dynamo


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    version: str  # first, because only this version can read the rest
    function: str
    place: str
    arguments: tuple[str, ...] | None
    code: int | None
    symbols: list[list[tuple[int, int]]]  # as in CapturedGraph
    graph: list[Any]
    inputs: list[tuple[str, bool]]  # the source of each, and whether its memory is the same in every call
    stacks: list[tuple[str, list[Any]]]  # of each graph, with its path in the module: those of its nodes


def packed(captured: CapturedGraph) -> bytes:
    """A graph as bytes.

    Raises:
        Uncacheable: the graph has something that another process cannot make again.
    """
    module = captured.module
    if next(module.buffers(), None) is not None or next(module.parameters(), None) is not None:
        raise bypasses.VALUE("Dynamo's graph holds tensors")
    if any(node.meta.get("unbacked_bindings") for _, graph in _all(module) for node in graph.nodes):
        raise bypasses.VALUE("a size in Dynamo's graph depends on data")
    symbols = [list(_symbols(node.meta.get("example_value"))) for node in _inputs(module)]
    numbers = {symbol: n for n, symbol in enumerate(dict.fromkeys(symbol for own in symbols for _, symbol in own))}
    writer = Writer({}, 0, Meshes())
    writer.graph = lambda inner: stored_graphs.pack(inner, writer, None)
    stored = _Stored(
        version(),
        captured.function,
        captured.place,
        captured.arguments,
        captured.code,
        [[(dim, numbers[symbol]) for dim, symbol in own] for own in symbols],
        stored_graphs.pack(module, writer, None),
        [(dynamo.source_text(node), dynamo.is_static(node)) for node in _inputs(module)],
        [(path, tabled([node.meta.get("stack_trace") or "" for node in graph.nodes])) for path, graph in _all(module)],
    )
    if writer.storages or _described(_module(stored)) != _described(module):
        raise bypasses.VALUE("Dynamo's graph has a part that cannot be stored")
    return msgspec.msgpack.encode(stored)


def read(data: bytes) -> CapturedGraph:
    """Raises Broken: another version of aotviz wrote it, or it is damaged."""
    try:
        wrote = msgspec.msgpack.decode(data)[0]
        if wrote != version():
            raise Broken(f"aotviz {wrote} wrote it, and this is {version()}")
        stored = msgspec.msgpack.decode(data, type=_Stored)
        about = (stored.function, stored.place, stored.arguments, stored.code, "", stored.symbols)
        return CapturedGraph(_module(stored), *about)
    except Broken:
        raise
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise Broken(f"a graph of Dynamo is damaged: {error}") from error


def version() -> str:
    return key.of_process()["aotviz"]


def _symbols(value: Any) -> Iterator[tuple[int, Any]]:
    """The dimensions of an input that are symbols. Raises Uncacheable."""
    if isinstance(value, torch.Tensor):
        sizes: Sequence[Any] = value.shape
    elif isinstance(value, int | torch.SymInt):
        sizes = (value,)
    else:
        raise bypasses.VALUE(f"Dynamo's graph has an input that is {bypasses.kind_of(value)}, or a number in a tensor")
    for dim, size in enumerate(sizes):
        if symbolic_sizes.is_symbolic(size):
            symbol = symbolic_sizes.expression(size)
            if not symbol.is_Symbol:
                raise bypasses.VALUE(f"Dynamo's graph has an input with the size {symbol}")
            yield dim, symbol


def _module(stored: _Stored) -> fx.GraphModule:
    reader = Reader([], [], [], None, Meshes())
    reader.graph = lambda inner: stored_graphs.unpack(inner, reader)
    module = stored_graphs.unpack(stored.graph, reader)
    for path, (table, places) in stored.stacks:
        inner: Any = module.get_submodule(path)
        for node, place in zip(inner.graph.nodes, places, strict=True):
            node.meta["stack_trace"] = table[place]
    for node, (source, is_static) in zip(_inputs(module), stored.inputs, strict=True):
        node.meta["grapharg"] = SimpleNamespace(source=SimpleNamespace(name=source))
        if is_static:
            dynamo.mark_static(node)
    return module


def _inputs(module: fx.GraphModule) -> Sequence[fx.Node]:
    return list(module.graph.find_nodes(op="placeholder"))


def _all(module: fx.GraphModule) -> Iterator[tuple[str, fx.Graph]]:
    """The graph of a module and those inside, by path."""
    return ((path, one.graph) for path, one in module.named_modules() if isinstance(one, fx.GraphModule))


def _described(module: fx.GraphModule) -> str:
    return Program(Symbols()).text(module)
