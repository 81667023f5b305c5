"""Check that a form is consistent. This runs after every stage, in tests and with `debug=True`.

Each error names the stage that returned the form, so that a broken stage is found at once and not three stages later.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.forms import Executable, FlatCall, Form, GraphCall, JointCall, JointGraph, Split, TracedCall
from aotviz.ir.partition_functions import GENERATOR
from aotviz.torch_private import operators


class MalformedForm(AssertionError):
    """A stage returned a form that contradicts itself: a bug in that stage."""


def verify(form: Form, stage: str) -> None:
    """Raise MalformedForm, which names `stage`, unless `form` is consistent."""
    for holds, what in _checks(form):
        if not holds:
            raise MalformedForm(f"stage {stage!r} returned a malformed {type(form).__name__}: {what}")


Checks = Iterator[tuple[bool, str]]  # (whether it holds, what is demanded)


def _checks(form: Form) -> Checks:
    if isinstance(form, FlatCall):
        yield len(form.descriptors) == len(form.args), "one descriptor per flat input"
        yield len(form.duplicate_of) == len(form.args), "one duplicate_of entry per flat input"
        yield len(form.counter_of) == len(form.args), "one counter_of entry per flat input"
    if isinstance(form, TracedCall):
        yield len(form.meta.input_info) == len(form.graph_inputs), "one InputAliasInfo per graph input"
        yield len(form.meta.output_info) == len(form.outputs), "one OutputAliasInfo per flat output"
        for index, info in enumerate(form.meta.output_info):
            yield info.same_object_as is None or info.same_object_as < index, "an output repeats an earlier one"
            yield info.view_chain is None or info.base_index is not None, "a view chain has a base"
    if isinstance(form, GraphCall):
        yield from _graph_call(form)
    if isinstance(form, Split):
        yield from _split(form)
    if isinstance(form, Executable):
        yield callable(form.function), "the program is callable"
        lines = form.source.count("\n") + 1
        yield all(1 <= note.first <= note.last <= lines for note in form.notes), "notes are about lines of the source"


def _graph_call(form: GraphCall) -> Checks:
    graph = form.graph_module.graph
    yield from _functional(graph)
    inputs, results = graphs.placeholders(graph), graphs.outputs(graph)
    primals = sum(plan.count for plan in form.forward.plans)
    tangents = sum(len(t.parts) or 1 for t in form.tangents) if isinstance(form, JointCall) else 0
    gradients = len(form.gradients) if isinstance(form, JointCall) else 0
    yield len(inputs) == primals + tangents, "graph inputs are the call's inputs, then the tangents"
    yield len(results) == len(form.slots) + gradients, "graph outputs are the slots, then the gradients"
    if isinstance(form, JointCall):
        wanted = [i for i, slot in enumerate(form.slots) if slot.differentiable]
        yield [t.slot for t in form.tangents] == wanted, "one tangent per differentiable slot, in order"
    if isinstance(form, JointGraph):
        yield all("desc" in node.meta for node in inputs), "every input has a descriptor"


def _split(form: Split) -> Checks:
    forward, backward = form.forward_module.graph, form.backward_module.graph
    yield from _functional(forward)
    yield from _functional(backward)
    saved = len(form.saved)
    yield len(graphs.outputs(forward)) == len(form.slots) + saved, "forward outputs are the slots, then what is saved"
    gradients = len(graphs.outputs(backward))
    yield gradients == len(form.gradients), "one gradient (or None) per graph input, or per inner tensor of one"
    known = {value.name for value in form.saved}
    others = ("tangents_", GENERATOR)
    kept = [node for node in graphs.placeholders(backward) if not node.name.startswith(others)]
    for node in kept:
        yield node.name in known, f"{node.name} is saved or a tangent"
    yield len(kept) == saved, "the backward takes what is saved, then the tangents"


def _functional(graph: fx.Graph) -> Checks:
    graph.lint()
    for node in graph.nodes:
        if node.op == "call_function" and operators.writes(node.target):
            yield graphs.is_input_mutation(node), f"{node.name} writes {node.args[0]}, which is not an input"
        if node.op == "placeholder":
            yield "val" in node.meta, f"{node.name} has no value"
