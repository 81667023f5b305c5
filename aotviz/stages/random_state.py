"""Random numbers as a function of the generator's state, an input and result of the graph (SYSTEM.md C6).

With torch's setting `functionalize_rng_ops`, a call that draws on a GPU gets two more graph inputs, the seed and the
offset of the GPU's generator, and one more result, the offset afterwards. The offset is an input that the call mutates,
so the other stages need no special case; the wrapper advances the generator. The backward draws its own random numbers
when it runs, as in eager.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from aotviz.ir.descriptors import RandomStateInput
from aotviz.ir.forms import Emitter, Reason, TracedCall
from aotviz.ir.refusals import Refused
from aotviz.torch_private import random_numbers
from aotviz.tracing import philox
from aotviz.tracing.forward import ForwardTrace, WithMembers


@dataclass(frozen=True)
class PhiloxState:
    """The last two graph inputs are the generator's seed and offset."""

    def traced(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        def with_state(*inputs: Any) -> Any:
            *users, seed, offset = inputs
            with philox.counting(seed, offset) as drawn:
                result = fn(*users)
                after = drawn()
            with torch.no_grad():
                offset.copy_(after)
            return result if isinstance(result, WithMembers) else WithMembers(result, {}, {})

        return with_state

    def inputs(self, emit: Emitter, variables: list[str]) -> list[str]:
        seed, offset = emit.fresh("seed"), emit.fresh("offset")
        state = emit.bind("philox_state", random_numbers.state)
        emit.line(f"{seed}, {offset} = {state}()", "the graph draws its random numbers from this seed and offset")
        return [*variables, seed, offset]

    def after(self, emit: Emitter, _variables: list[str], rewritten: list[str]) -> None:
        move = emit.bind("set_offset", random_numbers.set_offset)
        emit.line(f"{move}({rewritten[-1]})", "advance the generator by what the graph has drawn")


def run(call: TracedCall) -> TracedCall:
    devices = philox.devices(call.forward.graph()) if isinstance(call.forward, ForwardTrace) else set()
    if not devices:
        return replace(call, evidence=(Reason("random numbers", "no random numbers are drawn on a GPU"),))
    if len(devices) > 1:
        listed = " and ".join(sorted(map(str, devices)))
        raise Refused("random numbers on several devices", listed)
    rewrite, program = PhiloxState(), call.forward.program
    forward = call.forward.rerun(
        fn=rewrite.traced(program.fn),
        args=[*program.args, *philox.fake_state(call.fake_mode)],
        decompositions=philox.decompositions(program.decompositions or {}),
    )
    return call.retraced(
        forward,
        graph_inputs=(*call.graph_inputs, RandomStateInput("seed"), RandomStateInput("offset")),
        static_inputs=call.meta.static_input_indices,
        rewrite=rewrite,
        evidence=(Reason("random numbers", f"a function of the seed and the offset of {devices.pop()}'s generator"),),
    )
