"""What a recorded joint graph would save with another partitioner or memory budget, without its function.

A file has the graph as data: the names of its operators, their arguments, and the shape, strides, dtype and memory of
each value. That is all that a partitioner reads. So the graph is made again of stand-ins without memory, and goes
through torch's partitioner; nothing of the file is run. Only torch's own operators are looked up by a name in a file,
and only if the name is the one under which they are recorded.

Symbolic sizes have the values of the recorded call. The tags of `torch.utils.checkpoint` are recorded, and hold. What
a file does not have is refused by name: operators of other libraries.
"""

from __future__ import annotations

import contextlib
import keyword
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.fx as fx
from torch.utils.checkpoint import CheckpointPolicy

from aotviz.ir import graphs
from aotviz.ir.forms import SavedTensor
from aotviz.ir.partition_functions import named
from aotviz.recorder import records
from aotviz.recorder.naming import target_name
from aotviz.recorder.snapshot import Parts, SnapshotWriter
from aotviz.recording import dynamo_stage, sizes
from aotviz.recording.compilation import Compilation
from aotviz.recording.graph import Graph
from aotviz.recording.listing import Node
from aotviz.recording.schema import CompilationData, StageRecord, ValueRecord
from aotviz.recording.store import CompilationLog
from aotviz.stages import partition
from aotviz.torch_private import operators, partitioners
from aotviz.torch_private.fake_tensors import FakeTensorMode

_BY_TEXT: dict[str, Any] = {
    f"torch.{name}": value
    for name, value in vars(torch).items()
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format)
}
_DEVICE = re.compile(r"(?:cpu|meta|cuda|xpu|mps)(?::\d{1,3})?")
_CONSTANT = re.compile(r"_\w*constant\d{1,6}")
_CHECKPOINTED = re.compile(r"tagged \w+ by checkpointing")
_NO = "cannot be partitioned again from its recording"


