"""Pass the graphs to compilers (docs/design/system.md E1).

The forward is compiled now. The backward is compiled when first needed, since many programs never call it, unless it
takes symbolic sizes, whose guards belong to this compilation: then it is compiled at once. The backward is compiled
for the strides that the forward's compiler reports for its results.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.forms import BackwardRequest, Compiled, GraphCall, LoweredBackward, Reason, Split
from aotviz.ir.partition_functions import generators_of
from aotviz.ir.refusals import Refused
from aotviz.ir.symbolic_sizes import all_concrete, hint
from aotviz.runtime.cuts import Cut, places
from aotviz.runtime.deferred_stages import DeferredStages, LazyBackward
from aotviz.runtime.double_backward import Gradients
from aotviz.runtime.generators import Generators
from aotviz.runtime.lowered import LoweredGraph, LoweredSplit
from aotviz.runtime.partial_backward import PartialBackward
from aotviz.torch_private import modules
from aotviz.torch_private.context import CompilerFacts, current, first_call_is_fake, lowering
from aotviz.torch_private.fake_tensors import FakeTensorMode
from aotviz.torch_private.graph_nodes import stream_of
from aotviz.torch_private.torchs_log import backward_timed
from aotviz.tracing.second_order import Traced, at_hand
from aotviz.tracing.views import order_of, strides_in


def run(call: GraphCall, late: DeferredStages) -> LoweredSplit | LoweredGraph:
    """Split -> LoweredSplit, or GraphCall -> LoweredGraph. `late` serves the program's later requests."""
    _check_streams(call, call.forward_module if isinstance(call, Split) else call.graph_module)
    return _split(call, late) if isinstance(call, Split) else _inference(call)


def _check_streams(call: GraphCall, module: fx.GraphModule) -> None:
    """Raise Refused if the wrapper would copy to an input what a compiler computes on a stream of the user's."""
    results = zip(call.slots, graphs.outputs(module.graph), strict=False)
    written = [slot.index for slot, value in results if slot.kind == "mutation" and stream_of(value) is not None]
    if written and not call.options.by_operator:
        raise Refused("written on a stream", ", ".join(repr(str(call.graph_inputs[i])) for i in written))


def _inference(call: GraphCall) -> LoweredGraph:
    compiled, _ = _compiled(call, call.graph_module, call.options.inference_compiler, _facts(call, ()))
    return LoweredGraph(call.options, call, compiled, evidence=_by(call, "the graph"))


def _split(call: Split, late: DeferredStages) -> LoweredSplit:
    facts = _facts(call, call.donated)
    compiled, reported = _compiled(call, call.forward_module, call.options.fw_compiler, facts)
    values = _as_reported(call, reported)
    traced = Traced(call, late.traced_again)
    whole, part = _compilers(call, values, facts, late, traced.forget)
    backward = LazyBackward(whole, bool(call.donated), modules.boxed(call.backward_module))
    names = [node.name for node in graphs.placeholders(call.backward_module.graph)]
    known = dict(zip(names, values, strict=True))
    saved = [replace(one, value=known.get(one.name, one.value)) for one in call.saved]
    makers = generators_of(call.forward_module.graph)
    generators = Generators(makers) if makers else None
    partly = PartialBackward(call, part, generators)
    with_history = Gradients(call, at_hand(call, saved, traced), late, partly)
    return LoweredSplit(
        call.options,
        call,
        evidence=_by(call, "the forward graph"),
        compiled_forward=compiled,
        backward=backward,
        with_history=with_history,
        partial=partly,
        cut=Cut.of(call, with_history, partly) if places(call) else None,
        generators=generators,
    )


def _compiled(call: GraphCall, module: Any, compiler: Any, facts: CompilerFacts) -> tuple[Compiled, list[Any]]:
    """The compiled graph, and the strides that its compiler reports for the results."""
    inputs = list(graphs.values(graphs.placeholders(module.graph)))
    stored = call.stored
    role = "forward" if isinstance(call, Split) else "inference"
    with lowering(call.fake_mode, facts, role) as strides:
        found = None if stored is None else stored.forward(module, inputs, not isinstance(call, Split))
        compiled = found or boxed(compiler(_given(module, compiler), inputs), len(graphs.outputs(module.graph)))
        reported = list(strides)
        return _with_first_fake(compiled, module.graph, reported, call.fake_mode), reported


def _compilers(
    call: Split, values: tuple[Any, ...], facts: CompilerFacts, late: DeferredStages, compiled: Callable[[], None]
) -> tuple[Callable[[bool], Compiled], Callable[..., Compiled]]:
    """Functions that compile the whole backward, which may have to keep its saved tensors, and a part of it, and then
    call `compiled`. They do not keep the call's trace alive."""
    options, whole, may_donate, stored = call.options, call.backward_module, call.donated, call.stored
    context = (call.fake_mode, facts, current())

    def lower(module: Any, values: tuple[Any, ...], donated: tuple[int, ...], why: str, part: str) -> Compiled:
        evidence = (Reason("backward", why),)
        request = BackwardRequest(options, module, values, donated, context, why, part, stored, evidence=evidence)
        made = late.backward(request).compiled
        compiled()
        return made

    def of_whole(keep: bool) -> Compiled:
        why = "a backward that must keep its saved tensors was asked for" if keep else "the backward was first called"
        donated = () if keep else may_donate
        return lower(whole, values, donated, why, "backward" if donated else "backward that keeps")

    def of_part(module: Any, inputs: tuple[int, ...], donated: tuple[int, ...], why: str, part: str) -> Compiled:
        return lower(module, tuple(values[i] for i in inputs), donated, why, part)

    return of_whole, of_part


