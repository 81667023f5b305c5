"""Check that a form is consistent. This runs after every stage, in tests and with `debug=True`.

Each error names the stage that returned the form, so that a broken stage is found at once and not three stages later.
"""

from __future__ import annotations

from typing import Any

import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.forms import Executable, FlatCall, Form, GraphCall, JointCall, JointGraph, Split, TracedCall
from aotviz.torch_private import operators

RANDOM_STATE = "rng_state_output_"  # torch's name in a backward for the state with which it recomputes a random node
GENERATOR = "bwd_rng_state_"  # and for a generator, which the wrapper keeps in step with the forward's


class MalformedForm(AssertionError):
    """A stage returned a form that contradicts itself: a bug in that stage."""


def verify(form: Form, stage: str) -> None:
    """Raise MalformedForm, which names `stage`, unless `form` is consistent."""

    def demand(holds: bool, what: str) -> None:
        if not holds:
            raise MalformedForm(f"stage {stage!r} returned a malformed {type(form).__name__}: {what}")

    if isinstance(form, FlatCall):
        demand(len(form.descriptors) == len(form.args), "one descriptor per flat input")
        demand(len(form.duplicate_of) == len(form.args), "one duplicate_of entry per flat input")
        demand(len(form.counter_of) == len(form.args), "one counter_of entry per flat input")
    if isinstance(form, TracedCall):
        _traced(form, demand)
    if isinstance(form, GraphCall):
        _graph_call(form, demand)
    if isinstance(form, Split):
        _split(form, demand)
    if isinstance(form, Executable):
        demand(callable(form.function), "the program is callable")
        lines = form.source.count("\n") + 1
        demand(all(1 <= note.first <= note.last <= lines for note in form.notes), "notes are about lines of the source")


def _traced(form: TracedCall, demand: Any) -> None:
    meta = form.meta
    demand(len(meta.input_info) == len(form.graph_inputs), "one InputAliasInfo per graph input")
    demand(len(meta.output_info) == len(form.outputs), "one OutputAliasInfo per flat output")
    for index, info in enumerate(meta.output_info):
        if info.same_object_as is not None:
            demand(info.same_object_as < index, "an output repeats an earlier one")
        if info.view_chain is not None:
            demand(info.base_index is not None, "a view chain has a base")


def _graph_call(form: GraphCall, demand: Any) -> None:
    graph = form.graph_module.graph
    _functional(graph, demand)
    inputs, results = graphs.placeholders(graph), graphs.outputs(graph)
    primals = sum(plan.count for plan in form.forward.plans)
    tangents = sum(len(t.parts) or 1 for t in form.tangents) if isinstance(form, JointCall) else 0
    gradients = len(form.gradients) if isinstance(form, JointCall) else 0
    demand(len(inputs) == primals + tangents, "graph inputs are the call's inputs, then the tangents")
    demand(len(results) == len(form.slots) + gradients, "graph outputs are the slots, then the gradients")
    if isinstance(form, JointCall):
        wanted = [i for i, slot in enumerate(form.slots) if slot.differentiable]
        demand([t.slot for t in form.tangents] == wanted, "one tangent per differentiable slot, in order")
    if isinstance(form, JointGraph):
        demand(all("desc" in node.meta for node in inputs), "every input has a descriptor")


def _split(form: Split, demand: Any) -> None:
    forward, backward = form.forward_module.graph, form.backward_module.graph
    _functional(forward, demand)
    _functional(backward, demand)
    results = graphs.outputs(forward)
    demand(len(results) == len(form.slots) + len(form.saved), "forward outputs are the slots, then what is saved")
    gradients = len(graphs.outputs(backward))
    demand(gradients == len(form.gradients), "one gradient (or None) per graph input, or per inner tensor of one")
    known = {value.name for value in form.saved}
    others = ("tangents_", GENERATOR)
    kept = [node for node in graphs.placeholders(backward) if not node.name.startswith(others)]
    for node in kept:
        holds = node.name in known or node.name.startswith(RANDOM_STATE)
        demand(holds, f"{node.name} is saved or a tangent")
    demand(len(kept) == len(form.saved), "the backward takes what is saved, then the tangents")


def _functional(graph: fx.Graph, demand: Any) -> None:
    graph.lint()
    for node in graph.nodes:
        if node.op == "call_function" and operators.writes(node.target):
            demand(graphs.is_input_mutation(node), f"{node.name} writes {node.args[0]}, which is not an input")
        if node.op == "placeholder":
            demand("val" in node.meta, f"{node.name} has no value")
