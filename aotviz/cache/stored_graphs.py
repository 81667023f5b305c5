"""Graphs as data, and back.

A graph is stored in columns: the names of its nodes, their targets, their arguments, and so on. Nodes are much alike,
so a column compresses well, and each target is stored and found once. Of the metadata, what a compiler or a later stage
reads is stored. The fake value of a node is made when it is first read (`Metadata`), because a program that is only run
needs the values of few nodes. Nothing may fail then: `Reader.check_fakes` has tried each layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import resolve_unbacked_bindings

from aotviz.cache import bypasses
from aotviz.cache.values import Broken, Reader, Writer, tabled
from aotviz.ir.spelling import is_identifier
from aotviz.torch_private import graph_nodes
from aotviz.torch_private.modules import graph_module

_OPCODES = ("placeholder", "call_function", "call_method", "get_attr", "output")
_VALUE, _TENSOR_META = "val", "tensor_meta"  # the second is made from the first
_BINDINGS = "unbacked_bindings"
_KEPT = (
    "ac_graph_id autograd_backward custom desc eager_input_vals is_gradient_acc original_aten partitioner_tag recompute"
).split()
_NOTHING = ["no"]


class Metadata(dict[str, Any]):
    """The metadata of a stored node. Its value is made when it is first read."""

    def __init__(self, known: dict[str, Any], packed: Any, reader: Reader | None) -> None:
        super().__init__(known)
        self._packed, self._reader = packed, reader

    def _look(self, key: str) -> None:
        reader = self._reader
        if reader is not None and key in (_VALUE, _TENSOR_META):
            self._reader = None
            value = reader.read(self._packed)
            super().__setitem__(_VALUE, value)
            if isinstance(value, torch.Tensor):
                super().__setitem__(_TENSOR_META, graph_nodes.tensor_metadata(value))

    def __missing__(self, key: str) -> Any:
        self._look(key)
        if not super().__contains__(key):
            raise KeyError(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        if key == _TENSOR_META:
            self._look(_TENSOR_META)
        return super().__contains__(key) or (key == _VALUE and self._reader is not None)

    def get(self, key: str, default: Any = None) -> Any:
        self._look(key)
        return super().get(key, default)

    def _whole(self) -> dict[str, Any]:
        self._look(_VALUE)
        return dict(super().items())

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole())

    def __len__(self) -> int:
        return len(self._whole())

    def keys(self) -> Any:
        return self._whole().keys()

    def items(self) -> Any:
        return self._whole().items()

    def values(self) -> Any:
        return self._whole().values()

    def copy(self) -> Metadata:
        return Metadata(dict(super().items()), self._packed, self._reader)

    __copy__ = copy

    def __reduce__(self) -> Any:
        return dict, (self._whole(),)


def pack(module: fx.GraphModule, writer: Writer, shape_env: Any) -> list[Any]:
    """A graph module as data: its columns, and the attributes of the module.

    Raises:
        Uncacheable: it calls or holds something that cannot be stored.
    """
    before = writer.nodes
    nodes = list(module.graph.nodes)
    writer.nodes = {node: number for number, node in enumerate(nodes)}
    targets: dict[Any, int] = {}
    try:
        for node in nodes:
            _refuse(node)
            targets.setdefault(node.target, len(targets))
        names = dict.fromkeys(str(node.target) for node in nodes if node.op == "get_attr")
        return [
            bytes(_OPCODES.index(node.op) for node in nodes),
            "\n".join(node.name for node in nodes),
            [target if isinstance(target, str) else writer.pack(target) for target in targets],
            [targets[node.target] for node in nodes],
            [writer.pack(list(node.args))[1:] for node in nodes],
            {number: writer.pack(dict(node.kwargs)) for number, node in enumerate(nodes) if node.kwargs},
            _steps([_value(node, writer) for node in nodes]),
            _columns(nodes, writer, shape_env),
            [one for name in names for one in (name, _attribute(module, name, writer))],
        ]
    finally:
        writer.nodes = before


def _refuse(node: fx.Node) -> None:
    if node.op not in _OPCODES:
        raise bypasses.MODULE(f"it calls the module {node.target}")


def _value(node: fx.Node, writer: Writer) -> Any:
    """The value of a node: the number of a fake tensor, as for most nodes, or anything else."""
    packed = writer.pack(node.meta[_VALUE]) if _VALUE in node.meta else _NOTHING
    return packed[1] if type(packed) is list and packed[0] == "F" else [packed]


def _steps(values: list[Any]) -> list[Any]:
    """Numbers of fakes, each minus the one that would follow: fakes are numbered as nodes are, so most are 0."""
    found, following = [], 0
    for value in values:
        found.append(value - following if type(value) is int else value)
        following = value + 1 if type(value) is int else following
    return found


def _columns(nodes: list[fx.Node], writer: Writer, shape_env: Any) -> dict[str, list[Any]]:
    """For each kind of metadata its different values, and for each node the position among these."""
    found = {name: {node: node.meta[name] for node in nodes if name in node.meta} for name in _KEPT}
    bound = ((node, resolve_unbacked_bindings(shape_env, node.meta.get("unbacked_bindings"))) for node in nodes)
    found[_BINDINGS] = {node: bindings for node, bindings in bound if bindings}
    return {
        name: tabled([writer.pack(held[node]) if node in held else _NOTHING for node in nodes])
        for name, held in found.items()
        if held
    }


def _attribute(module: fx.GraphModule, name: str, writer: Writer) -> Any:
    held = module.get_submodule(name.rpartition(".")[0])
    return writer.pack(getattr(held, name.rpartition(".")[2]))


def unpack(packed: Any, reader: Reader) -> fx.GraphModule:
    """Raises Broken."""
    before = reader.nodes
    graph, nodes = fx.Graph(), list[fx.Node]()
    reader.nodes, read = nodes, reader.read
    try:
        opcodes, text, targets, numbers, arguments, keywords, values, columns, held = packed
        found = [_word(target) if isinstance(target, str) else read(target) for target in targets]
        following = 0  # the number of the next fake
        for number, name in enumerate(text.split("\n")):
            _identifier(name)
            opcode, target = _OPCODES[opcodes[number]], found[numbers[number]]
            node = graph.create_node(opcode, target, (), {}, name)
            node.args = tuple([read(one) for one in arguments[number]])  # create_node would search them for symbols
            if number in keywords:
                node.kwargs = {_identifier(key): value for key, value in read(keywords[number]).items()}
            if node.name != name:
                graph_nodes.rename(node, name)
            step = values[number]
            value = ["F", following + step] if type(step) is int else step[0]
            if type(step) is int:
                reader.check_fake(following + step)
                following += step + 1
            pairs = ((key, table[places[number]]) for key, (table, places) in columns.items())
            known = {key: read(one) for key, one in pairs if one != _NOTHING}
            node.meta = known if value == _NOTHING else Metadata(known, value, reader)
            if type(step) is not int:
                node.meta.get(_VALUE)  # what is no fake is made now, since a late error would be one of the user's call
            nodes.append(node)
        _check_inputs(graph)
        root = torch.nn.Module()
        for name, one in zip(held[::2], held[1::2], strict=True):
            _hold(root, name.split("."), read(one))
    except (LookupError, TypeError, ValueError) as error:
        raise Broken(f"a graph is damaged: {error}") from error
    finally:
        reader.nodes = before
    return graph_module(root, graph)


def _check_inputs(graph: fx.Graph) -> None:
    """An input's target is its name in the code of the graph, so it is the name of no other node. Raises Broken."""
    named = {node.name: node for node in graph.nodes}
    inputs = graph.find_nodes(op="placeholder")
    targets = {node.target: node for node in inputs}
    if len(targets) < len(inputs) or any(named.get(target, node) is not node for target, node in targets.items()):
        raise Broken("two values of a graph have one name")


def _identifier(name: Any) -> Any:
    """A name that becomes code of the graph. It must be one identifier, so that it cannot become other code."""
    if not isinstance(name, str) or not is_identifier(name):
        raise Broken(f"{name!r} is no name in a graph")
    return name


def _word(target: str) -> str:
    """A target that becomes code: the name of an input, a method of tensors, or the path of an attribute."""
    for name in target.split("."):
        _identifier(name)
    return target


def _hold(root: torch.nn.Module, path: list[str], value: Any) -> None:
    if any(hasattr(torch.nn.Module, part) for part in path):
        raise Broken(f"a graph has no attribute {'.'.join(path)}")
    for part in path[:-1]:
        if not hasattr(root, part):
            root.add_module(part, torch.nn.Module())
        root = getattr(root, part)
    if isinstance(value, torch.Tensor):
        root.register_buffer(path[-1], value)
    else:
        setattr(root, path[-1], value)
