"""Close the trace of an export, and describe its inputs and outputs (docs/design/system.md B4).

Nothing runs around an exported graph, so every output of the function is an output of the graph, even views and
returned inputs. The gradients are those of a loss with respect to 1: there are no tangents.

Note [Before the dispatcher]
With `pre_dispatch`, `linear` stays `linear`, and changes of grad mode and autocast are nodes. Only modes in front of
torch's dispatcher see such operators. The open trace is behind it, so the function runs once more, under `make_fx`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.proxy_tensor import make_fx

from aotviz.ir import effects, graphs
from aotviz.ir.descriptors import GradientOutput, MutatedInputOutput, ParameterInput
from aotviz.ir.forms import ExportCall, Exported, Reason, Slot, TracedCall
from aotviz.ir.signature import ExportRefused, GraphSignature
from aotviz.torch_private import functional_tensors, pytree
from aotviz.torch_private.dispatch import enable_python_dispatcher
from aotviz.torch_private.fake_tensors import detect_fake_mode
from aotviz.torch_private.functional_tensors import FunctionalTensorMode
from aotviz.tracing.backward import trace_loss_gradients
from aotviz.tracing.functional import inner, wrapped


def run(call: TracedCall) -> ExportCall:
    forward, export = call.forward.take(), call.options.export
    written = [index for index, info in enumerate(call.meta.input_info) if info.mutates_data]
    slots = [Slot("mutation", index, MutatedInputOutput(call.graph_inputs[index])) for index in written]
    slots += [Slot("output", index, output) for index, output in enumerate(call.outputs)]
    nodes = forward.open.nodes_of([*(forward.args[index] for index in written), *forward.outputs])
    if export.joint and not export.pre_dispatch:
        loss: Any = export.loss
        gradients = trace_loss_gradients(forward.open, forward.outputs[loss], forward.edges)
        for index, (descriptor, gradient) in enumerate(zip(call.graph_inputs, gradients, strict=True)):
            if not call.meta.input_info[index].requires_grad:
                continue
            if gradient is None:
                what = "parameter" if isinstance(descriptor, ParameterInput) else "input"
                raise ExportRefused(
                    f"{what} {str(descriptor)!r} requires grad, and the loss does not depend on it, so it has no "
                    f"gradient to return. Use it, or call requires_grad_(False) on it."
                )
            slots.append(Slot("gradient", index, GradientOutput(descriptor)))
            nodes.append(gradient)
    told = (slot for slot in slots if slot.kind != "output")
    evidence = tuple(Reason(str(slot.descriptor), "an output of the graph") for slot in told)
    if export.pre_dispatch:
        evidence += (Reason("pre_dispatch", "traced again at pre-dispatch level, above autograd and autocast"),)
    module = _trace_before_dispatch(call, written) if export.pre_dispatch else forward.closed(nodes)
    return call.then(ExportCall, evidence=evidence, forward=forward, graph_module=module, slots=tuple(slots))


def sign(call: ExportCall) -> Exported:
    module = graphs.copy(call.graph_module, lazy=False)
    graph = module.graph
    inputs = [node.name for node in graphs.placeholders(graph)]
    outputs = [getattr(node, "name", None) for node in graphs.outputs(graph)]
    tokens = effects.lift_first(graph)
    signature = GraphSignature.of(
        list(zip(inputs, call.descriptors, strict=True)),
        [(name, slot.descriptor) for name, slot in zip(outputs, call.slots, strict=True)],
        in_spec=call.convention.in_spec,
        out_spec=call.out_spec,
        loss=call.options.export.loss if call.options.export.joint else None,
        input_tokens=tuple(tokens[0]),
        output_tokens=tuple(tokens[1]),
    )
    module.recompile()
    return call.then(Exported, graph_module=module, signature=signature)


def _trace_before_dispatch(call: TracedCall, written: Sequence[int]) -> fx.GraphModule:
    """Trace the call's function functionally; see Note [Before the dispatcher]. The graph returns the new values of the
    inputs `written`, then the flat results."""
    kinds = effects.kinds(call.forward.graph())
    mode = FunctionalTensorMode(pre_dispatch=True, export=True, _allow_token_discovery=True)

    def functional(*inputs: Any) -> tuple[Any, ...]:
        given = [wrapped(value) if isinstance(value, torch.Tensor) else value for value in inputs]
        functional_tensors.tokens(mode).update(zip(kinds, given, strict=False))
        given = given[len(kinds) :]
        results = pytree.tree_flatten(call.fn(*given))[0]
        tokens = (functional_tensors.tokens(mode)[kind] for kind in kinds)
        return tuple(inner(value) for value in (*tokens, *(given[i] for i in written), *results))

    with detect_fake_mode(list(call.args)) or contextlib.nullcontext():
        tokens = [torch.empty(0) for _ in kinds]
    with enable_python_dispatcher(), mode:
        make = make_fx(functional, dict(call.options.decompositions or {}), record_module_stack=True, pre_dispatch=True)
        module: fx.GraphModule = make(*tokens, *call.args)
    effects.close_around(module, len(kinds))
    return module
