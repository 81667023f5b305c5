"""What the forms know about a call, as rows of tables: inputs, outputs, saved tensors, the wrapper.

Forms hold torch objects and count in positions; a recording holds text and the user's own names. One function a
table, each reading one form (ir/forms.py). Reasons that stages gave are matched to rows by the name they are about.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import fx

from aotviz.ir import graphs
from aotviz.ir.descriptors import BufferInput, InputDescriptor, ParameterInput, SyntheticBaseInput
from aotviz.ir.forms import GraphCall, Program, Reason, SavedTensor, Split, TracedCall
from aotviz.ir.metadata import OutputAliasInfo, OutputType
from aotviz.recorder.events import (
    NONE,
    Evidence,
    InputRecord,
    OutputRecord,
    RecomputedRecord,
    SavedTensorRecord,
    WrapperNote,
    WrapperRecord,
)
from aotviz.recorder.naming import sizes, target_name
from aotviz.recorder.sources import innermost, module_path
from aotviz.recorder.strings import clean
from aotviz.torch_private import snapshotting

Reasons = Mapping[str, Iterable[str]]  # subject -> sentences, in the order in which stages gave them


class ReasonBook:
    """The reasons given so far, by what they are about."""

    def __init__(self) -> None:
        self.by_subject: dict[str, list[str]] = defaultdict(list)

    def add(self, reasons: Iterable[Reason]) -> list[Evidence]:
        """Remember a stage's reasons; returns them as records."""
        found = []
        for reason in reasons:
            subject, text = clean(str(reason.subject)), clean(str(reason.text))
            if text not in self.by_subject[subject]:
                self.by_subject[subject].append(text)
            found.append(Evidence(subject, text))
        return found

    def about(self, subject: str) -> str:
        """All that is known about a subject, in one line."""
        return "; ".join(self.by_subject.get(subject, ()))


def inputs(call: TracedCall, reasons: ReasonBook) -> list[InputRecord]:
    """One record a flat input of the user's."""
    names = [clean(descriptor.name) for descriptor in call.descriptors]
    bases = _base_of(call.graph_inputs)
    static = set(call.static_inputs)
    groups: dict[int, int] = {}
    records = []
    for index, (descriptor, info) in enumerate(zip(call.descriptors, call.user_input_info.input_info, strict=True)):
        value = call.args[index]
        first = call.duplicate_of[index]
        tensor = isinstance(value, torch.Tensor)
        records.append(
            InputRecord(
                name=names[index],
                kind=_kind(descriptor),
                dtype=str(value.dtype) if tensor else type(value).__name__,
                shape=sizes(value.shape) if tensor else [],
                device=str(value.device) if tensor else "",
                requires_grad=info.requires_grad,
                is_leaf=info.is_leaf,
                mutates_data=info.mutates_data,
                mutates_metadata=info.mutates_metadata,
                mutation=info.mutation_type.name,
                hidden_from_autograd=info.mutates_data and info.mutations_hidden_from_autograd,
                under_no_grad=info.mutates_data and info.mutations_under_no_grad_or_inference_mode,
                storage_resized=info.resizes_storage,
                storage_replaced=info.mutates_storage_metadata,
                static=index in static,
                storage=_storage_group(value, groups),
                duplicate_of="" if first is None else names[first],
                synthetic_base=bases.get(descriptor, ""),
                reason=reasons.about(names[index]),
            )
        )
    return records


def outputs(call: TracedCall, reasons: ReasonBook) -> list[OutputRecord]:
    """One record a flat output of the user's."""
    values = call.forward.outputs
    records = []
    for index, (descriptor, info) in enumerate(zip(call.outputs, call.meta.output_info, strict=True)):
        value = values[index]
        tensor = isinstance(value, torch.Tensor)
        name = clean(str(descriptor))
        records.append(
            OutputRecord(
                name=name,
                output_type=info.output_type.name,
                dtype=str(value.dtype) if tensor else type(value).__name__,
                shape=sizes(value.shape) if tensor else [],
                device=str(value.device) if tensor else "",
                requires_grad=info.requires_grad,
                base=clean(_base(call, info)),
                view_chain=[clean(str(step)) for step in info.view_chain or ()],
                has_tangent=info.has_tangent,
                reason=reasons.about(name),
            )
        )
    return records


def saved_tensors(call: Split, source: Callable[[str], str]) -> list[SavedTensorRecord]:
    """One record a value that the forward keeps, in order. `source` finds the user's frames in a stack trace."""
    readers = _Readers(call.backward_module.graph)
    given = _given_memory(call)
    return [_saved(value, source, readers, given) for value in call.saved]


def recomputed(call: Split, source: Callable[[str], str]) -> list[RecomputedRecord]:
    """One record a node of the forward that the partitioner put into the backward as well, in order."""
    readers = _Readers(call.backward_module.graph)
    return [
        _recomputed(node, source, readers)
        for node in call.backward_module.graph.nodes
        if node.meta.get("partitioner_tag") == "is_forward" and node.op not in ("placeholder", "output")
    ]