@dataclass(frozen=True)
class RecordedProgram:
    """The joint graph of a recorded compilation; as `recording.compilation.LiveProgram`."""

    compilation: Compilation
    symbols: Mapping[str, int]

    def reads_budget(self, partition_fn: str | Callable[..., Any] | None) -> bool:
        return self._partitioner(partition_fn) is partitioners.min_cut_rematerialization_partition

    def cut(
        self,
        partition_fn: str | Callable[..., Any] | None,
        memory_budget: float | None,
        on_stage: Callable[[str], None] | None = None,
    ) -> tuple[CompilationData, list[str]]:
        """Partition the joint graph again.

        Raises LookupError if the recording does not have what that takes.
        """
        chosen = self._partitioner(partition_fn)
        joint, half = self.compilation.graph("joint"), self.compilation.graph("forward")
        results = sum(not text.startswith("saved ") for text in half.output_descriptors)
        if on_stage is not None:
            on_stage("partition")
        budget = contextlib.nullcontext() if memory_budget is None else partitioners.memory_budget(memory_budget)
        mode = FakeTensorMode()
        with budget, mode:
            module = _Made(joint, self.compilation.name, {**self.compilation.data.sizes, **self.symbols}).module()
            with partitioners.partitioning(module.graph, mode):
                forward, backward = self._halves(module, results, chosen)
        return self._recorded(forward, backward, results, chosen)

    def _partitioner(self, partition_fn: str | Callable[..., Any] | None) -> Callable[..., Any]:
        if partition_fn is not None:
            return named(partition_fn)
        recorded = self.compilation.data.options.get("partition_fn", "").rpartition(".")[2]
        try:
            return named(recorded)
        except ValueError:
            raise LookupError(f"{self.compilation.name} {_NO} with its own partitioner: name another one.") from None

    def _halves(
        self, module: fx.GraphModule, results: int, chosen: Callable[..., Any]
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        data, inputs = self.compilation.data, graphs.placeholders(module.graph)
        if not any("recompute" in node.meta for node in module.graph.nodes) and _has_checkpoints(self.compilation):
            raise LookupError(f"{self.compilation.name} {_NO}: it is of a version that did not record checkpoints.")
        about = {one.name: one for one in data.inputs}
        given = [node for node in inputs if not node.name.startswith("tangents_")]
        values = list(graphs.values(given)), list(graphs.values(inputs[len(given) :]))
        static = [i for i, node in enumerate(given) if (one := about.get(node.meta["desc"])) and one.static]

        writable = self._writable(module.graph, given, set(static), results)
        names = [node.meta["desc"] for node in given]
        written = [
            i for i, one in enumerate(map(about.get, names)) if one and (one.mutates_data or one.mutates_metadata)
        ]
        forward, backward, _ = partition.Cut(chosen, values, results, static).halves(module, written, writable)
        return forward, backward

    def _writable(self, graph: fx.Graph, given: Sequence[fx.Node], static: set[int], results: int) -> frozenset[str]:
        """As in stages/partition.py, but for what the code after a graph break does, which is not recorded."""
        data = self.compilation.data
        by_operator = data.options.get("graph_counts_writes", "True") == "True"
        made = {graphs.owner(one).name for one in graphs.outputs(graph)[:results] if isinstance(one, fx.Node)}
        inputs = {node.meta["desc"]: node.name for i, node in enumerate(given) if i not in static}
        if partitioners.saves_memory():
            return frozenset({*made, *inputs.values()})
        groups = {one.name: one.storage for one in data.inputs}
        returned = {groups.get(one.base, -1) for one in data.outputs if one.output_type in _OF_INPUTS} - {-1}
        found = {node for name, node in inputs.items() if groups.get(name) in returned}
        return frozenset(found | made if by_operator else found)

    def _recorded(
        self, forward: fx.GraphModule, backward: fx.GraphModule, results: int, chosen: Callable[..., Any]
    ) -> tuple[CompilationData, list[str]]:
        data, writer = self.compilation.data, SnapshotWriter()
        log = CompilationLog(data.name, data.options, writer.strings)
        saved = [*_saved(forward, results, str(getattr(chosen, "__name__", chosen)))]
        joint = self.compilation.graph("joint")
        _describe(forward, backward, results, joint.output_descriptors)
        made = {}
        for role, half in (("forward", forward), ("backward", backward)):
            made[role] = log.graph(writer.packed(Parts.of(half.graph)), writer.take_rows())
            log.values(writer.values.take())
        again = f"partitioned again from the recording, by {getattr(chosen, '__name__', chosen)}"
        log.stage(StageRecord("partition", "Split", again, True, False, 0, 0, made, [], {}))
        log.facts(kept=records.kept(saved, backward, made, writer))
        log.values(writer.values.take())
        log.facts(kind="training", inputs=data.inputs, outputs=data.outputs)
        log.end()
        return log.read()


def _has_checkpoints(compilation: Compilation) -> bool:
    """Whether it has regions of torch.utils.checkpoint, as far as a recording without their tags tells."""
    data = compilation.data
    if any(_CHECKPOINTED.match(one.why) for one in data.saved_tensors):
        return True
    if data.recomputed and data.options.get("partition_fn", "").endswith("default_partition"):
        return True  # it recomputes nothing else
    captured = [stage.name for stage in data.stages if dynamo_stage.ROLE in stage.graphs]
    found = (compilation.graph(dynamo_stage.ROLE, name).rows for name in captured)
    return any("tag_activation_checkpoint" in node.target for rows in found for node in rows)


_OF_INPUTS = ("is_input", "alias_of_input", "custom_function_view")


def _saved(forward: fx.GraphModule, results: int, partitioner: str) -> Iterator[SavedTensor]:
    for node in graphs.outputs(forward.graph)[results:]:
        value, made = node.meta.get("val"), node
        while made.target is operator.getitem:
            made = graphs.argument(made)
        stack = node.meta.get("nn_module_stack") or {}
        yield SavedTensor(
            name=node.name,
            is_symbol=not isinstance(value, torch.Tensor),
            value=value,
            producer=str(node.meta.get("desc") or made.target),
            stack=node.meta.get("stack_trace") or "",
            module=next((str(entry[0]) for entry in reversed(stack.values())), ""),
            why=str(node.meta.get("policy") or _tagged(node) or f"{partitioner} saves it"),
            is_view=node.op == "placeholder" or node.target is operator.getitem or operators.is_view(node.target),
        )


def _tagged(node: fx.Node) -> str:
    tag = node.meta.get("recompute")
    return f"tagged {tag.name} by checkpointing" if tag is not None and node.meta.get("ac_graph_id") else ""


def _describe(forward: fx.GraphModule, backward: fx.GraphModule, results: int, said: Sequence[str]) -> None:
    """The meaning of what enters and leaves the halves, as the pipeline tells it."""
    kept = [f"saved {node.name}" for node in graphs.outputs(forward.graph)[results:]]
    graphs.output_node(forward.graph).meta["desc"] = [*said[:results], *kept]
    graphs.output_node(backward.graph).meta["desc"] = list(said[results:])
    for node in graphs.placeholders(backward.graph):
        desc = node.meta.get("desc")
        is_tangent = node.name.startswith("tangents_")
        node.meta = {**node.meta, "desc": desc if is_tangent else f"saved {node.name}"}


class _Made:
    """A graph made again of what is recorded, under a mode that makes stand-ins. fx writes the names of its nodes,
    placeholders and keyword arguments into code that it runs, so each has to be a name."""

    def __init__(self, graph: Graph, name: str, symbols: Mapping[str, int]) -> None:
        self._recorded, self._name, self._symbols = graph, name, symbols
        self._bases: dict[tuple[int, int], torch.Tensor] = {}  # by storage and dtype
        self._values: dict[int, Any] = {}
        self._nodes: list[Any] = []  # a node, or the number that it is
        self._ends: dict[tuple[int, int], int] = {}
        for value in graph.values:
            if value.kind == "tensor" and value.storage >= 0:
                key = value.storage, value.dtype
                self._ends[key] = max(self._ends.get(key, 0), self._end(value))

    def module(self) -> fx.GraphModule:
        graph, root, snapshot = fx.Graph(), torch.nn.Module(), self._recorded.snapshot
        for node in self._recorded.rows:
            args = tuple(self._argument(arg, node.index) for arg in snapshot.args[node.index])
            given: dict[str, Any] = snapshot.kwargs.get(node.index, {})
            kwargs = {name: self._argument(arg, node.index) for name, arg in given.items()}
            for text in (node.name, *given, *([node.target] if node.op == "placeholder" else [])):
                if not text.isidentifier() or keyword.iskeyword(text):
                    raise LookupError(f"{self._name} {_NO}: {text[:80]!r} is not a name.")
            value = self._value(node.value_id) if node.value_id >= 0 else None
            if isinstance(value, int | float):
                self._nodes.append(value)
                continue
            if node.op == "output":
                made = graph.output(args[0] if len(args) == 1 else args)
                made.meta["desc"] = list(self._recorded.output_descriptors)
                continue
            is_constant = node.op == "get_attr" and isinstance(value, torch.Tensor) and _CONSTANT.fullmatch(node.target)
            if node.op not in ("placeholder", "call_function") and not is_constant:
                raise LookupError(f"{self._name} {_NO}: it has `{node.name}`, which is no operator.")
            if is_constant:
                setattr(root, node.target, value)
            target = self._operator(node) if node.op == "call_function" else node.target
            made = graph.create_node(node.op, target, args, kwargs, node.name)
            made.meta = self._meta(node, value)
            self._nodes.append(made)
        return fx.GraphModule(root, graph)

    def _meta(self, node: Node, value: Any) -> dict[str, Any]:
        snapshot, text = self._recorded.snapshot, self._recorded.text
        module: str = text(snapshot.module[node.index])
        lines = [line.split("|") for line in module.splitlines()]
        meta: dict[str, Any] = {
            "val": value,
            "stack_trace": text(snapshot.stack[node.index]),
            "nn_module_stack": {str(i): (path, kind) for i, (path, *_, kind) in enumerate(lines)},
            "partitioner_tag": "is_backward" if node.is_backward else "is_forward",
        }
        if node.sequence_number >= 0:
            meta["seq_nr"] = node.sequence_number
        if tag := getattr(CheckpointPolicy, node.checkpoint or "none", None):
            meta["recompute"] = tag
            if (region := snapshot.checkpoint[node.index][1]) >= 0:
                meta["ac_graph_id"] = region
        if node.op == "placeholder":
            meta["desc"] = node.descriptor
        return meta

    def _operator(self, node: Node) -> Any:
        if node.target == "operator.getitem":
            return operator.getitem
        found = operators.of_torch(node.target)
        if found is None or target_name(found) != node.target:
            raise LookupError(f"{self._name} {_NO}: it has `{node.target}`, which is no operator of torch's own.")
        return found

    def _argument(self, arg: Any, index: int) -> Any:
        if isinstance(arg, list):
            if arg[0] == "L":
                return [self._argument(part, index) for part in arg[1:]]
            return self._nodes[index - arg[0]]
        if isinstance(arg, dict):
            ((tag, content),) = arg.items()
            if tag == "s":
                return slice(*(self._argument(part, index) for part in content))
            if tag == "d":
                return {name: self._argument(part, index) for name, part in content.items()}
            text = self._recorded.text(content)
            if text in _BY_TEXT:
                return _BY_TEXT[text]
            if _DEVICE.fullmatch(text):
                return torch.device(text)
            raise LookupError(f"{self._name} {_NO}: an argument is recorded only as {text[:80]!r}.")
        return arg

    def _value(self, number: int) -> Any:
        if number not in self._values:
            self._values[number] = self._made(self._recorded.values[number])
        return self._values[number]

    def _made(self, value: ValueRecord) -> Any:
        text = self._recorded.text
        if value.kind == "tuple":
            return tuple(self._value(part) if part >= 0 else None for part in value.parts)
        if value.kind == "symint":
            return sizes.evaluated(text(value.text), self._symbols)
        if value.kind != "tensor" or (value.shape and not value.stride):
            raise LookupError(f"{self._name} {_NO}: it has a value of another kind than a tensor with strides.")
        dtype, device = _BY_TEXT.get(text(value.dtype)), text(value.device)
        if not isinstance(dtype, torch.dtype) or not _DEVICE.fullmatch(device):
            raise LookupError(f"{self._name} {_NO}: a tensor has dtype {text(value.dtype)} on {device}.")
        shape, stride, offset = self._layout(value)
        key = value.storage, value.dtype
        if value.storage < 0:
            return torch.empty_strided(shape, stride, dtype=dtype, device=device)
        if key not in self._bases:
            self._bases[key] = torch.empty(self._ends[key], dtype=dtype, device=device)
        return self._bases[key].as_strided(shape, stride, offset)

    def _layout(self, value: ValueRecord) -> tuple[list[int], list[int], int]:
        known = partial(sizes.evaluated, symbols=self._symbols)
        return [*map(known, value.shape)], [*map(known, value.stride)], known(value.offset)

    def _end(self, value: ValueRecord) -> int:
        try:
            shape, stride, offset = self._layout(value)
        except ValueError:  # of a value that the joint graph does not have, maybe
            return 0
        return sizes.reach(offset, shape, stride) or 0
