"""A graph as it stands now, in a form that outlives it.

Later passes edit graphs in place, and a graph that is kept pins every fake tensor in it; a deep copy of GPT-2's
costs more than the stage that made it. So a stage's graph is read once, when the stage ends, into columns of small
integers (events.py), and nothing of torch is held on to afterwards. Texts are interned, values are numbered
(values.py), and a node is looked into once.

Note [A node is looked into once]
Most stages copy graphs, cut them and prune them: of the nodes of GPT-2's six graphs two thirds were there before, as
other objects but with the same name, operator and value. Where such a node comes from (source line, module, sequence
number, forward or backward) belongs to its value and not to the graph, so it is read when the node is first met, and
a later node with the same name, operator and value (the object, not one like it) has the same row. Arguments and
descriptors are the graph's own, and read every time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable
from itertools import chain
from typing import Any

import msgspec
import torch
from torch import fx
from torch.fx.immutable_collections import immutable_list

from aotviz.recorder import arguments
from aotviz.recorder.arguments import unpacked
from aotviz.recorder.events import NONE, GraphSnapshot
from aotviz.recorder.naming import describe, module_lines, target_name, user_frames
from aotviz.recorder.strings import StringTable, clean
from aotviz.recorder.values import Values
from aotviz.torch_private.snapshotting import Parts

OP_LETTERS = {
    "placeholder": "p",
    "call_function": "f",
    "call_module": "m",
    "call_method": "c",
    "get_attr": "a",
    "output": "o",
}
LEAST, MOST = -(2**63), 2**63 - 1  # integers that msgpack can carry


Node = fx.Node
LISTS = frozenset((list, tuple, immutable_list, torch.Size))
USUAL = LISTS | {Node, int, bool, float, type(None), str, torch.dtype, torch.device, torch.layout, torch.memory_format}
"""Types of arguments that need not be looked at one by one: msgspec either writes them as they should be written, or
asks what to write. Of others it may write too much or too little, e.g. an enum's number and not its name."""
Row = tuple[str, int, int, int, int, int, int, str]
"""What is known of a node: op, name, target, value, stack, module, sequence and backward, as in GraphSnapshot."""


