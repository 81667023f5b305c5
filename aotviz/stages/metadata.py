"""Run the forward once, functionalised, and read the facts (docs/design/system.md B3, A1-A4).

The run is also the first half of the graph: it stays open, and the joint stage continues it.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import torch

from aotviz.ir import effects
from aotviz.ir.descriptors import PlainOutput
from aotviz.ir.forms import FlatCall, Reason, TracedCall
from aotviz.ir.refusals import Refused, refuse
from aotviz.ir.storages import has_no_root
from aotviz.ir.view_and_mutation import MutationType, OutputType, ViewAndMutationMeta
from aotviz.torch_private.context import autocast_enabled
from aotviz.tracing import forward as tracing
from aotviz.tracing import rules
from aotviz.tracing.events import Hooked
from aotviz.tracing.forward import Run
from aotviz.tracing.inputs_and_bases import InputsAndBases
from aotviz.tracing.program import Program


def run(call: FlatCall) -> TracedCall:
    program = Program(
        fn=call.fn,
        args=call.args,
        names=tuple(d.name for d in call.descriptors),
        fake_mode=call.fake_mode,
        decompositions=None if call.options.selective_decompose else call.options.decompositions,
        root_module=call.root_module,
        is_graph=call.is_graph,
        keep_input_mutations=call.options.keep_inference_input_mutations,
    )
    forward = _first_run(call, program)
    graded = torch.is_grad_enabled()
    moved = frozenset(
        i
        for i, info in enumerate(forward.input_info)
        if info.requires_grad and (graded or not info.turned_off) and forward.wants_view(i)
        if info.mutates_metadata and not (info.mutates_data or info.mutates_storage_metadata)
    )
    forward.describe(call.descriptors)
    refuse(rules.OF_VIEWS_PASSED, forward)
    known = forward.program.known
    if moved - known.as_views:  # see Note [Inputs changed in place]
        known = replace(known, as_views=moved | known.as_views)
        forward = forward.rerun(known=known)
        known = forward.program.known
    asking = known.no_grad_views
    if graded:
        bases = InputsAndBases(forward, call.duplicate_of, call.counter_of)
        forward.describe(call.descriptors)
        refuse(rules.OF_CALL, bases)
        asking = {**asking, **bases.lose_views()}
        forward = replace(forward, turned=bases.turned())
    no_grad_views = {i: others for i, others in asking.items() if has_no_root(call.args[i])}
    if no_grad_views != known.no_grad_views:
        forward = forward.rerun(known=replace(known, no_grad_views=no_grad_views))
    infos = enumerate(forward.input_info)
    asks = tuple(replace(info, asks_for_root=i in asking or info.history_ends) for i, info in infos)
    forward = replace(forward, input_info=asks)
    forward.describe(call.descriptors)
    meta = ViewAndMutationMeta(
        **forward.found(),
        grad_enabled=graded,
        grad_enabled_after=forward.grad_enabled_after,
        static_input_indices=call.static_inputs,
        deterministic=torch.are_deterministic_algorithms_enabled(),
        autocast=autocast_enabled(),
    )
    outputs = tuple(PlainOutput(index, name) for index, name in enumerate(forward.output_names))
    return call.then(
        TracedCall,
        evidence=_evidence(call, forward, meta, outputs),
        meta=meta,
        forward=forward,
        graph_inputs=call.descriptors,
        outputs=outputs,
        out_spec=forward.out_spec,
        rewrites=(),
        user_input_info=meta,
        source=call,
    )


def _first_run(call: FlatCall, program: Program) -> Run:
    """Trace each duplicate as a separate tensor, so that the program is valid for other calls too. If that fails,
    because the function relies on both having moved, trace them as one tensor.

    Before that, if autograd refuses to resize, write or use a view because it requires grad: one that is taken under
    no_grad does not, if the argument is itself a view of a tensor that does not; see
    tracing/views_of_no_grad_bases.py."""
    try:
        return tracing.run(program)
    except (RuntimeError, IndexError, ValueError) as error:
        tensors = ((i, one) for i, one in enumerate(call.args) if isinstance(one, torch.Tensor))
        bare = {i: () for i, one in tensors if one.requires_grad and has_no_root(one)}
        if bare and not program.known.no_grad_views and _requires_grad(error):
            with contextlib.suppress(RuntimeError, IndexError, ValueError):
                return _first_run(call, replace(program, known=replace(program.known, no_grad_views=bare)))
        if all(same is None for same in call.duplicate_of):
            raise

    def merged(*flat: Any) -> Any:
        pairs = zip(flat, call.duplicate_of, strict=True)
        return program.fn(*[value if first is None else flat[first] for value, first in pairs])

    return tracing.run(replace(program, fn=merged))


def _requires_grad(error: Exception) -> bool:
    """Whether autograd raised this because a view requires grad."""
    stale = isinstance(error, Refused) and error.reason == "stale view"
    raised = ("cannot resize variables that require grad", "is a view and is being modified inplace")
    return stale or any(text in str(error) for text in raised)


def _evidence(
    call: FlatCall, forward: Run, meta: ViewAndMutationMeta, outputs: tuple[PlainOutput, ...]
) -> tuple[Reason, ...]:
    reasons: list[Reason] = []
    if forward.program.known.is_compiling:
        why = "it is True: otherwise the function asks for the value of a tensor"
        reasons.append(Reason("torch.compiler.is_compiling()", why))
    for descriptor, info in zip(call.descriptors, meta.input_info, strict=True):
        if info.mutation_type is MutationType.NOT_MUTATED:
            continue
        said = (
            ("its data is written", info.mutates_data),
            ("its storage is replaced by set_", info.mutates_storage_metadata),
            ("its storage is resized", info.resizes_storage),
            ("its shape or strides change", info.mutates_metadata and not info.mutates_storage_metadata),
        )
        what = " and ".join(text for text, holds in said if holds)
        how = " under no_grad" if info.mutations_under_no_grad_or_inference_mode else ""
        how = " through a detached alias" if info.mutations_hidden_from_autograd and info.mutates_data else how
        where = info.mutation_type.value if info.mutates_data else "the wrapper does the same to it after the graph ran"
        reasons.append(Reason(descriptor.name, f"{what}{how}; {where}"))
    for output, fact in zip(outputs, meta.output_info, strict=True):
        if fact.same_object_as is not None:
            reasons.append(Reason(output.name, f"it is the same object as {outputs[fact.same_object_as].name}"))
        elif fact.output_type is not OutputType.non_alias:
            reasons.append(Reason(output.name, f"it is {fact.output_type.value}"))
    for operator in effects.operators(forward.open.graph):
        reasons.append(Reason(operator, "it has side effects: a token keeps its calls, and their order"))
    for event in forward.ledger.events:
        if isinstance(event, Hooked) and event.why:
            why = f"Python calls it in each backward, so the backward is split there: {event.why}"
            reasons.append(Reason("gradient hook", why))
    if meta.grad_enabled_after is not None:
        reasons.append(Reason("grad mode", f"the call leaves it {'on' if meta.grad_enabled_after else 'off'}"))
    return tuple(reasons)
