"""Refuse what an exported graph cannot express, by the name of the input or output (docs/design/system.md B4).

An export has no wrapper at run time that could change the shape of an input, check that two inputs are the same, or
recreate a view. Data written to an input leaves the graph as an extra output; other effects are refused.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from aotviz.ir.descriptors import SyntheticBaseInput
from aotviz.ir.forms import Reason, TracedCall
from aotviz.ir.signature import ExportRefused
from aotviz.ir.view_and_mutation import OutputType
from aotviz.ir.wrapper_subclasses import is_subclass, parts_by_path


def run(call: TracedCall) -> TracedCall:
    """TracedCall -> TracedCall, unchanged but for its evidence."""
    export = call.options.export
    if call.out_spec is not None and call.out_spec.num_leaves < len(call.outputs):
        raise ExportRefused(
            "the function registers a gradient hook that has to run as Python in each backward, and an "
            "exported graph has no wrapper that could register it. Let the hook only compute with its "
            "gradient, so that it can be traced."
        )
    _plain_tensors(call)
    _inputs(call, joint=export.joint)
    if export.kind == "simple":
        _simple(call)
    elif export.joint:
        _loss(call, export.loss)
    return replace(call, evidence=(Reason("export", "every input and output can be exported"),))


def _plain_tensors(call: TracedCall) -> None:
    inputs = (("input", d.name, value) for d, value in zip(call.descriptors, call.args, strict=True))
    outputs = (("output", str(d), value) for d, value in zip(call.outputs, call.forward.outputs, strict=True))
    for kind, name, value in (*inputs, *outputs):
        if is_subclass(value):
            parts = " and ".join(name + path for path, _ in parts_by_path(value))
            raise ExportRefused(
                f"{kind} {name!r} is a {type(value).__name__}, a tensor subclass, and an exported graph has "
                f"no wrapper that could unwrap or build it. Let the function take and return {parts}."
            )


def _inputs(call: TracedCall, joint: bool) -> None:
    names = [d.name for d in call.descriptors]
    infos = call.user_input_info.input_info
    for index, first in enumerate(call.duplicate_of):
        if first is not None and (infos[index].mutated or infos[first].mutated):
            raise ExportRefused(
                f"inputs {names[first]!r} and {names[index]!r} are the same tensor, and it is written; an "
                f"exported graph cannot check that later calls do the same. Pass {names[first]!r} once, or a "
                "copy for one of them."
            )
    if call.rewrites:
        bases = (d.members for d in call.graph_inputs if isinstance(d, SyntheticBaseInput))
        members = next(bases, tuple(d for d in call.descriptors if d not in call.graph_inputs))
        together = " and ".join(repr(str(member)) for member in members)
        raise ExportRefused(
            f"the inputs {together} share memory, and one would be written through another; an exported graph "
            "cannot check how they overlap in later calls. Pass copies, or the tensor that they are views of."
        )
    for name, info in zip(names, infos, strict=True):
        if info.mutates_metadata or info.resizes_storage:
            raise ExportRefused(
                f"the call changes the shape, strides or storage of input {name!r}, which an exported graph "
                "cannot do. Return the changed view instead of changing the input in place."
            )
        if joint and info.requires_grad and info.mutates_data:
            raise ExportRefused(
                f"the call writes input {name!r}, which requires grad; a joint graph has no gradient of the value "
                f"before the write. Write to a clone of {name!r}, or export without the backward."
            )


def _loss(call: TracedCall, loss: int | None) -> None:
    infos, names = call.meta.output_info, [str(output) for output in call.outputs]
    if loss is None:
        raise ExportRefused("trace_joint=True needs output_loss_index: the output that is the loss")
    if not 0 <= loss < len(infos):
        raise ExportRefused(f"output_loss_index={loss}, and the call returns {len(infos)} outputs")
    for index, info in enumerate(infos):
        if index != loss and info.requires_grad:
            raise ExportRefused(
                f"{names[index]} requires grad and is not the loss ({names[loss]}); a joint graph has "
                f"gradients of the loss only. Detach {names[index]} before you return it."
            )
    if not infos[loss].requires_grad or not call.forward.with_gradients:
        raise ExportRefused(
            f"the loss, {names[loss]}, does not require grad: no parameter or input that it depends on requires grad"
        )
    layout = infos[loss].layout
    shape = () if layout is None else tuple(layout.size)
    if math.prod(shape) != 1:
        raise ExportRefused(
            f"the loss, {names[loss]}, must have one element, and has shape {shape}: sum it, or take its mean"
        )


def _simple(call: TracedCall) -> None:
    for descriptor, info in zip(call.descriptors, call.user_input_info.input_info, strict=True):
        if info.mutated:
            raise ExportRefused(
                f"the call writes input {descriptor.name!r}; aot_export_joint_simple takes only functions "
                "that write to no input"
            )
    for output, fact in zip(call.outputs, call.meta.output_info, strict=True):
        if fact.output_type is not OutputType.non_alias or fact.same_object_as is not None:
            what = fact.output_type.value if fact.same_object_as is None else "returned twice"
            raise ExportRefused(
                f"{output} is {what}; aot_export_joint_simple does not take outputs that are aliases. Clone {output}."
            )
    _flat(call.convention.in_spec.children()[0], "arguments")
    _flat(call.out_spec, "result")


def _flat(spec: Any, what: str) -> None:
    """Refuse a pytree that is not one tuple or list of leaves."""
    if spec.type not in (tuple, list) or not all(child.is_leaf() for child in spec.children()):
        raise ExportRefused(
            f"aot_export_joint_simple takes a function whose {what} is one flat tuple or list, and this is {spec}"
        )
