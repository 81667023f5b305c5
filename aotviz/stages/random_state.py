"""Random numbers as a function of the generator's state, an input and result of the graph (docs/design/system.md C6).

With torch's setting `functionalize_rng_ops`, a call that draws on a GPU gets two more graph inputs, the seed and the
offset of the GPU's generator, and one more result, the offset afterwards. The offset is an input that the call mutates,
so the other stages need no special case; the wrapper advances the generator. The backward draws its own random numbers
when it runs, as in eager.

Random operators of the forward are decomposed to `rngprims.philox_rand(size, seed, offset)`. It is pure, so the
backward can recompute it with the same result. The decompositions and the counting of the offset are torch's. Operators
on devices without such a generator, such as a CPU, or with a generator of the user's, stay as they are, and torch
refuses them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir.descriptors import RandomStateInput
from aotviz.ir.forms import Emitter, Reason, TracedCall
from aotviz.ir.refusals import Refused
from aotviz.torch_private import operators, pytree, random_numbers
from aotviz.torch_private.random_numbers import rng_decompositions
from aotviz.torch_private.tracers import swapped
from aotviz.tracing import functional
from aotviz.tracing.forward import Run
from aotviz.tracing.program import WithMembers

KINDS = {"cuda"}  # device types with a Philox generator
_tracing = SimpleNamespace(is_on=False)  # whether such a forward is being traced; a backward draws as eager does


def needed(call: TracedCall) -> bool:
    return call.options.functionalize_rng_ops


@dataclass(frozen=True)
class PhiloxState:
    """The last two graph inputs are the generator's seed and offset."""

    def traced(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        def with_state(*inputs: Any) -> Any:
            *users, seed, offset = inputs
            counting = random_numbers.counting(functional.inner(seed), functional.inner(offset))
            with counting as drawn, swapped(_tracing, is_on=True):
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
    devices = _devices(call.forward.graph()) if isinstance(call.forward, Run) else set()
    if not devices:
        return replace(call, evidence=(Reason("random numbers", "no random numbers are drawn on a GPU"),))
    if len(devices) > 1:
        listed = " and ".join(sorted(map(str, devices)))
        raise Refused("random numbers on several devices", listed)
    rewrite, program = PhiloxState(), call.forward.program
    counted = {operator: _counted(function) for operator, function in rng_decompositions.items()}
    with call.fake_mode:
        state = torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.int64)
    forward = call.forward.rerun(
        fn=rewrite.traced(program.fn),
        args=[*program.args, *state],
        decompositions={**counted, **(program.decompositions or {})},
    )
    return call.retraced(
        forward,
        graph_inputs=(*call.graph_inputs, RandomStateInput("seed"), RandomStateInput("offset")),
        static_inputs=call.meta.static_input_indices,
        rewrite=rewrite,
        evidence=(Reason("random numbers", f"a function of the seed and the offset of {devices.pop()}'s generator"),),
    )


def _devices(graph: fx.Graph) -> set[torch.device]:
    """The devices on which a graph draws random numbers by a Philox generator."""
    drawn = [node for node in graph.nodes if operators.is_random(node.target) and not node.kwargs.get("generator")]
    values = [value for node in drawn for value in pytree.tree_leaves(node.meta.get("val"))]
    return {value.device for value in values if isinstance(value, torch.Tensor) and value.device.type in KINDS}


def _counted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition that makes a random operator a function of seed and offset."""

    @functools.wraps(function)
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        first = next((value for value in args if isinstance(value, torch.Tensor)), None)
        device = kwargs.get("device") or (torch.device("cpu") if first is None else first.device)
        if not _tracing.is_on or kwargs.get("generator") is not None or torch.device(device).type not in KINDS:
            return NotImplemented
        kwargs.pop("generator", None)
        return function(*args, **kwargs)

    return decomposed
