"""Graphs as data, and back.

Of the metadata of a node, what a compiler or a later stage reads is stored. The fake value of a node is made when it is
first read (`Metadata`), because a program that is only run needs the values of few nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.fx as fx

from aotviz.cache.values import Broken, Reader, Unstorable, Writer
from aotviz.torch_private import graph_nodes
from aotviz.torch_private.modules import lazy_graph_module

_OPCODES = ("placeholder", "call_function", "call_method", "get_attr", "output")
_VALUE = "val"
_KEPT = (
    "ac_graph_id autograd_backward autograd_number custom desc eager_input_vals is_gradient_acc mutation_region_id "
    "original_aten partitioner_tag recompute seq_nr under_no_grad"
).split()


class Metadata(dict[str, Any]):
    """The metadata of a stored node. Its value is made when it is first read."""

    def __init__(self, known: dict[str, Any], packed: Any, reader: Reader | None) -> None:
        super().__init__(known)
        self._packed, self._reader = packed, reader

    def _look(self, key: str) -> None:
        reader = self._reader
        if reader is not None and key == _VALUE:
            self._reader = None
            super().__setitem__(_VALUE, reader.read(self._packed))

    def __missing__(self, key: str) -> Any:
        self._look(key)
        return super().__getitem__(key) if super().__contains__(key) else self._none(key)

    @staticmethod
    def _none(key: str) -> Any:
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
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


def pack(module: fx.GraphModule, writer: Writer) -> list[Any]:
    """A graph module as data: [nodes, attributes of the module].

    Raises:
        Unstorable: it calls or holds something that cannot be stored.
    """
    before = writer.nodes
    nodes = list(module.graph.nodes)
    writer.nodes = {node: number for number, node in enumerate(nodes)}
    try:
        rows = [_row(node, writer) for node in nodes]
        names = dict.fromkeys(str(node.target) for node in nodes if node.op == "get_attr")
        held = [one for name in names for one in (name, _attribute(module, name, writer))]
    finally:
        writer.nodes = before
    return [rows, held]


def _row(node: fx.Node, writer: Writer) -> list[Any]:
    if node.op not in _OPCODES:
        raise Unstorable(f"it calls the module {node.target}")
    if node.meta.get("unbacked_bindings"):
        raise Unstorable(f"the size of {node.name} depends on the data of a tensor")
    target = node.target if isinstance(node.target, str) else writer.pack(node.target)
    known = {name: node.meta[name] for name in _KEPT if name in node.meta}
    meta = [one for name, value in known.items() for one in (name, writer.pack(value))]
    value = writer.pack(node.meta[_VALUE]) if _VALUE in node.meta else ["no"]
    return [_OPCODES.index(node.op), node.name, target, writer.pack(node.args), writer.pack(node.kwargs), value, meta]


def _attribute(module: fx.GraphModule, name: str, writer: Writer) -> Any:
    held = module.get_submodule(name.rpartition(".")[0])
    return writer.pack(getattr(held, name.rpartition(".")[2]))


def unpack(packed: Any, reader: Reader) -> fx.GraphModule:
    """Raises Broken."""
    before = reader.nodes
    graph, nodes = fx.Graph(), list[fx.Node]()
    reader.nodes = nodes
    try:
        rows, held = packed
        for opcode, name, target, args, kwargs, value, meta in rows:
            what = target if isinstance(target, str) else reader.read(target)
            node = graph.create_node(_OPCODES[opcode], what, reader.read(args), reader.read(kwargs), name)
            if node.name != name:
                graph_nodes.rename(node, name)
            known = {key: reader.read(one) for key, one in zip(meta[::2], meta[1::2], strict=True)}
            node.meta = known if value == ["no"] else Metadata(known, value, reader)
            nodes.append(node)
        root = torch.nn.Module()
        for name, one in zip(held[::2], held[1::2], strict=True):
            _hold(root, name.split("."), reader.read(one))
    except (TypeError, ValueError, IndexError) as error:
        raise Broken(f"a graph is damaged: {error}") from error
    finally:
        reader.nodes = before
    return lazy_graph_module(root, graph)


def _hold(root: torch.nn.Module, path: list[str], value: Any) -> None:
    for part in path[:-1]:
        if not hasattr(root, part):
            root.add_module(part, torch.nn.Module())
        root = getattr(root, part)
    if isinstance(value, torch.Tensor):
        root.register_buffer(path[-1], value)
    else:
        setattr(root, path[-1], value)
