"""A graph as it is now, in a form that outlives it.

Later passes edit graphs in place, a kept graph keeps every fake tensor in it alive, and a deep copy of GPT-2's graph
costs more than the stage that made it. So a stage's graph is read once, when the stage ends, into columns of small
integers (schema.py), and no torch object is kept afterwards. Texts are interned, values are numbered (values.py), and
each node is read once.

Note [A node is looked into once]
Most stages copy, partition and prune graphs: two thirds of the nodes of GPT-2's six graphs are copies of earlier nodes,
with the same name, operator and value. The origin of such a node (source line, module, sequence number, forward or
backward) belongs to its value, so it is read for the first copy only, and a later node with the same name, operator and
value (the same object) has the same row. Arguments and descriptors belong to the graph, and are read every time.
"""

from __future__ import annotations

import contextlib
import hashlib
import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import chain, islice
from typing import Any

import msgspec
import torch
from torch import fx
from torch.fx.immutable_collections import immutable_list

from aotviz.recorder.naming import describe, module_lines, target_name, user_frames
from aotviz.recorder.values import Values
from aotviz.recording import node_arguments as arguments
from aotviz.recording.graph import CHECKPOINT_TAGS, OPS
from aotviz.recording.node_arguments import PackedGraph, Row, unpacked
from aotviz.recording.schema import NONE, GraphSnapshot
from aotviz.recording.strings import StringTable, clean
from aotviz.torch_private import graph_nodes, operators

OP_LETTERS = {name: letter for letter, name in OPS.items()}
LEAST, MOST = -(2**63), 2**63 - 1  # integers that msgpack can carry


Node = fx.Node
LISTS = frozenset((list, tuple, immutable_list, torch.Size))
USUAL = LISTS | {Node, int, bool, float, type(None), str, torch.dtype, torch.device, torch.layout, torch.memory_format}
"""Types of arguments that msgspec writes as they should be written, or asks about. It would write others wrongly, e.g.
an enum's number and not its name."""
_NOT_TRACED = frozenset(("placeholder", "get_attr", "output"))
_ENDS_GRADIENTS = frozenset((torch.ops.aten.detach.default,))


@dataclass(frozen=True)
class Parts:
    """A graph's columns, each with one entry per node. An edit of the graph replaces some of the entries.

    FX makes new `args` and `kwargs` at each edit, so they are compared by identity. This object keeps them alive, so
    that no other object gets their addresses.
    """

    nodes: list[Any]
    args: list[tuple[Any, ...]]
    kwargs: list[dict[str, Any]]
    values: list[Any]  # meta["val"]
    descriptors: list[Any]  # meta["desc"]
    tags: list[Any]  # meta["recompute"]: of checkpoints, and of values that must be saved

    @classmethod
    def of(cls, graph: fx.Graph) -> Parts:
        nodes: list[Any] = list(graph.nodes)
        metas = [node.meta for node in nodes]
        return cls(
            nodes,
            list(map(graph_nodes.arguments, nodes)),
            list(map(graph_nodes.keywords, nodes)),
            [meta.get("val") for meta in metas],
            [meta.get("desc") for meta in metas],
            [meta.get("recompute") for meta in metas],
        )

    def same_as(self, other: Parts) -> bool:
        """Whether both are of one graph in one state."""
        columns = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return all(len(mine) == len(theirs) and all(map(operator.is_, mine, theirs)) for mine, theirs in columns)


def digest(graph: fx.Graph) -> str:
    """Of the names and the user's lines of a graph's nodes. Two captures of one program that agree in it are equal."""
    hashed = hashlib.blake2b(digest_size=16)
    for node in graph.nodes:
        hashed.update(node.name.encode("utf-8", "replace"))
        hashed.update((node.meta.get("stack_trace") or "").encode("utf-8", "replace"))
    return hashed.hexdigest()


