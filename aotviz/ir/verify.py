"""Check that a form is consistent. This runs after every stage in tests, and with `debug=True`.

Each error names the stage that returned the form, so that a broken stage is found at once and not three stages later.
What a form promises is listed below for each class, as a text and whether it holds. A test breaks each promise once,
and fails if a promise was added that it does not break.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

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
Promises = Iterator[tuple[str, bool]]


class MalformedForm(AssertionError):
    """A stage returned a form that contradicts itself: a bug in that stage."""


def verify(form: Form, stage: str) -> None:
    """Raise MalformedForm, which names `stage`, unless `form` is consistent."""
    malformed = f"stage {stage!r} returned a malformed {type(form).__name__}: "
    for kind, promises in PROMISES.items():
        for text, holds in promises(form) if isinstance(form, kind) else ():
            if not holds:
                raise MalformedForm(malformed + text)
    for graph in _graphs(form):
        graph.lint()
        for node in graph.nodes:
            for text, holds in of_node(node):
                if not holds:
                    raise MalformedForm(f"{malformed}{node.name}: {text}")


def _graphs(form: Form) -> Iterable[fx.Graph]:
    """The closed ones that the form has, see `_is_traced`."""
    is_closed = isinstance(form, Split | BackwardRequest) or (isinstance(form, GraphCall) and _is_traced(form))
    return form.graphs.values() if is_closed else ()


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


def of_node(node: fx.Node) -> Promises:
    writes = node.op == "call_function" and operators.writes(node.target)
    yield "it writes a tensor that is not an input", not writes or graphs.writes_an_input(node)
    yield "it is an input without a value", node.op != "placeholder" or "val" in node.meta


def _of_flat_call(f: FlatCall) -> Promises:
    yield "one descriptor per flat input", len(f.descriptors) == len(f.args)
    yield "one duplicate_of entry per flat input", len(f.duplicate_of) == len(f.args)
    earlier = (first is None or first < index for index, first in enumerate(f.duplicate_of))
    yield "a duplicate repeats an earlier input", all(earlier)
    yield "one counter_of entry per flat input", len(f.counter_of) == len(f.args)
    firsts = (first <= i and f.counter_of[first] == first for i, first in enumerate(f.counter_of))
    yield "a version counter is that of the first input that has it", all(firsts)
    yield "static inputs are flat inputs", {*f.static_inputs} <= {*range(len(f.args))}


def _of_traced_call(f: TracedCall) -> Promises:
    infos = f.meta.output_info
    yield "one InputAliasInfo per graph input", len(f.meta.input_info) == len(f.graph_inputs)
    yield "one OutputAliasInfo per flat output", len(infos) == len(f.outputs)
    earlier = (info.same_object_as is None or info.same_object_as < index for index, info in enumerate(infos))
    yield "an output repeats an earlier one", all(earlier)
    yield "a view chain has a base", all(info.view_chain is None or info.base_index is not None for info in infos)
    positions = {base.output for base in f.meta.intermediate_bases}
    yield "an intermediate base is returned for an output", positions <= {*range(len(f.outputs))}


def _of_graph_call(f: GraphCall) -> Promises:
    outer = f.outer
    known = all(_known_slot(outer, slot) for slot in outer.slots)
    yield "a slot is an input, an output or an intermediate base", known
    if _is_traced(f):
        inputs = len(_inputs(f.graph_module)) == _inputs_of_call(f)
        yield "graph inputs are the call's inputs, then the tangents", inputs
        gradients = len(f.gradients) if isinstance(f, JointCall) else 0
        results = len(f.slots) + gradients + len(_tokens(f, "output_tokens"))
        yield "graph outputs are the slots, then the gradients", _count(f.graph_module) == results


def _of_joint_call(f: JointCall) -> Promises:
    wanted = [i for i, slot in enumerate(f.slots) if slot.differentiable]
    yield "one tangent per differentiable slot, in order", [t.slot for t in f.tangents] == wanted
    yield "positions are those of slots, tangents and graph inputs", _positions(f)


def _of_joint_graph(f: JointGraph) -> Promises:
    described = not _is_traced(f) or all("desc" in node.meta for node in _inputs(f.graph_module))
    yield "every input has a descriptor", described


def _of_split(f: Split) -> Promises:
    saved, results = {value.name for value in f.saved}, len(f.slots) + len(f.saved)
    yield "forward outputs are the slots, then what is saved", _count(f.forward_module) == results
    gradients = _count(f.backward_module) == len(f.gradients)
    yield "one gradient (or None) per graph input, or per inner tensor of one", gradients
    others = ("tangents_", GENERATOR)
    taken = [node.name for node in _inputs(f.backward_module) if not node.name.startswith(others)]
    yield "each input of the backward is a saved value or a tangent", {*taken} <= saved
    yield "the backward takes what is saved, then the tangents", len(taken) == len(f.saved)
    symbols = f.saved[f.saved_tensor_count :]
    yield "saved tensors come before saved symbols", all(value.is_symbol for value in symbols)
    yield "what is kept are graph inputs", {*f.kept} <= {*range(len(_inputs(f.forward_module)))}
    sources = {name for _, names in f.unpacked.values() for name in names}
    nodes = {node.name for node in f.forward_module.graph.nodes}
    yield "what is unpacked is a node of the forward, from saved values", sources <= saved and {*f.unpacked} <= nodes
    yield "only saved tensors are donated", not any(value.donated for value in symbols)


def _of_exported(f: Exported) -> Promises:
    told = f.signature
    known = {*told.inputs_to_parameters, *told.inputs_to_buffers, *told.user_inputs, *told.input_tokens}
    inputs = {node.name for node in _inputs(f.graph_module)}
    yield "each graph input is a parameter, a buffer, a token or an input of the user", inputs == known


def _of_backward_request(f: BackwardRequest) -> Promises:
    yield "one value per input of the backward", len(f.values) == len(_inputs(f.backward_module))
    yield "what is donated is an input of the backward", {*f.donated} <= {*range(len(f.values))}


def _of_lowered_backward(f: LoweredBackward) -> Promises:
    yield "the backward is callable", callable(f.compiled)


def _of_executable(f: Executable) -> Promises:
    yield "the program is callable", callable(f.function)
    lines = f.source.count("\n") + 1
    inside = all(1 <= note.first <= note.last <= lines for note in f.notes)
    yield "notes are about lines of the source", inside


PROMISES: dict[type[Form], Callable[[Any], Promises]] = {
    FlatCall: _of_flat_call,
    TracedCall: _of_traced_call,
    GraphCall: _of_graph_call,
    JointCall: _of_joint_call,
    JointGraph: _of_joint_graph,
    Split: _of_split,
    Exported: _of_exported,
    BackwardRequest: _of_backward_request,
    LoweredBackward: _of_lowered_backward,
    Executable: _of_executable,
}