def run_backward(request: BackwardRequest) -> LoweredBackward:
    fake_mode, facts, context = request.context
    facts = CompilerFacts(**{**vars(facts), "bw_donated_idxs": list(request.donated)})
    whole, inputs = request.backward_module, list(request.values)
    compiler, stored = request.options.bw_compiler, request.stored
    with lowering(fake_mode, facts, "backward", context), backward_timed():
        found = None if stored is None else stored.backward(request.part, whole, inputs)
        compiled = found or boxed(compiler(_given(whole, compiler), inputs), len(graphs.outputs(whole.graph)))
    return LoweredBackward(request.options, request, compiled, evidence=request.evidence)


def _given(module: Any, compiler: Callable[..., Any]) -> Any:
    """A copy of the graph for the compiler, which may edit it."""
    return graphs.copy(module, lazy=getattr(compiler, "takes_lazy_graphs", False))


def boxed(compiled: Callable[..., Any], count: int = 0) -> Callable[[list[Any]], Any]:
    """Wrap the compiled callable so that it takes a list, which it may empty, and check that it returns `count`
    results."""
    if getattr(compiled, "_boxed_call", False):
        return compiled
    if not callable(compiled):
        raise TypeError(
            f"the backend compiler returned {compiled!r}; it must return a function that computes its graph"
        )
    name = getattr(compiled, "__name__", type(compiled).__name__)

    @functools.wraps(compiled, updated=())
    def call(args: list[Any]) -> Any:
        results = compiled(*args)
        if not isinstance(results, (tuple, list)):
            raise TypeError(
                f"the function that the backend compiler returned ({name}) returned {type(results).__name__}; "
                "it must return a tuple or list with one entry per output of the graph, even if there is "
                "only one"
            )
        if len(results) < count:
            raise TypeError(
                f"the function that the backend compiler returned ({name}) returned {len(results)} results; "
                f"the graph has {count} outputs, and it must return one entry for each"
            )
        return results

    return call


def _with_first_fake(
    compiled: Any, graph: Any, strides: Sequence[Any], fake_mode: FakeTensorMode
) -> Callable[[list[Any]], Any]:
    """`compiled`, but if the caller asked for it, the first call returns fakes with the reported strides."""
    if not first_call_is_fake():
        return compiled
    values = graphs.values(graphs.outputs(graph))
    made = itertools.zip_longest(values, strides[: len(values)])
    first = [[_restrided(value, stride, fake_mode) for value, stride in made]]

    def call(args: list[Any]) -> Any:
        return compiled(args) if not first else first.pop()

    return call


def _facts(call: GraphCall, donated: Sequence[int]) -> CompilerFacts:
    return CompilerFacts(
        static_input_indices=list(call.meta.static_input_indices),
        num_mutated_inp_runtime_indices=sum(slot.kind == "mutation" for slot in call.slots),
        bw_donated_idxs=list(donated),
        input_info=call.meta.input_info,
        output_info=call.meta.output_info,
        num_slots=len(call.slots),
        number=call.number,
    )


def _as_reported(call: Split, strides: Sequence[Any]) -> tuple[Any, ...]:
    """The backward's inputs, with the strides that the compiled forward really gives to saved tensors."""
    results = zip(graphs.outputs(call.forward_module.graph), strides, strict=False)
    reported = {node.name: stride for node, stride in results if isinstance(node, fx.Node)}
    inputs = graphs.placeholders(call.backward_module.graph)
    return tuple(_restrided(node.meta["val"], reported.get(node.name), call.fake_mode) for node in inputs)


def _restrided(value: Any, reported: Sequence[Any] | None, fake_mode: FakeTensorMode) -> Any:
    """A tensor with the strides that the compiler reports, if it does. Compilers report the numbers of the traced call.
    Comparing these with symbolic strides would add guards on them."""
    if not isinstance(value, torch.Tensor) or reported is None:
        return value
    stride = tuple(s if isinstance(s, torch.SymInt) else int(s) for s in reported)
    if tuple(map(hint, value.stride())) == tuple(map(hint, stride)):
        return value
    if not all_concrete((*value.size(), *value.stride())):
        stride = strides_in(order_of(stride), value.size())
    with fake_mode:
        return value.as_strided(value.size(), stride)


def _by(call: GraphCall, what: str) -> tuple[Reason, ...]:
    return (Reason(what, f"compiled by {call.options.backend}"),)