class SnapshotWriter:
    """Writes the graphs of one compilation, with one table of texts and one of values.

    Not thread safe: its owner holds a lock. `release()` ends the compilation and releases the objects that were kept
    alive for their identity, except for the values of a graph that is read again later.

    >>> writer = SnapshotWriter()
    >>> snapshot = writer.graph(fx.symbolic_trace(lambda x: x + 1))
    >>> snapshot.op, [writer.strings.texts[i] for i in snapshot.target], snapshot.args
    ('pfo', ['x', 'operator.add', 'output'], [[], [[1], 1], [[1]]])
    """

    def __init__(self) -> None:
        self.strings = StringTable()
        self.values = Values(self.strings)
        self._table: dict[Row, int] = {}  # all rows, and their numbers
        self._taken = 0  # by `take_rows`
        self._known: dict[tuple[str, str, int, int], int] = {}  # op, name, ids of kept target and value -> row's number
        self._targets: dict[int, int] = {}  # id of a kept target -> text
        self._stacks: dict[str | None, int] = {None: NONE}
        self._modules: dict[tuple[Any, ...], int] = {(): NONE}
        self._kept: list[Any] = []  # targets
        self._usual = True  # whether all arguments so far are of usual types

    def graph(self, graph: fx.Graph | fx.GraphModule) -> GraphSnapshot:
        """The graph's nodes in columns, in topological order (see GraphSnapshot)."""
        packed = self.packed(Parts.of(graph.graph if isinstance(graph, fx.GraphModule) else graph))
        return unpacked(packed, list(self._table))

    def packed(self, parts: Parts) -> PackedGraph:
        """The same, with references to rows; `take_rows` returns the new ones.

        It works column by column to avoid calls, because it runs for every node of every stage.
        """
        nodes = parts.nodes
        described = [(i, meaning) for i, meaning in enumerate(parts.descriptors) if meaning is not None]
        return PackedGraph(
            rows=self._read(parts),
            arguments=self._arguments(parts),
            descriptor={i: self.strings.add(describe(d)) for i, d in described if nodes[i].op == "placeholder"},
            output_descriptors=self._outputs(nodes[-1]) if nodes and nodes[-1].op == "output" else [],
            checkpoint={
                i: [tag.value, nodes[i].meta.get("ac_graph_id", NONE)]
                for i, tag in enumerate(parts.tags)
                if getattr(tag, "name", "") in CHECKPOINT_TAGS
            },
        )

    def take_rows(self) -> list[Row]:
        """The rows that are new since the last call, in the order of their numbers."""
        new = list(islice(self._table, self._taken, None))
        self._taken += len(new)
        return new

    def release(self, again: Sequence[Any] = ()) -> None:
        """Release all torch objects, except for the values in `again` and their operators."""
        if self.values.release(again):
            kept = set(map(id, again))
            self._known = {key: number for key, number in self._known.items() if key[3] in kept}
        self._stacks = {None: NONE}
        self._modules = {(): NONE}
        if not again:
            self._targets.clear()
            self._kept.clear()

    def stacks(self, traces: list[str | None]) -> list[int]:
        """The numbers of the user's frames in stack traces of nodes; NONE where there are none."""
        return numbers(traces, self._stacks, self._stack)

    def source(self, trace: str) -> str:
        """The user's frames in a node's stack trace."""
        (number,) = self.stacks([trace])
        return self.strings.texts[number] if number != NONE else ""

    def _read(self, parts: Parts) -> list[int]:
        """The number of each node's row. See Note [A node is looked into once]."""
        nodes, values = parts.nodes, parts.values
        ops, names, targets = [n.op for n in nodes], [n.name for n in nodes], [n.target for n in nodes]
        found: list[Any] = list(map(self._known.get, zip(ops, names, map(id, targets), map(id, values), strict=True)))
        if None in found:
            missing = [index for index, number in enumerate(found) if number is None]
            others = [index for index in missing if type(targets[index]) is not operators.OpOverload]
            self._usual = self._usual and usual(
                chain([parts.args[i] for i in others], [parts.kwargs[i].values() for i in others if parts.kwargs[i]])
            )
            rows = self._meet([nodes[i] for i in missing], [values[i] for i in missing])
            _numbers_kept([nodes[i] for i in missing], [values[i] for i in missing], rows)
            self._inherit(rows, found)
            table = self._table
            for index, row in zip(missing, rows, strict=True):
                found[index] = table.setdefault(row, len(table))
            known = (i for i in missing if values[i] is not None)
            self._known |= {(ops[i], names[i], id(targets[i]), id(values[i])): found[i] for i in known}
        return found

    def _meet(self, nodes: list[Any], values: list[Any]) -> list[Row]:
        """The rows of new node objects."""
        metas, add = [node.meta for node in nodes], self.strings.add
        targets = {id(node.target): node.target for node in nodes}
        self._kept += targets.values()
        identities = list(
            zip(
                [OP_LETTERS[node.op] for node in nodes],
                numbers([node.name for node in nodes], self.strings.numbers, add),
                numbers([id(node.target) for node in nodes], self._targets, lambda key: add(target_name(targets[key]))),
                self.values.numbers(
                    meta.get("example_value") if value is None else value
                    for value, meta in zip(values, metas, strict=True)
                ),
                strict=True,
            )
        )
        return [identity + place for identity, place in zip(identities, self._places(metas), strict=True)]

    def _inherit(self, new: list[Row], found: list[int | None]) -> None:
        """Give a backward node without a source line or module those of its forward node.

        `new` are the rows of the graph's new nodes, and `found` the numbers of the others' rows.
        """
        lost = [i for i, row in enumerate(new) if row[7] == "1" and row[6] != NONE and NONE in row[4:6]]
        if not lost:
            return
        known = list(self._table)
        forward: dict[int, Row] = {}
        fresh = iter(new)
        for number in found:
            row = next(fresh) if number is None else known[number]
            if row[7] == "0":
                forward.setdefault(row[6], row)
        for i in lost:
            op, name, target, value, stack, module, sequence, backward = new[i]
            origin = forward.get(sequence)
            if origin is not None:
                stack, module = origin[4] if stack == NONE else stack, origin[5] if module == NONE else module
                new[i] = (op, name, target, value, stack, module, sequence, backward)

    def _places(self, metas: list[dict[str, Any]]) -> Iterable[tuple[int, int, int, str]]:
        """Where nodes come from: stack, module, sequence and backward."""
        modules = [meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") or {} for meta in metas]
        return zip(
            self.stacks([meta.get("stack_trace") for meta in metas]),
            numbers([tuple(entered.values()) for entered in modules], self._modules, self._module),
            [NONE if "is_gradient_acc" in meta else meta.get("seq_nr", NONE) for meta in metas],
            [
                "1" if meta.get("partitioner_tag") == "is_backward" or meta.get("autograd_backward") else "0"
                for meta in metas
            ],
            strict=True,
        )

    def _arguments(self, parts: Parts) -> bytes:
        refs = dict(zip(parts.nodes, arguments.node_refs(len(parts.nodes)), strict=False))

        def extension(arg: Any) -> Any:
            """Write a type that msgspec does not know."""
            if type(arg) is Node:
                return refs[arg]
            if type(arg) is slice:
                return arguments.Ext(arguments.SLICE, encoder.encode(plain([arg.start, arg.stop, arg.step])))
            return self._text(arg)

        encoder = msgspec.msgpack.Encoder(enc_hook=extension)

        def plain(arg: Any) -> Any:
            """An argument without anything that msgspec would write wrongly or not at all."""
            kind = type(arg)
            if kind is str:
                return clean(arg)
            if isinstance(arg, (list, tuple)):
                return list(map(plain, arg))
            if isinstance(arg, dict):
                return {clean(str(key)): plain(part) for key, part in arg.items()}
            outside = kind is int and not LEAST <= arg <= MOST
            return arg if (kind in USUAL or kind is slice) and not outside else self._text(arg)

        if self._usual:
            with contextlib.suppress(OverflowError, UnicodeEncodeError):  # integers and texts that msgpack can't carry
                return encoder.encode([parts.args, parts.kwargs])
        return encoder.encode([list(map(plain, parts.args)), list(map(plain, parts.kwargs))])

    def _text(self, arg: Any) -> arguments.Ext:
        return arguments.ref(arguments.TEXT, self.strings.add(str(arg)))

    def _stack(self, trace: str) -> int:
        return self.strings.add(user_frames(trace) or None)

    def _module(self, entries: tuple[Any, ...]) -> int:
        return self.strings.add(module_lines(entries) or None)

    def _outputs(self, node: fx.Node) -> list[int]:
        returned = node.args[0] if node.args else ()
        count = len(returned) if isinstance(returned, (list, tuple)) else 1
        given = node.meta.get("desc")
        described = list(given) if isinstance(given, (list, tuple)) else [] if given is None else [given]
        texts = [NONE if desc is None else self.strings.add(describe(desc)) for desc in described]
        return (texts + [NONE] * count)[:count]


def _numbers_kept(nodes: list[Any], values: list[Any], rows: list[Row]) -> None:
    """Remove the sequence number from the rows of nodes that made no autograd node.

    Torch gives each node the number of the latest autograd node, even if it made none: an input, a slice of something
    that needs no gradient, a statistic under no_grad. The first forward node with a number made the autograd node.
    Another one belongs to it only if it has the same source line and reads a node of it, and does not end gradients.
    """
    calls: dict[int, tuple[int, set[Any]]] = {}  # sequence number -> source line, nodes
    for i, (node, value, row) in enumerate(zip(nodes, values, list(rows), strict=True)):
        source, sequence, traced_in_backward = row[4], row[6], row[7] == "1"
        if sequence == NONE or (traced_in_backward and node.op != "placeholder"):
            continue
        if own := node.op not in _NOT_TRACED:
            line, parts = calls.setdefault(sequence, (source, set()))
            follows = line == source and not parts.isdisjoint(node.all_input_nodes)
            if own := not parts or (follows and node.target not in _ENDS_GRADIENTS):
                parts.add(node)
                own = len(parts) == 1 or _may_need_gradient(value)  # else it is an intermediate, such as a mask
        if not own:
            rows[i] = (*row[:6], NONE, *row[7:])


def _may_need_gradient(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or value.dtype.is_floating_point or value.dtype.is_complex


def numbers(things: list[Any], known: dict[Any, int], learn: Callable[[Any], int]) -> list[int]:
    """Each thing's number; `learn` gives it for a new one."""
    found: list[Any] = list(map(known.get, things))
    if None in found:
        for thing in things:
            if thing not in known:
                known[thing] = learn(thing)
        found = [known[thing] for thing in things]
    return found


def usual(arguments: Iterable[Iterable[Any]]) -> bool:
    """Whether all the arguments, and what is in lists of them, are of usual types."""
    inside: Collection[Iterable[Any]] = [chain.from_iterable(arguments)]
    while inside:
        found = list(chain.from_iterable(inside))
        kinds = set(map(type, found))
        if not kinds <= USUAL:
            return False
        inside = [part for part in found if type(part) in LISTS] if kinds & LISTS else ()
    return True
