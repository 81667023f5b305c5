"""A graph as it stands now, in a form that outlives it.

Later passes edit graphs in place, and a graph that is kept pins every fake tensor in it; a deep copy of GPT-2's
costs more than the stage that made it. So a stage's graph is read once, when the stage ends, into columns of small
integers (events.py): 13 µs a node or less, and nothing of torch is held on to afterwards.

Three memos make that so. Texts are interned. What is known of a tensor is written down once, however many graphs it
passes through, because stages hand the same FakeTensor objects on in `node.meta["val"]`; the number of that record
is the value's identity across stages. And a source location or module path, shared by the nodes of one user line,
is parsed once.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import fx

from aotviz.recorder.events import NONE, GraphSnapshot, ValueRecord
from aotviz.recorder.naming import describe, module_lines, size, sizes, target_name, user_frames
from aotviz.recorder.strings import StringTable, clean
from aotviz.torch_private import snapshotting
from aotviz.torch_private.snapshotting import Parts

INT64 = range(-(2**63), 2**63)  # what msgpack can carry
OP_LETTERS = {
    "placeholder": "p",
    "call_function": "f",
    "call_module": "m",
    "call_method": "c",
    "get_attr": "a",
    "output": "o",
}
SYMBOLIC = {torch.SymInt: "symint", torch.SymFloat: "symfloat", torch.SymBool: "symbool"}


Node = fx.Node


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
        self._new_values: list[ValueRecord] = []
        self._storage_of: list[int] = []  # of each value: its storage group
        self._by_id: dict[int, int] = {id(None): NONE}  # id of a kept value -> its number
        self._released: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._tuples: dict[tuple[int, ...], int] = {}
        self._storages: dict[int, int] = {}  # storage address -> group, for storages of kept values
        self._storage_groups = 0
        self._targets: dict[int, int] = {}  # id of a kept target -> text
        self._facts: dict[Any, int] = {}  # a dtype's or device's text
        self._stacks: dict[int, int] = {id(None): NONE}  # id of a kept stack trace -> text
        self._stack_texts: dict[str, int] = {}
        self._modules: dict[int, int] = {id(None): NONE}  # id of a kept module stack -> text
        self._module_lines: dict[tuple[Any, ...], int] = {}
        self._kept: list[Any] = []  # whatever the dicts above know by id

    def graph(self, graph: fx.Graph | fx.GraphModule, parts: Parts | None = None) -> GraphSnapshot:
        """The graph's nodes in columns, in topological order (see GraphSnapshot).

        `parts` are the graph's, where the caller has them already. Column by column, since a loop over the nodes
        would spend most of its time in the interpreter: this runs for every node of every stage.
        """
        parts = parts or Parts.of(graph.graph if isinstance(graph, fx.GraphModule) else graph)
        nodes, metas = parts.nodes, [node.meta for node in parts.nodes]
        ops = [node.op for node in nodes]
        position = {node: index for index, node in enumerate(nodes)}
        encode = self._encoder(position)
        backward = [
            meta.get("partitioner_tag") == "is_backward" or bool(meta.get("autograd_backward")) for meta in metas
        ]
        traces = [meta.get("stack_trace") for meta in metas]
        modules = [meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") for meta in metas]
        sequence = [meta.get("seq_nr", NONE) for meta in metas]
        stack = numbers(map(id, traces), traces, self._stacks, self._stack)
        module = numbers(map(id, modules), modules, self._modules, self._module)
        inherit(sequence, backward, stack, module)
        targets = [node.target for node in nodes]
        names = [node.name for node in nodes]
        values = [
            meta.get("example_value") if value is None else value
            for value, meta in zip(parts.values, metas, strict=True)
        ]
        described = [
            (index, meaning)
            for index, meaning in enumerate(parts.descriptors)
            if meaning is not None and ops[index] == "placeholder"
        ]
        return GraphSnapshot(
            op="".join([OP_LETTERS[op] for op in ops]),
            name=numbers(names, names, self.strings.numbers, self.strings.add),
            target=numbers(map(id, targets), targets, self._targets, self._target),
            args=[
                [[index - position[arg]] if type(arg) is Node else encode(arg, index) for arg in args]
                for index, args in enumerate(parts.args)
            ],
            kwargs={
                index: {key: encode(arg, index) for key, arg in named.items()}
                for index, named in enumerate(parts.kwargs)
                if named
            },
            value=numbers(map(id, values), values, self._by_id, self.value),
            stack=stack,
            module=module,
            sequence=sequence,
            backward="".join(["1" if is_backward else "0" for is_backward in backward]),
            descriptor={index: self.strings.add(describe(meaning)) for index, meaning in described},
            output_descriptors=self._outputs(nodes[-1]) if ops and ops[-1] == "output" else [],
        )

    def value(self, example: Any) -> int:
        """The number of a traced value's record: the same number for the same object, in whatever graph."""
        key = id(example)
        number = self._by_id.get(key)
        if number is not None:
            return number
        released = self._released.pop(key, None) if self._released else None
        if released is not None and released[0]() is example:
            number = released[1]
            if isinstance(example, torch.Tensor):
                self._rejoin_storage(example, number)
        elif isinstance(example, (tuple, list)):
            return self._tuple(example)
        else:
            number = self._new(self._tensor(example) if isinstance(example, torch.Tensor) else self._scalar(example))
        self._by_id[key] = number
        self._kept.append(example)
        return number

    def take_values(self) -> list[ValueRecord]:
        """The records of the values met since the last time, in the order of their numbers."""
        taken, self._new_values = self._new_values, []
        return taken

    def release(self) -> None:
        """Let go of every traced value; from now on an identity holds only while its value lives elsewhere."""
        for example in self._kept:
            number = self._by_id.get(id(example))
            if number is not None:
                with contextlib.suppress(TypeError):  # of a plain number: it has no identity to lose
                    self._released[id(example)] = (weakref.ref(example), number)
        self._by_id = {id(None): NONE}
        self._storages.clear()
        self._targets.clear()
        self._module_lines.clear()
        self._stacks = {id(None): NONE}
        self._stack_texts.clear()
        self._modules = {id(None): NONE}
        self._kept.clear()

    def _encoder(self, position: dict[fx.Node, int]) -> Callable[[Any, int], Any]:
        """A function that writes one argument of the node at an index (see GraphSnapshot)."""
        text = self.strings.add

        def encode(arg: Any, index: int) -> Any:
            kind = type(arg)
            if kind is Node:
                return [index - position[arg]]
            if kind is int:
                return arg if arg in INT64 else {"r": text(str(arg))}
            if arg is None or kind is bool or kind is float:
                return arg
            if kind is str:
                return clean(arg)
            if isinstance(arg, (list, tuple)):
                return ["L", *[encode(part, index) for part in arg]]
            if isinstance(arg, dict):
                return {"d": {clean(str(key)): encode(part, index) for key, part in arg.items()}}
            if kind is slice:
                return {"s": [encode(part, index) for part in (arg.start, arg.stop, arg.step)]}
            return {"r": text(str(arg))}

        return encode

    def _new(self, record: ValueRecord) -> int:
        self._new_values.append(record)
        self._storage_of.append(record.storage)
        return len(self._storage_of) - 1

    def _tensor(self, tensor: torch.Tensor) -> ValueRecord:
        try:
            stride, offset = sizes(tensor.stride()), size(tensor.storage_offset())
            key = snapshotting.storage_key(tensor)
            storage = self._storages.get(key)
            if storage is None:
                storage = self._storages[key] = self._storage_groups
                self._storage_groups += 1
        except (RuntimeError, NotImplementedError):  # a layout without strides, or without one storage
            stride, offset, storage = [], 0, NONE
        dtype, device, shape = self._fact(tensor.dtype), self._fact(snapshotting.device(tensor)), sizes(tensor.shape)
        return ValueRecord("tensor", dtype, shape, stride, offset, device, storage, tensor.requires_grad, [], NONE)

    def _scalar(self, example: Any) -> ValueRecord:
        kind = SYMBOLIC.get(type(example), "other")
        return without_tensor(kind, text=self.strings.add(str(example)))

    def _tuple(self, examples: tuple[Any, ...] | list[Any]) -> int:
        """A tuple is the values in it: copies of a graph may copy the tuple, and it is still the same."""
        parts = tuple([NONE if part is None else self.value(part) for part in examples])
        number = self._tuples.get(parts)
        if number is None:
            number = self._tuples[parts] = self._new(without_tensor("tuple", parts=list(parts)))
        return number

    def _rejoin_storage(self, tensor: torch.Tensor, number: int) -> None:
        with contextlib.suppress(RuntimeError, NotImplementedError):
            self._storages.setdefault(snapshotting.storage_key(tensor), self._storage_of[number])

    def _fact(self, thing: Any) -> int:
        number = self._facts.get(thing)
        if number is None:
            number = self._facts[thing] = self.strings.add(str(thing))
        return number

    def _target(self, target: Any) -> int:
        number = self._targets[id(target)] = self.strings.add(target_name(target))
        self._kept.append(target)
        return number

    def _stack(self, trace: str) -> int:
        number = self._stack_texts.get(trace)  # a long text, dear to compare: once for each object
        if number is None:
            number = self._stack_texts[trace] = self.strings.add(user_frames(trace) or None)
        self._stacks[id(trace)] = number
        self._kept.append(trace)
        return number

    def _module(self, modules: dict[str, Any]) -> int:
        entries = tuple(modules.values())  # many nodes have equal stacks, each in a dict of its own
        number = self._module_lines.get(entries)
        if number is None:
            number = self._module_lines[entries] = self.strings.add(module_lines(entries) or None)
        self._modules[id(modules)] = number
        self._kept.append(modules)
        return number

    def source(self, trace: str) -> str:
        """The user's frames in a node's stack trace."""
        number = self._stack(trace)
        return self.strings.texts[number] if number != NONE else ""

    def _outputs(self, node: fx.Node) -> list[int]:
        returned = node.args[0] if node.args else ()
        count = len(returned) if isinstance(returned, (list, tuple)) else 1
        given = node.meta.get("desc")
        described = list(given) if isinstance(given, (list, tuple)) else [] if given is None else [given]
        texts = [NONE if desc is None else self.strings.add(describe(desc)) for desc in described]
        return (texts + [NONE] * count)[:count]


