"""The arguments of a graph's nodes: packed unchanged when the graph is recorded, and converted to the wire format
when they are read.

Converting to the form of GraphSnapshot.args takes a function call per argument. For every node of every stage, that
was a third of the cost of recording. msgspec packs FX's tuples unchanged, ten times faster. Types that it does not
know become extensions: a node is packed as its position, a slice as its parts, anything else as the number of its
text. `unpack` converts all of them to the wire format, and does not need torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from aotviz.recording.schema import GraphSnapshot

NODE, SLICE, TEXT = range(3)  # extension codes; the data: a position, a packed [start, stop, step], a text number
Ext = msgspec.msgpack.Ext
Columns = tuple[list[Any], dict[int, Any]]  # args and kwargs as in GraphSnapshot

_refs: list[Ext] = []


def ref(kind: int, number: int) -> Ext:
    """The extension for a node (by its position) or a text (by its number)."""
    return Ext(kind, number.to_bytes(4, "big"))


def node_refs(count: int) -> list[Ext]:
    """References to the nodes at positions 0, 1, ..., at least `count` of them. All graphs share this list."""
    if len(_refs) < count:
        _refs.extend([ref(NODE, position) for position in range(len(_refs), count)])
    return _refs


Row = tuple[str, int, int, int, int, int, int, str]
"""The fields of a node: op, name, target, value, stack, module, sequence and backward, as in GraphSnapshot."""


class PackedGraph(msgspec.Struct, array_like=True):
    """A graph as the running process stores it."""

    rows: list[int]  # one per node: the index of its Row among the compilation's rows
    arguments: bytes  # the input of `unpack`
    descriptor: dict[int, int]  # as in GraphSnapshot
    output_descriptors: list[int]
    checkpoint: dict[int, list[int]] = {}  # as in GraphSnapshot


def unpacked(packed: PackedGraph, rows: Sequence[Row]) -> GraphSnapshot:
    """The graph in the wire format. `rows` are all rows of the compilation."""
    found = [rows[number] for number in packed.rows]
    args, kwargs = unpack(packed.arguments)
    return GraphSnapshot(
        op="".join([row[0] for row in found]),
        name=[row[1] for row in found],
        target=[row[2] for row in found],
        args=args,
        kwargs=kwargs,
        value=[row[3] for row in found],
        stack=[row[4] for row in found],
        module=[row[5] for row in found],
        sequence=[row[6] for row in found],
        backward="".join([row[7] for row in found]),
        descriptor=packed.descriptor,
        output_descriptors=packed.output_descriptors,
        checkpoint=packed.checkpoint,
    )


def unpack(packed: bytes) -> Columns:
    """Decode arguments that were packed as [args of each node, kwargs of each node].

    >>> unpack(msgspec.msgpack.encode([[[], [ref(NODE, 0), [1, 2]]], [{}, {"dtype": ref(TEXT, 7)}]]))
    ([[], [[1], ['L', 1, 2]]], {1: {'dtype': {'r': 7}}})
    """
    args, kwargs = _decoder.decode(packed)
    return (
        [[_written(arg, index) for arg in found] for index, found in enumerate(args)],
        {i: {key: _written(arg, i) for key, arg in named.items()} for i, named in enumerate(kwargs) if named},
    )


def references(args: Iterable[Any]) -> Iterator[tuple[int, int]]:
    """(NODE, how many places before) or (TEXT, its number) for each node and text in arguments in the wire format.

    >>> list(references([[1], ["L", [2], 3], {"r": 7}, {"s": [None, [4], None]}]))
    [(0, 1), (0, 2), (2, 7), (0, 4)]
    """
    for arg in args:
        if isinstance(arg, list) and arg:
            if arg[0] == "L":
                yield from references(arg[1:])
            else:
                yield NODE, arg[0]
        elif isinstance(arg, dict):
            for tag, content in arg.items():
                if tag == "r":
                    yield TEXT, content
                else:
                    yield from references(content.values() if tag == "d" else content)


def _written(arg: Any, index: int) -> Any:
    """An argument of the node at `index` in the wire format (see GraphSnapshot)."""
    kind = type(arg)
    if kind is _Node:
        return [index - arg.position]
    if kind is list:
        return ["L", *[_written(part, index) for part in arg]]
    if kind is dict:
        return {"d": {key: _written(part, index) for key, part in arg.items()}}
    if kind is _Text:
        return {"r": arg.number}
    if kind is _Slice:
        return {"s": [_written(part, index) for part in arg.parts]}
    return arg


class _Node(msgspec.Struct):
    position: int


class _Text(msgspec.Struct):
    number: int


class _Slice(msgspec.Struct):
    parts: list[Any]


def _extension(code: int, data: memoryview) -> Any:
    if code == SLICE:
        return _Slice(_decoder.decode(data))
    return (_Node if code == NODE else _Text)(int.from_bytes(data, "big"))


_decoder = msgspec.msgpack.Decoder(ext_hook=_extension)
