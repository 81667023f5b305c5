"""The gradients of a program become a call of their own, which can be differentiated (create_graph=True).

Eager prepares every backward under `create_graph=True` for this; a compiled program does so on request. Its backward is
traced with gradients (tracing/second_order.py) and passes the same stages as the program itself, under the name
"gradient of ...". The result has a backward too, so any order is possible. A program that is never differentiated twice
never gets here.
"""

from __future__ import annotations

import torch

from aotviz.ir.descriptors import PlainOutput
from aotviz.ir.forms import Convention, GradientRequest, JointCall, Reason, TracedCall
from aotviz.ir.view_and_mutation import ViewAndMutationMeta
from aotviz.tracing.second_order import GradientTrace


def run(request: GradientRequest) -> TracedCall:
    forward = GradientTrace(request)
    call = forward.outer
    descriptors = forward.descriptors
    by = [call.called(request.wanted)] if request.wanted is not None else list(map(str, call.graph_inputs))
    outputs = tuple(PlainOutput(index, f"gradient of {by[place]}") for index, place in enumerate(forward.positions))
    meta = ViewAndMutationMeta(
        input_info=forward.input_info,
        output_info=forward.output_info,
        intermediate_bases=(),
        grad_enabled=True,
        grad_enabled_after=None,
        static_input_indices=(),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        autocast=False,
    )
    evidence = [Reason(call.name, _why(request, call))]
    for output, info in zip(outputs, forward.output_info, strict=True):
        why = "it requires grad" if info.requires_grad else "it does not depend on an input that requires grad"
        evidence.append(Reason(str(output), why))
    return TracedCall(
        options=request.options,
        evidence=tuple(evidence),
        name=request.name,
        fn=call.fn,
        args=tuple(forward.args),
        descriptors=descriptors,
        duplicate_of=(None,) * len(descriptors),
        counter_of=tuple(range(len(descriptors))),
        fake_mode=call.fake_mode,
        root_module=None,
        is_graph=False,
        convention=Convention("boxed"),
        static_inputs=(),
        meta=meta,
        forward=forward,  # type: ignore[arg-type] # it plays the role of a Run
        graph_inputs=descriptors,
        outputs=outputs,
        out_spec=None,
        rewrites=(),
        user_input_info=meta,
        source=request,
    )


def _why(request: GradientRequest, call: JointCall) -> str:
    if request.wanted is not None:
        return (
            f"{call.called(request.wanted)} has a hook, and other results are computed from it: this is the "
            "backward of those results, up to the hook"
        )
    if not request.given:
        names = ", ".join(str(call.graph_inputs[i]) for i in request.at_hand.differentiated)
        return f"its gradient is differentiated again, with respect to {names}"
    cut = ", ".join(map(call.called, request.given))
    return f"{cut} has a hook, and other results are computed from it: this is the rest of the backward, after the hook"