def numbers(keys: Iterable[Any], things: list[Any], known: Mapping[Any, int], learn: Callable[[Any], int]) -> list[int]:
    """Each thing's number, found under its key or else learnt."""
    found: list[Any] = list(map(known.get, keys))
    if None in found:
        found = [learn(things[i]) if number is None else number for i, number in enumerate(found)]
    return found


def inherit(sequence: list[int], backward: list[bool], stack: list[int], module: list[int]) -> None:
    """A backward op that doesn't know where it stands in the program stands where its forward op stands."""
    lost = [
        i
        for i, is_backward in enumerate(backward)
        if is_backward and sequence[i] != NONE and (stack[i] == NONE or module[i] == NONE)
    ]
    if not lost:
        return
    forward = {order: i for i, order in reversed(list(enumerate(sequence))) if not backward[i]}
    for i in lost:
        origin = forward.get(sequence[i])
        if origin is not None:
            stack[i] = stack[origin] if stack[i] == NONE else stack[i]
            module[i] = module[origin] if module[i] == NONE else module[i]


def without_tensor(kind: str, parts: list[int] | None = None, text: int = NONE) -> ValueRecord:
    """The record of a value that is not a tensor."""
    return ValueRecord(kind, NONE, [], [], 0, NONE, NONE, False, parts or [], text)
