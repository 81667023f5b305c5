"""Close the trace into a graph: with the gradients after the forward, or without (docs/design/system.md D1).

`run` decides which results of the forward receive a tangent and which inputs a gradient, and continues the open trace
with the backward. `close` is its counterpart for a call that needs no gradients. In both, the graph's first outputs are
the slots: mutated inputs, user outputs that cannot be rebuilt from something else, intermediate bases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from aotviz.ir import autograd_graph, descriptors, graphs
from aotviz.ir.forms import Gradient, GraphCall, HookedResult, JointCall, Reason, Slot, TracedCall
from aotviz.ir.refusals import refuse
from aotviz.ir.view_and_mutation import Move, OutputType, Ref
from aotviz.ir.wrapper_subclasses import is_subclass, parts
from aotviz.torch_private import autograd_nodes, operators
from aotviz.torch_private.tensors import base_of
from aotviz.tracing import functional, kept_by_name, rules
from aotviz.tracing.after_the_graph import GraphAndRest
from aotviz.tracing.forward import Run
from aotviz.tracing.late_writes import Backward


def run(call: TracedCall) -> JointCall:
    """TracedCall -> JointCall: trace the gradients."""
    try:
        return _differentiated(call, call.forward.take())
    except RuntimeError as error:  # see Note [Differentiated inside] in tracing/program.py
        if "backward through the graph a second time" not in str(error) or call.forward.program.known.retains_graph:
            raise
    return _differentiated(call, call.forward.take(replace(call.forward.program.known, retains_graph=True)))


def _differentiated(call: TracedCall, forward: Run) -> JointCall:
    slots = _slots(call, forward)
    wanted = [(i, slot) for i, slot in enumerate(slots) if slot.differentiable]
    outputs = [forward.value(slot.kind, slot.index) for _, slot in wanted]
    nodes = _slot_nodes(forward, slots)
    with forward.open.active("is_forward"):
        passed = [functional.nodes_below(output) for output in outputs]
    heard = _heard(call, forward, wanted, outputs, passed)
    count = len(forward.edges)
    edges, autocast = [*forward.edges, *(edge for *_, edge in forward.part_edges)], call.options.backward_autocast
    history = [*map(functional.grad_fn, outputs), *dict.fromkeys(node for nodes in passed for node in nodes)]
    meets_subclass = isinstance(forward, Run) and forward.ledger.meets_subclass
    kept = kept_by_name.found(forward.open, history, meets_subclass)
    kept_owners = set(map(graphs.owner, kept))
    written = {i: forward.args[i] for i in call.meta.mutated_input_indices}
    bases = {i for i in written if len(call.counters(i)) > 1}
    unseen = kept_by_name.saved_unseen(forward.open, history, _checked(forward, written), bases)
    passed_on = [*(one.ref for one in heard), *_given_another_grad_fn(call)]
    refuse(rules.OF_GRAPH_AND_REST, GraphAndRest(replace(call, forward=forward), history, written, passed_on))
    differentiable = {number: output for (number, _), output in zip(wanted, outputs, strict=True)}
    tangents, values, gradients, late = forward.differentiated(differentiable, edges, autocast)
    refuse(rules.OF_BACKWARD, Backward(call.graph_inputs, forward.part_edges, values[count:], len(tangents), late))
    values, gradients = values[:count], gradients[:count]
    for (_, slot), tangent in zip(wanted, tangents, strict=True):
        for part in parts(tangent.value):
            forward.open.node_of(part).meta["desc"] = descriptors.TangentInput(slot.descriptor)
    if kept:
        kept_by_name.hold_readers(forward.open.graph, kept, nodes)
    mutations = ((slot.index, node) for slot, node in zip(slots, nodes, strict=True) if slot.kind == "mutation")
    by_name = {
        i
        for i, node in mutations
        if graphs.owner(node) in kept_owners and not kept_by_name.stands_for(node, forward.values_before[i])
    }
    module = forward.closed([*_without_constants(forward, slots, nodes), *gradients])
    return call.then(
        JointCall,
        forward=forward,
        evidence=_evidence(call, slots, gradients),
        graph_module=module,
        slots=slots,
        tangents=tangents,
        hooked_results=heard,
        together=_together(outputs, passed),
        kept_and_written=tuple(sorted(unseen | by_name)),
        late_writes=late,
        reshaped=forward.reshaped_leaves(values) if isinstance(forward, Run) else (),
        gradients=tuple(
            Gradient(None if value is None else descriptors.GradientOutput(descriptor), value)
            for descriptor, value in zip(call.graph_inputs, values, strict=True)
        ),
    )


def _given_another_grad_fn(call: TracedCall) -> Iterator[Ref]:
    """Views whose `grad_fn` autograd makes again after the call, since another input is written that has the same
    version counter. In eager, the write came before they were used."""
    written = set(call.meta.mutated_input_indices)
    counters = {counter for i in written for counter in call.counters(i)}
    for i, info in enumerate(call.meta.input_info):
        if info.requires_grad and not info.is_leaf and i not in written and counters & call.counters(i):
            yield Ref("input", i)


def _checked(forward: Run, written: dict[int, Any]) -> dict[int, Any]:
    """The inputs that autograd may have saved through an alias with another version counter."""
    may = isinstance(forward, Run) and (forward.ledger.meets_subclass or forward.ledger.read_data)
    return dict(enumerate(forward.args)) if may else written


def _heard(
    call: TracedCall, forward: Run, wanted: list[tuple[int, Slot]], outputs: list[Any], passed: list[set[Any]]
) -> tuple[HookedResult, ...]:
    """Tensors on which the caller can register a hook, while gradients of other results flow through them in the graph.

    Not among them is an input that keeps its `grad_fn`, because all its gradients leave the graph. Among them are
    inputs changed by a metadata op in grad mode, inputs that become views of a synthetic base, inputs that are written
    (for second derivatives), and results whose number of dimensions changed after autograd created their `grad_fn`: in
    eager, their gradients have the earlier shape.
    """
    found = [(Ref("member", p), m) for p, m in forward.members.items()]
    moves = {step.source for step in call.meta.replay if isinstance(step, Move) and step.grad_mode}
    for i in call.meta.mutated_input_indices:
        seen = not call.meta.input_info[i].unseen or Ref("input", i) in moves
        if seen or base_of(forward.values_before[i]) is not None:
            found.append((Ref("input", i), forward.args[i]))
    found += [
        (Ref("output", i), value)
        for i, (value, info) in enumerate(zip(forward.outputs, call.meta.output_info, strict=True))
        if info.requires_grad and info.same_object_as is None and info.output_type is not OutputType.is_input
    ]
    moved = {id(v): i for (i, slot), v in zip(wanted, outputs, strict=True) if slot.kind == "output" and _moved(v)}
    if not outputs:
        return ()
    if len(outputs) == 1 and not moved:
        found = [(ref, value) for ref, value in found if value is not outputs[0] or ref.kind == "input"]
    with forward.open.active("is_forward"):
        heard = []
        for ref, value in found:
            node = functional.grad_fn(value) if isinstance(value, torch.Tensor) and value.requires_grad else None
            through = tuple(position for (position, _), nodes in zip(wanted, passed, strict=True) if node in nodes)
            through += (moved[id(value)],) if id(value) in moved else ()
            if node is not None and (through or ref.kind == "input"):
                heard.append(HookedResult(ref, through))
    return tuple(heard)


def _together(outputs: list[Any], passed: list[set[Any]]) -> tuple[tuple[int, ...], ...]:
    """The tangents, by number, that meet in the backward of one custom autograd.Function.

    If only some of them are present, the gradients depend on the user's code there.
    """
    below = [{functional.grad_fn(one), *nodes} for one, nodes in zip(outputs, passed, strict=True)]
    nodes = dict.fromkeys(n for nodes in below for n in nodes if autograd_graph.from_custom_function(n))
    custom = [node for node in nodes if len(autograd_nodes.results(node)) > 1]
    groups = (tuple(i for i, nodes in enumerate(below) if node in nodes) for node in custom)
    return tuple(dict.fromkeys(group for group in groups if len(group) > 1))


def _moved(result: Any) -> bool:
    """Whether a result's gradient would have another number of dimensions in eager: its `grad_fn` was made before its
    shape changed unseen."""
    node = None if is_subclass(result) else functional.grad_fn(result)
    return node is not None and len(autograd_nodes.results(node)[result.output_nr].shape) != result.dim()


def close(call: TracedCall) -> GraphCall:
    """TracedCall -> GraphCall, with nothing to differentiate."""
    forward = call.forward.take()
    slots = _slots(call, forward)
    module = forward.closed(_slot_nodes(forward, slots))
    if not torch.is_grad_enabled():
        why = "grad mode is off"
    elif any(info.requires_grad for info in call.meta.input_info):
        why = "no output that leaves the graph depends on an input that requires grad"
    else:
        why = "no input requires grad"
    evidence = (Reason("backward", why),)
    return call.then(GraphCall, evidence=evidence, forward=forward, graph_module=module, slots=slots)


def _slots(call: TracedCall, forward: Run) -> tuple[Slot, ...]:
    """The results of the forward graph, in order."""
    slots: list[Slot] = []
    meta = call.meta
    for i, info in enumerate(meta.input_info):
        after = info.layout_after
        if info.written_back or info.mutates_storage_metadata or (after is not None and not after.concrete):
            seen = info.mutates_data and info.requires_grad_after and not info.unseen
            differentiable = call.needs_gradients and i in meta.mutated_input_indices and seen
            descriptor: descriptors.OutputDescriptor = descriptors.MutatedInputOutput(call.graph_inputs[i])
            slots.append(Slot("mutation", i, descriptor, differentiable, not info.mutates_data, None))
        if info.leaves_data:
            slots.append(Slot("left", i, descriptors.LeftBehindOutput(call.graph_inputs[i]), False, True, None))
    for i, fact in enumerate(meta.output_info):
        if fact.in_graph:
            hidden = not fact.output_type.owns_memory
            differentiable = call.needs_gradients and fact.has_tangent
            version = None if hidden else _version(forward.outputs[i], meta.replayed_writes[Ref("output", i)])
            inference = _inference(forward.outputs[i])
            slots.append(Slot("output", i, call.outputs[i], differentiable, hidden, version, inference))
    with_views = {step.source for step in meta.replay}  # only the values of other bases are copied
    for i, base in enumerate(meta.intermediate_bases):
        differentiable = call.needs_gradients and base.requires_grad
        ref = Ref("base", i)
        version = _version(forward.value("base", i), meta.replayed_writes[ref]) if ref in with_views else None
        descriptor = descriptors.IntermediateBaseOutput(call.outputs[base.output])
        slots.append(Slot("base", i, descriptor, differentiable, False, version, _inference(forward.value("base", i))))
    return tuple(slots)


def _version(value: Any, replayed: int) -> int | None:
    """The version of a result before the wrapper repeats the user's statements about it and its views. No
    inference tensor has a version."""
    counts = functional.is_functional(value) and not value.is_inference()
    return operators.version(value) - replayed if counts else None


def _inference(value: Any) -> bool:
    made = isinstance(value, torch.Tensor) and value.is_inference()
    return made and not torch.is_inference_mode_enabled()


def _slot_nodes(forward: Run, slots: tuple[Slot, ...]) -> list[Any]:
    return forward.open.nodes_of([forward.value(slot.kind, slot.index) for slot in slots])


def _without_constants(forward: Run, slots: tuple[Slot, ...], nodes: list[Any]) -> list[Any]:
    """The nodes, without those of sizes of a subclass that the backward's trace has made constants."""
    of_now = _slot_nodes(forward, slots) if any(isinstance(node, tuple) for node in nodes) else nodes
    return [
        now if isinstance(node, tuple) and len(now) < len(node) else node
        for node, now in zip(nodes, of_now, strict=True)
    ]


def _evidence(call: TracedCall, slots: tuple[Slot, ...], gradients: tuple[Any, ...]) -> tuple[Reason, ...]:
    why = "it requires grad, but no output depends on it: its gradient is None"
    inputs = zip(call.graph_inputs, call.meta.input_info, gradients, strict=True)
    return (
        *(Reason(str(slot.descriptor), "it receives a tangent") for slot in slots if slot.differentiable),
        *(Reason(str(d), why) for d, info, gradient in inputs if info.requires_grad and gradient is None),
    )
