"""Rows of tables from forms: inputs, outputs, saved tensors, the wrapper.

Forms hold torch objects and positions; a recording holds text and the user's names. Each function makes one table
from one form (ir/forms.py). The reasons of stages are matched to rows by the name of their subject.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx
from msgspec.structs import replace

from aotviz.ir import symbolic_sizes
from aotviz.ir.descriptors import BufferInput, InputDescriptor, ParameterInput, SyntheticBaseInput
from aotviz.ir.forms import Executable, GraphCall, Reason, SavedTensor, TracedCall
from aotviz.ir.view_and_mutation import OutputAliasInfo, OutputType
from aotviz.ir.wrapper_subclasses import ragged
from aotviz.recorder.memory import Position, stride_and_offset
from aotviz.recorder.naming import sizes
from aotviz.recorder.snapshot import SnapshotWriter
from aotviz.recording.saved import Kept, SavedNote
from aotviz.recording.schema import NONE, Evidence, InputRecord, OutputRecord, VisitRecord, WrapperNote, WrapperRecord
from aotviz.recording.strings import clean
from aotviz.runtime.lowered import LoweredGraph, LoweredSplit, Program
from aotviz.torch_private import tensors
from aotviz.whole_backward.captured import PartedBackward, ReplayedBackward

KINDS: dict[type[InputDescriptor], str] = {ParameterInput: "parameter", BufferInput: "buffer"}


class ReasonBook:
    """The reasons given so far, by subject."""

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
        """All reasons about a subject, in one line."""
        return "; ".join(self.by_subject.get(subject, ()))


def inputs(call: TracedCall, reasons: ReasonBook) -> list[InputRecord]:
    """One record for each flat input of the user's function."""
    names = [clean(descriptor.name) for descriptor in call.descriptors]
    bases = _base_of(call.graph_inputs)
    static = set(call.static_inputs)
    groups: dict[int, int] = {}
    records = []
    for index, (descriptor, info) in enumerate(zip(call.descriptors, call.user_input_info.input_info, strict=True)):
        value, first = call.args[index], call.duplicate_of[index]
        key = storage(value)
        stride, offset = stride_and_offset(value) or ([], 0)
        records.append(
            InputRecord(
                name=names[index],
                kind=_kind(descriptor, value, index in static),
                **_described(value),
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
                storage=NONE if key is None else groups.setdefault(key, len(groups)),
                duplicate_of="" if first is None else names[first],
                synthetic_base=bases.get(descriptor, ""),
                reason=reasons.about(names[index]),
                stride=stride,
                offset=offset,
            )
        )
    return records


def _kind(descriptor: InputDescriptor, value: Any, is_static: bool) -> str:
    """What an input is to the user's module. Dynamo passes parameters and buffers as inputs that keep their memory."""
    if type(descriptor) in KINDS or not is_static:
        return KINDS.get(type(descriptor), "input")
    return "parameter" if isinstance(value, torch.nn.Parameter) else "buffer"


def call_sizes(call: TracedCall) -> dict[str, int]:
    """The sizes that are symbolic in the inputs, in the call that is being compiled. A ragged size is no number."""
    numbers: list[Any] = []
    for value in call.args:
        numbers += value.shape if isinstance(value, torch.Tensor) else [value]
    return {
        str(number): symbolic_sizes.hint(number)
        for number in numbers
        if isinstance(number, torch.SymInt) and symbolic_sizes.expression(number).is_symbol and not ragged(number)
        if symbolic_sizes.has_hint(number)
    }


def with_reasons(records: list[InputRecord], reasons: ReasonBook) -> list[InputRecord]:
    """The records with the reasons that are known now."""
    return [replace(record, reason=reasons.about(record.name)) for record in records]