def _given_memory(call: Split) -> dict[int, str]:
    """The storages of the forward's inputs, and whose each is."""
    nodes = graphs.placeholders(call.forward_module.graph)
    pairs = [(_storage(node.meta.get("val")), node.meta.get("desc") or node.name) for node in nodes]
    return {key: clean(str(name)) for key, name in pairs if key is not None}


def _storage(value: Any) -> int | None:
    if not isinstance(value, torch.Tensor):
        return None
    try:
        return snapshotting.storage_key(value)
    except (RuntimeError, NotImplementedError):
        return None


class _Readers:
    """Who reads the nodes of a graph, and where they stand."""

    def __init__(self, graph: fx.Graph) -> None:
        self.position = {node: index for index, node in enumerate(graph.nodes)}
        self.inputs = {node.name: node for node in graphs.placeholders(graph)}

    def of(self, node: fx.Node | None) -> list[fx.Node]:
        """In their order; the output is none of them."""
        users = () if node is None else (user for user in node.users if user.op != "output")
        return sorted(users, key=self.position.__getitem__)

    def fields(self, node: fx.Node | None) -> dict[str, Any]:
        """`consumers` and `dies_at` of a node, as records have them."""
        found = self.of(node)
        last = self.position[found[-1]] if found else NONE
        return {"consumers": [clean(user.name) for user in found], "dies_at": last}


def wrapper(program: Program) -> WrapperRecord:
    """The generated source, and why its lines are there."""
    notes = [
        WrapperNote(note.first, max(note.first, note.last), clean(note.fact), clean(note.subject))
        for note in program.notes
        if note.first >= 1
    ]
    return WrapperRecord(clean(program.filename), clean(program.source), notes)


def is_training(form: object) -> bool | None:
    """Whether a form belongs to a training or an inference compilation; None where that is not decided yet."""
    if isinstance(form, GraphCall):
        return form.role == "joint"
    return is_training(form.lowered) if isinstance(form, Program) else None


def nbytes(value: Any) -> int | None:
    """Bytes of a tensor's elements; None where a size is symbolic."""
    shape = sizes(value.shape)
    return math.prod(int(n) for n in shape) * int(value.element_size()) if all(type(n) is int for n in shape) else None


def _saved(
    saved: SavedTensor, frames: Callable[[str], str], readers: _Readers, given: dict[int, str]
) -> SavedTensorRecord:
    value = saved.value
    tensor = isinstance(value, torch.Tensor)
    source = innermost(frames(saved.stack))
    return SavedTensorRecord(
        name=saved.name,
        kind="symint" if saved.is_symbol else "tensor",
        dtype=str(value.dtype) if tensor else "",
        shape=sizes(value.shape) if tensor else [],
        nbytes=nbytes(value) if tensor else 0,
        producer=clean(saved.producer),
        source=clean(f"{source} {source.code}".strip()),
        module=clean(module_path(saved.module)),
        why=clean(saved.why),
        version_checked=saved.is_view,
        donated=saved.donated,
        why_donated=clean(saved.why_donated),
        hook=clean(saved.hook),
        memory_of=given.get(_storage(value) or 0, ""),
        **readers.fields(readers.inputs.get(saved.name)),
    )


def _recomputed(node: fx.Node, frames: Callable[[str], str], readers: _Readers) -> RecomputedRecord:
    value = node.meta.get("val")
    tensor = isinstance(value, torch.Tensor)
    source = innermost(frames(node.meta.get("stack_trace") or ""))
    stack = node.meta.get("nn_module_stack") or {}
    return RecomputedRecord(
        name=clean(node.name),
        dtype=str(value.dtype) if tensor else "",
        shape=sizes(value.shape) if tensor else [],
        nbytes=nbytes(value) if tensor else 0,
        producer=clean(target_name(node.target)),
        source=clean(f"{source} {source.code}".strip()),
        module=clean(module_path(next((str(entry[0]) for entry in reversed(stack.values())), ""))),
        made_at=readers.position[node],
        **readers.fields(node),
    )


def _kind(descriptor: InputDescriptor) -> str:
    if isinstance(descriptor, ParameterInput):
        return "parameter"
    return "buffer" if isinstance(descriptor, BufferInput) else "input"


def _storage_group(value: Any, groups: dict[int, int]) -> int:
    key = _storage(value)
    return NONE if key is None else groups.setdefault(key, len(groups))


def _base_of(graph_inputs: Iterable[InputDescriptor]) -> dict[InputDescriptor, str]:
    bases = {}
    for descriptor in graph_inputs:
        if isinstance(descriptor, SyntheticBaseInput):
            bases.update(dict.fromkeys(descriptor.members, clean(str(descriptor))))
    return bases


def _base(call: TracedCall, info: OutputAliasInfo) -> str:
    """What an output is rebuilt from, by name."""
    if info.same_object_as is not None:
        return str(call.outputs[info.same_object_as])
    index = info.base_index
    if index is None:
        return ""
    if info.output_type in (OutputType.alias_of_input, OutputType.is_input, OutputType.custom_function_view):
        return str(call.graph_inputs[index])
    if info.output_type is OutputType.alias_of_intermediate_base_is_user_output:
        return str(call.outputs[index])
    return f"intermediate {index}"
