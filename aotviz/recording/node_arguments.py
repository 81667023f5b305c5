"""The arguments of a graph's nodes, packed as they are when the graph is recorded, and put into the wire's form when
someone reads them.

To write an argument in the form of GraphSnapshot.args takes a call for each, which for every node of every stage was
a third of what recording cost. msgspec packs the tuples of FX as they stand, ten times faster; what it does not know
becomes an extension: a node by its position, a slice, anything else by the number of its text. `unpack` is free of
torch, and turns these into the wire's form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from aotviz.recording.events import GraphSnapshot

NODE, SLICE, TEXT = range(3)  # of extensions: a position, a packed [start, stop, step], the number of a text
Ext = msgspec.msgpack.Ext
Columns = tuple[list[Any], dict[int, Any]]  # args and kwargs as in GraphSnapshot

_refs: list[Ext] = []


def ref(kind: int, number: int) -> Ext:
    """The extension for a node or a text by its number."""
    return Ext(kind, number.to_bytes(4, "big"))


def node_refs(count: int) -> list[Ext]:
    """At least `count` references to nodes, by their positions; the same ones for all graphs."""
    if len(_refs) < count:
        _refs.extend([ref(NODE, position) for position in range(len(_refs), count)])
    return _refs


Row = tuple[str, int, int, int, int, int, int, str]
"""What is known of a node: op, name, target, value, stack, module, sequence and backward, as in GraphSnapshot."""


class PackedGraph(msgspec.Struct, array_like=True):
    """A graph as it is kept while the process runs."""

    rows: list[int]  # of each node: what is known of it, by its number among the compilation's rows
    arguments: bytes  # as `unpack` reads them
    descriptor: dict[int, int]  # as in GraphSnapshot
    output_descriptors: list[int]


def unpacked(packed: PackedGraph, rows: Sequence[Row]) -> GraphSnapshot:
    """The graph in the wire's form. `rows` are all of the compilation's."""
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
    )


def unpack(packed: bytes) -> Columns:
    """What was packed as [args of each node, named arguments of each node].

    >>> unpack(msgspec.msgpack.encode([[[], [ref(NODE, 0), [1, 2]]], [{}, {"dtype": ref(TEXT, 7)}]]))
    ([[], [[1], ['L', 1, 2]]], {1: {'dtype': {'r': 7}}})
    """
    args, kwargs = _decoder.decode(packed)
    return (
        [[_written(arg, index) for arg in found] for index, found in enumerate(args)],
        {i: {key: _written(arg, i) for key, arg in named.items()} for i, named in enumerate(kwargs) if named},
    )


def _written(arg: Any, index: int) -> Any:
    """An argument of the node at `index` (see GraphSnapshot)."""
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
