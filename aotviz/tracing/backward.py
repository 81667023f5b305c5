"""The backward half of a trace: gradients of the forward's outputs with respect to its inputs.

The caller decides which outputs receive a tangent and which inputs a gradient. The placeholders of the tangents are
created here, after the primals, because only now are the layouts of the outputs known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import torch

from aotviz.ir import wrapper_subclasses
from aotviz.ir.forms import Tangent
from aotviz.ir.symbolic_sizes import all_concrete
from aotviz.torch_private import tensors
from aotviz.torch_private.context import backward_autocast
from aotviz.tracing import functional
from aotviz.tracing.fakes import empty_like_layout, rng_preserved
from aotviz.tracing.open_trace import OpenTrace, mark_backward
from aotviz.tracing.views import order_of, strides_in

Autocasts = Sequence[Mapping[str, Any]]  # the arguments of each `torch.amp.autocast` that a backward runs under


def trace_gradients(
    trace: OpenTrace, outputs: Mapping[int, Any], edges: Sequence[Any], autocast: Autocasts = ()
) -> tuple[tuple[Tangent, ...], tuple[Any, ...], tuple[Any, ...]]:
    """Differentiate `outputs` (slot -> functional tensor) with respect to the inputs that have an edge.

    Returns one tangent per output, and per edge a fake gradient and its graph node (for a subclass, the nodes of its
    parts). Both are None where there is no edge or no path.
    """
    with rng_preserved(), trace.active("is_backward"):
        names = map("tangents_{}".format, count(1))
        tangents = tuple(_tangent(trace, names, slot, functional.inner(output)) for slot, output in outputs.items())
        incoming = [trace.functional(tangent.value) for tangent in tangents]
        gradients, nodes = _gradients(trace, list(outputs.values()), edges, incoming, autocast)
        for tangent, value in zip(tangents, incoming, strict=True):
            _write_back(trace, tangent, value)
    return tangents, gradients, nodes


def _write_back(trace: OpenTrace, tangent: Tangent, value: Any) -> None:
    """Write a tangent in the graph if a custom backward writes it in place: it may be the user's own tensor."""
    if tangent.parts or not functional.data_mutated(value):
        return
    target = trace.node_of(tangent.value)
    node = trace.graph.call_function(torch.ops.aten.copy_.default, (target, trace.node_of(functional.inner(value))))
    node.meta = {"val": target.meta["val"], "partitioner_tag": "is_backward", "autograd_backward": True}


def trace_loss_gradients(trace: OpenTrace, loss: Any, edges: Sequence[Any]) -> tuple[Any, ...]:
    """Differentiate a loss of one element. There is no tangent: the graph itself creates the 1 that the backward starts
    from."""
    with rng_preserved(), trace.active("is_backward"):
        return _gradients(trace, [loss], edges, None, ())[1]


def _gradients(
    trace: OpenTrace, outputs: Sequence[Any], edges: Sequence[Any], incoming: Sequence[Any] | None, autocast: Autocasts
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """One fake gradient per edge, and its node; None where there is no edge or no path."""
    mark_backward([output.grad_fn for output in outputs])
    wanted = [edge for edge in edges if edge is not None]
    # The autograd graph is kept: `second_order` continues from it if the gradients are differentiated.
    with backward_autocast(autocast):  # eager calls a backward outside autocast: only the forward casts
        found = iter(torch.autograd.grad(outputs, wanted, incoming, allow_unused=True, retain_graph=True))
    raw = (None if edge is None else next(found) for edge in edges)
    gradients = tuple(None if gradient is None else functional.inner(gradient) for gradient in raw)
    trace.close_effects()
    return gradients, tuple(None if gradient is None else trace.node_of(gradient) for gradient in gradients)


def _tangent(trace: OpenTrace, names: Iterator[str], slot: int, value: Any) -> Tangent:
    if not wrapper_subclasses.is_subclass(value):
        return _plain_tangent(trace, names, slot, value)
    with trace.untraced():
        adapt = getattr(value, "__coerce_tangent_metadata__", None)  # its class may make another one
        value = (value if adapt is None else adapt()).detach()
        if any(map(tensors.overlaps_itself, wrapper_subclasses.parts(value))):
            value = value.clone(memory_format=torch.contiguous_format)
    parts = tuple(_plain_tangent(trace, names, slot, part) for part in wrapper_subclasses.parts(value))
    fake = wrapper_subclasses.rebuilt(value, iter([part.value for part in parts]))
    return Tangent(slot, tuple(fake.shape), tuple(fake.stride()), fake.dtype, fake.device, (), parts, fake)


def _plain_tangent(trace: OpenTrace, names: Iterator[str], slot: int, value: torch.Tensor) -> Tangent:
    size = tuple(value.shape)
    order: tuple[int, ...] = ()
    if all_concrete((*size, *value.stride())):
        # the output's strides, or contiguous ones where several indices share an element
        stride = strides_in(range(value.dim()), size) if tensors.overlaps_itself(value) else tuple(value.stride())
    else:  # the strides are not known before the call, but the order of the dimensions in memory is
        order = order_of(value.stride())
        stride = strides_in(order, size)
    fake = empty_like_layout(trace.fake_mode, size, stride, value.dtype, value.device)
    trace.placeholder(next(names), fake)
    return Tangent(slot, size, tuple(fake.stride()), fake.dtype, fake.device, order, value=fake)
