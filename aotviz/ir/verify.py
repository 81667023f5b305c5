"""Check that a form is consistent. This runs after every stage in tests, and with `debug=True`.

Each error names the stage that returned the form, so that a broken stage is found at once and not three stages later.
What a form promises is listed below. A test breaks each promise once, and fails if a promise was added that it does not
break.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.forms import (
    BackwardRequest,
    Executable,
    Exported,
    FlatCall,
    Form,
    GraphCall,
    JointCall,
    JointGraph,
    LoweredBackward,
    Slot,
    Split,
    TracedCall,
)
from aotviz.ir.partition_functions import GENERATOR
from aotviz.torch_private import operators

ALWAYS = os.environ.get("AOTVIZ_VERIFY") == "1"  # set by our tests


Promising = TypeVar("Promising")


class MalformedForm(AssertionError):
    """A stage returned a form that contradicts itself: a bug in that stage."""


def verify(form: Form, stage: str) -> None:
    """Raise MalformedForm, which names `stage`, unless `form` is consistent."""
    for promise in PROMISES:
        if isinstance(form, promise.form) and not promise.holds(form):
            raise MalformedForm(f"stage {stage!r} returned a malformed {type(form).__name__}: {promise.text}")
    for graph in _graphs(form):
        graph.lint()
        for node in graph.nodes:
            for promise in NODE_PROMISES:
                if not promise.holds(node):
                    kind = type(form).__name__
                    raise MalformedForm(f"stage {stage!r} returned a malformed {kind}: {node.name}: {promise.text}")


class Promise:
    """What each form of a class promises, or each node."""

    def __init__(self, form: type[Promising], text: str, holds: Callable[[Promising], bool]) -> None:
        self.form: type[Any] = form
        self.text = text
        self.holds: Callable[[Any], bool] = holds


def _graphs(form: Form) -> Iterator[fx.Graph]:
    if isinstance(form, GraphCall) and _is_traced(form):
        yield form.graph_module.graph
    if isinstance(form, Split | BackwardRequest):
        yield form.backward_module.graph
    if isinstance(form, Split):
        yield form.forward_module.graph


def _is_traced(form: GraphCall) -> bool:
    """A program from the cache has no trace, and a Split none of its joint graph."""
    return hasattr(form.forward, "plans")


def _inputs(module: fx.GraphModule) -> list[fx.Node]:
    return graphs.placeholders(module.graph)


def _count(module: fx.GraphModule) -> int:
    return len(graphs.outputs(module.graph))


def _inputs_of_call(form: GraphCall) -> int:
    tangents = sum(len(t.parts) or 1 for t in form.tangents) if isinstance(form, JointCall) else 0
    return sum(plan.count for plan in form.forward.plans) + tangents + len(_tokens(form, "input_tokens"))


def _tokens(form: GraphCall, kind: str) -> tuple[str, ...]:
    """Effect tokens, which only the graph of an export takes and returns."""
    return getattr(form.signature, kind) if isinstance(form, Exported) else ()


def _kept(form: Split) -> list[str]:
    others = ("tangents_", GENERATOR)
    return [node.name for node in _inputs(form.backward_module) if not node.name.startswith(others)]


def _gradients(form: GraphCall) -> int:
    return len(form.gradients) if isinstance(form, JointCall) else 0


def _known_slot(form: GraphCall, slot: Slot) -> bool:
    inputs, outputs = len(form.graph_inputs), len(form.outputs)
    counts = {"output": outputs, "gradient": inputs, "base": len(form.meta.intermediate_bases)}
    return 0 <= slot.index < counts.get(slot.kind, inputs)


def _positions(form: JointCall) -> bool:
    """Whether all that a joint call says by a position is about one of its slots, tangents and inputs, as wholes."""
    form = form.outer
    inputs = (*form.reshaped, *form.kept_and_written, *(position for position, _ in form.late_writes))
    slots = {slot for heard in form.hooked_results for slot in heard.slots}
    tangents = {position for group in form.together for position in group}
    return (
        set(inputs) <= set(range(len(form.graph_inputs)))
        and slots <= set(range(len(form.slots)))
        and tangents <= set(range(len(form.tangents)))
    )


NODE_PROMISES = (
    Promise(
        fx.Node,
        "it writes a tensor that is not an input",
        lambda node: node.op != "call_function" or not operators.writes(node.target) or graphs.writes_an_input(node),
    ),
    Promise(fx.Node, "it is an input without a value", lambda node: node.op != "placeholder" or "val" in node.meta),
)
PROMISES = (
    Promise(FlatCall, "one descriptor per flat input", lambda f: len(f.descriptors) == len(f.args)),
    Promise(FlatCall, "one duplicate_of entry per flat input", lambda f: len(f.duplicate_of) == len(f.args)),
    Promise(
        FlatCall,
        "a duplicate repeats an earlier input",
        lambda f: all(first is None or first < index for index, first in enumerate(f.duplicate_of)),
    ),
    Promise(FlatCall, "one counter_of entry per flat input", lambda f: len(f.counter_of) == len(f.args)),
    Promise(
        FlatCall,
        "a version counter is that of the first input that has it",
        lambda f: all(first <= i and f.counter_of[first] == first for i, first in enumerate(f.counter_of)),
    ),
    Promise(FlatCall, "static inputs are flat inputs", lambda f: {*f.static_inputs} <= {*range(len(f.args))}),
    Promise(TracedCall, "one InputAliasInfo per graph input", lambda f: len(f.meta.input_info) == len(f.graph_inputs)),
    Promise(TracedCall, "one OutputAliasInfo per flat output", lambda f: len(f.meta.output_info) == len(f.outputs)),
    Promise(
        TracedCall,
        "an output repeats an earlier one",
        lambda f: all(
            info.same_object_as is None or info.same_object_as < index for index, info in enumerate(f.meta.output_info)
        ),
    ),
    Promise(
        TracedCall,
        "a view chain has a base",
        lambda f: all(info.view_chain is None or info.base_index is not None for info in f.meta.output_info),
    ),
    Promise(
        TracedCall,
        "an intermediate base is returned for an output",
        lambda f: all(0 <= base.output < len(f.outputs) for base in f.meta.intermediate_bases),
    ),
    Promise(
        GraphCall,
        "a slot is an input, an output or an intermediate base",
        lambda f: all(_known_slot(f.outer, slot) for slot in f.outer.slots),
    ),
    Promise(
        GraphCall,
        "graph inputs are the call's inputs, then the tangents",
        lambda f: not _is_traced(f) or len(_inputs(f.graph_module)) == _inputs_of_call(f),
    ),
    Promise(
        GraphCall,
        "graph outputs are the slots, then the gradients",
        lambda f: (
            not _is_traced(f)
            or _count(f.graph_module) == len(f.slots) + _gradients(f) + len(_tokens(f, "output_tokens"))
        ),
    ),
    Promise(
        JointCall,
        "one tangent per differentiable slot, in order",
        lambda f: [t.slot for t in f.tangents] == [i for i, slot in enumerate(f.slots) if slot.differentiable],
    ),
    Promise(JointCall, "positions are those of slots, tangents and graph inputs", _positions),
    Promise(
        JointGraph,
        "every input has a descriptor",
        lambda f: not _is_traced(f) or all("desc" in node.meta for node in _inputs(f.graph_module)),
    ),
    Promise(
        Split,
        "forward outputs are the slots, then what is saved",
        lambda f: _count(f.forward_module) == len(f.slots) + len(f.saved),
    ),
    Promise(
        Split,
        "one gradient (or None) per graph input, or per inner tensor of one",
        lambda f: _count(f.backward_module) == len(f.gradients),
    ),
    Promise(
        Split,
        "each input of the backward is a saved value or a tangent",
        lambda f: {*_kept(f)} <= {value.name for value in f.saved},
    ),
    Promise(Split, "the backward takes what is saved, then the tangents", lambda f: len(_kept(f)) == len(f.saved)),
    Promise(
        Split,
        "saved tensors come before saved symbols",
        lambda f: all(value.is_symbol for value in f.saved[f.saved_tensor_count :]),
    ),
    Promise(Split, "what is kept are graph inputs", lambda f: {*f.kept} <= {*range(len(_inputs(f.forward_module)))}),
    Promise(
        Split,
        "what is unpacked is a node of the forward, from saved values",
        lambda f: (
            {name for _, names in f.unpacked.values() for name in names} <= {value.name for value in f.saved}
            and {*f.unpacked} <= {node.name for node in f.forward_module.graph.nodes}
        ),
    ),
    Promise(
        Split,
        "only saved tensors are donated",
        lambda f: not any(value.donated and value.is_symbol for value in f.saved),
    ),
    Promise(
        Exported,
        "each graph input is a parameter, a buffer, a token or an input of the user",
        lambda f: (
            {node.name for node in _inputs(f.graph_module)}
            == {
                *f.signature.inputs_to_parameters,
                *f.signature.inputs_to_buffers,
                *f.signature.user_inputs,
                *f.signature.input_tokens,
            }
        ),
    ),
    Promise(
        BackwardRequest,
        "one value per input of the backward",
        lambda f: len(f.values) == len(_inputs(f.backward_module)),
    ),
    Promise(
        BackwardRequest,
        "what is donated is an input of the backward",
        lambda f: all(0 <= position < len(f.values) for position in f.donated),
    ),
    Promise(LoweredBackward, "the backward is callable", lambda f: callable(f.compiled)),
    Promise(Executable, "the program is callable", lambda f: callable(f.function)),
    Promise(
        Executable,
        "notes are about lines of the source",
        lambda f: all(1 <= note.first <= note.last <= f.source.count("\n") + 1 for note in f.notes),
    ),
)