class SnapshotWriter:
    """Writes the graphs of one compilation, with one table of texts and one of values.

    Not thread safe: whoever owns it holds a lock. `release()` ends the compilation: what was kept alive so that
    identities stay true is let go, and a late graph still finds the values that live on elsewhere.

    >>> writer = SnapshotWriter()
    >>> snapshot = writer.graph(fx.symbolic_trace(lambda x: x + 1))
    >>> snapshot.op, [writer.strings.texts[i] for i in snapshot.target], snapshot.args
    ('pfo', ['x', 'operator.add', 'output'], [[], [[1], 1], [[1]]])
    """

    def __init__(self, strings: StringTable | None = None) -> None:
        self.strings = strings or StringTable()
        self.values = Values(self.strings)
        self._known: dict[tuple[str, str, int, int], Row] = {}  # op, name, ids of kept target and value -> row
        self._rows: dict[tuple[str, int, int, int], Row] = {}  # of a finished compilation, by their first four
        self._targets: dict[int, int] = {}  # id of a kept target -> text
        self._stacks: dict[str | None, int] = {None: NONE}
        self._modules: dict[tuple[Any, ...], int] = {(): NONE}
        self._kept: list[Any] = []  # targets
        self._usual = True  # whether all arguments so far are of usual types

    def graph(self, graph: fx.Graph | fx.GraphModule) -> GraphSnapshot:
        """The graph's nodes in columns, in topological order (see GraphSnapshot)."""
        return unpacked(*self.packed(Parts.of(graph.graph if isinstance(graph, fx.GraphModule) else graph)))

    def packed(self, parts: Parts) -> tuple[GraphSnapshot, bytes]:
        """The snapshot of a graph without arguments, and these as `arguments.unpack` reads them.

        Column by column, and without a call where none is needed: this runs for every node of every stage.
        """
        nodes = parts.nodes
        rows = self._read(parts)
        op = "".join([row[0] for row in rows])
        described = [(i, meaning) for i, meaning in enumerate(parts.descriptors) if meaning is not None]
        snapshot = GraphSnapshot(
            op=op,
            name=[row[1] for row in rows],
            target=[row[2] for row in rows],
            args=[],
            kwargs={},
            value=[row[3] for row in rows],
            stack=[row[4] for row in rows],
            module=[row[5] for row in rows],
            sequence=[row[6] for row in rows],
            backward="".join([row[7] for row in rows]),
            descriptor={i: self.strings.add(describe(meaning)) for i, meaning in described if op[i] == "p"},
            output_descriptors=self._outputs(nodes[-1]) if nodes and op[-1] == "o" else [],
        )
        return snapshot, self._arguments(parts)

    def release(self) -> None:
        """Let go of all that is torch's; from now on an identity holds only while its value lives elsewhere."""
        self.values.release()
        self._rows.update({row[:4]: row for row in self._known.values()})
        self._known.clear()
        self._targets.clear()
        self._stacks = {None: NONE}
        self._modules = {(): NONE}
        self._kept.clear()

    def stacks(self, traces: list[str | None]) -> list[int]:
        """The numbers of the user's frames in stack traces of nodes; NONE where there are none."""
        return numbers(traces, self._stacks, self._stack)

    def source(self, trace: str) -> str:
        """The user's frames in a node's stack trace."""
        (number,) = self.stacks([trace])
        return self.strings.texts[number] if number != NONE else ""

    def _read(self, parts: Parts) -> list[Row]:
        """Each node's row. See Note [A node is looked into once]."""
        nodes, values = parts.nodes, parts.values
        ops, names, targets = [n.op for n in nodes], [n.name for n in nodes], [n.target for n in nodes]
        rows: list[Any] = list(map(self._known.get, zip(ops, names, map(id, targets), map(id, values), strict=True)))
        if None in rows:
            missing = [index for index, row in enumerate(rows) if row is None]
            new = [nodes[i] for i in missing]
            self._usual = self._usual and usual([parts.args[i] for i in missing])
            for index, row in zip(missing, self._meet(new, [values[i] for i in missing]), strict=True):
                rows[index] = row
            inherit(rows, missing)
            self._known.update(
                ((ops[i], names[i], id(targets[i]), id(values[i])), rows[i]) for i in missing if values[i] is not None
            )
        return rows

    def _meet(self, nodes: list[Any], values: list[Any]) -> list[Row]:
        """The rows of nodes that are other objects than any before."""
        metas, add = [node.meta for node in nodes], self.strings.add
        targets = {id(node.target): node.target for node in nodes}
        self._kept += targets.values()
        identities = list(
            zip(
                [OP_LETTERS[node.op] for node in nodes],
                numbers([node.name for node in nodes], self.strings.numbers, add),
                numbers([id(node.target) for node in nodes], self._targets, lambda key: add(target_name(targets[key]))),
                self.values.numbers(
                    meta.get("example_value") if v is None else v for v, meta in zip(values, metas, strict=True)
                ),
                strict=True,
            )
        )
        rows: list[Any] = list(map(self._rows.get, identities))
        new = [index for index, row in enumerate(rows) if row is None]
        for index, place in zip(new, self._places([metas[index] for index in new]), strict=True):
            rows[index] = identities[index] + place
        return rows

    def _places(self, metas: list[dict[str, Any]]) -> Iterable[tuple[int, int, int, str]]:
        """Where nodes stand in the program: stack, module, sequence and backward."""
        modules = [meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") or {} for meta in metas]
        return zip(
            self.stacks([meta.get("stack_trace") for meta in metas]),
            numbers([tuple(entered.values()) for entered in modules], self._modules, self._module),
            [meta.get("seq_nr", NONE) for meta in metas],
            [
                "1" if meta.get("partitioner_tag") == "is_backward" or meta.get("autograd_backward") else "0"
                for meta in metas
            ],
            strict=True,
        )

    def _arguments(self, parts: Parts) -> bytes:
        kwargs = {index: named for index, named in enumerate(parts.kwargs) if named}
        refs = dict(zip(parts.nodes, arguments.node_refs(len(parts.nodes)), strict=False))

        def extension(arg: Any) -> Any:
            """What msgspec does not know."""
            if type(arg) is Node:
                return refs[arg]
            if type(arg) is slice:
                return arguments.Ext(arguments.SLICE, encoder.encode(plain([arg.start, arg.stop, arg.step])))
            return self._text(arg)

        encoder = msgspec.msgpack.Encoder(enc_hook=extension)

        def plain(arg: Any) -> Any:
            """An argument without what msgspec writes in a way of its own, or can't write."""
            kind = type(arg)
            if kind is str:
                return clean(arg)
            if isinstance(arg, (list, tuple)):
                return list(map(plain, arg))
            if isinstance(arg, dict):
                return {clean(str(key)): plain(part) for key, part in arg.items()}
            outside = kind is int and not LEAST <= arg <= MOST
            return arg if (kind in USUAL or kind is slice) and not outside else self._text(arg)

        if self._usual and usual([named.values() for named in kwargs.values()]):
            with contextlib.suppress(OverflowError, UnicodeEncodeError):  # integers and texts that msgpack can't carry
                return encoder.encode([parts.args, kwargs])
        return encoder.encode([list(map(plain, parts.args)), {index: plain(named) for index, named in kwargs.items()}])

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


def numbers(things: list[Any], known: dict[Any, int], learn: Callable[[Any], int]) -> list[int]:
    """Each thing's number, known or else learnt."""
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


def inherit(rows: list[Row], new: list[int]) -> None:
    """A backward op that doesn't know where it stands in the program stands where its forward op stands.

    `rows` are a graph's; those at the positions `new` are filled in.
    """
    lost = [i for i in new if rows[i][7] == "1" and rows[i][6] != NONE and NONE in rows[i][4:6]]
    forward = {row[6]: row[4:6] for row in reversed(rows) if row[7] == "0"} if lost else {}
    for i in lost:
        op, name, target, value, stack, module, sequence, backward = rows[i]
        origin = forward.get(sequence)
        if origin is not None:
            stack, module = origin[0] if stack == NONE else stack, origin[1] if module == NONE else module
            rows[i] = (op, name, target, value, stack, module, sequence, backward)