def outputs(call: TracedCall, reasons: ReasonBook, positions: Sequence[Position | None]) -> list[OutputRecord]:
    """One record for each flat output of the user's function, with its (stride, offset) from `positions`."""
    records = []
    facts = zip(call.forward.outputs, call.outputs, call.meta.output_info, positions, strict=True)
    for value, descriptor, info, position in facts:
        name = clean(str(descriptor))
        stride, offset = position or ([], 0)
        records.append(
            OutputRecord(
                name=name,
                output_type=info.output_type.name,
                **_described(value),
                requires_grad=info.requires_grad,
                base=clean(_base(call, info)),
                view_chain=[clean(str(step)) for step in info.view_chain or ()],
                has_tangent=info.has_tangent,
                reason=reasons.about(name),
                stride=stride,
                offset=offset,
            )
        )
    return records


def _described(value: Any) -> dict[str, Any]:
    """The fields dtype, shape and device of a record."""
    if not isinstance(value, torch.Tensor):
        return {"dtype": type(value).__name__, "shape": [], "device": ""}
    return {"dtype": str(value.dtype), "shape": sizes(value.shape), "device": str(value.device)}


def kept(
    kept_values: Sequence[SavedTensor], backward: fx.GraphModule, graphs: Mapping[str, int], writer: SnapshotWriter
) -> Kept:
    """What is saved and what is recomputed. `graphs` are the numbers of the snapshots, which `writer` made."""
    values = writer.values.numbers(one.value for one in kept_values)
    stacks = writer.stacks([one.stack for one in kept_values])
    notes = [
        SavedNote(
            saved.name,
            saved.is_symbol,
            value,
            saved.producer,
            stack,
            saved.module,
            saved.why,
            saved.is_view,
            saved.donated,
            saved.why_donated,
            saved.hook,
        )
        for saved, value, stack in zip(kept_values, values, stacks, strict=True)
    ]
    again = [
        position
        for position, node in enumerate(backward.graph.nodes)
        if node.meta.get("partitioner_tag") == "is_forward" and node.op not in ("placeholder", "output")
    ]
    return Kept(graphs["forward"], graphs["backward"], notes, again)


def storage(value: Any) -> int | None:
    """A key of a tensor's storage; None for a value without one."""
    if not isinstance(value, torch.Tensor):
        return None
    try:
        return tensors.storage_key(value)
    except (RuntimeError, NotImplementedError):
        return None


def wrapper(program: Executable | ReplayedBackward) -> WrapperRecord:
    """The generated source with the reasons for its lines."""
    notes = [
        WrapperNote(note.first, max(note.first, note.last), clean(note.fact), clean(note.subject))
        for note in program.notes
        if note.first >= 1
    ]
    return WrapperRecord(clean(program.filename), clean(program.source), notes)


def visits(call: PartedBackward) -> list[VisitRecord]:
    """What became of each node of the autograd graph."""
    return [
        VisitRecord(
            node=clean(visit.name),
            subject=clean(visit.subject),
            steps=[clean(name) for name in one.steps],
            hooks=list(one.hooks),
            waits_for=list(one.waits_for),
            frees=[clean(name) for name in one.frees],
            parts=list(one.parts),
            copied=clean(one.copied),
        )
        for visit, one in zip(call.visits, call.account, strict=True)
    ]


def is_training(form: object) -> bool | None:
    """Whether a form belongs to a training or an inference compilation; None if that is not decided yet."""
    if isinstance(form, GraphCall):
        return form.role == "joint"
    if isinstance(form, (LoweredSplit, LoweredGraph, Program)):
        return is_training(form.call)
    return None


def nbytes(tensor: torch.Tensor) -> int | None:
    """Bytes of a tensor's storage, or of its elements if it has no one storage; None if a size is symbolic."""
    has_storage = storage(tensor) is not None
    count: Any = tensor.untyped_storage().nbytes() if has_storage else tensor.numel()
    return None if type(count) is not int else count if has_storage else count * tensor.element_size()


def _base_of(graph_inputs: Iterable[InputDescriptor]) -> dict[InputDescriptor, str]:
    bases = {}
    for descriptor in graph_inputs:
        if isinstance(descriptor, SyntheticBaseInput):
            bases.update(dict.fromkeys(descriptor.members, clean(str(descriptor))))
    return bases


def _base(call: TracedCall, info: OutputAliasInfo) -> str:
    """The name of what an output is rebuilt from."""
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
