"""The backward half of a trace: gradients of what left the forward, by what went in.

Which outputs receive a tangent and which inputs a gradient is decided by the caller. The tangents' placeholders
are created only now, behind the primals, when the layouts of the outputs are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from aotviz.torch_private import functional
from aotviz.torch_private.fakes import all_concrete, empty_like_layout, rng_preserved
from aotviz.torch_private.open_trace import OpenTrace, mark_backward
from aotviz.tracing.strides import order_of, strides_in


@dataclass(frozen=True)
class TracedTangent:
    """The incoming gradient of one output: the layout that the backward was traced with."""

    node: fx.Node
    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device
    order: tuple[int, ...]  # dimensions from the outermost in memory to the innermost; () where strides are concrete


def trace_gradients(
    trace: OpenTrace, outputs: Sequence[Any], edges: Sequence[Any]
) -> tuple[tuple[TracedTangent, ...], tuple[Any, ...]]:
    """Differentiate `outputs` (functional tensors) by the inputs that have an edge.

    Returns one tangent per output, and one graph node per edge: None where there is no edge or no path.
    """
    with rng_preserved(), trace.active("is_backward"):
        tangents = tuple(_tangent(trace, number, output) for number, output in enumerate(outputs, 1))
        incoming = [trace.functional(tangent.node.meta["tracked"]) for tangent in tangents]
        mark_backward([output.grad_fn for output in outputs])
        wanted = [edge for edge in edges if edge is not None]
        gradients = iter(torch.autograd.grad(outputs, wanted, incoming, allow_unused=True))
        nodes = []
        for edge in edges:
            gradient = None if edge is None else next(gradients)
            nodes.append(None if gradient is None else trace.node_of(functional.inner(gradient)))
        for tangent in tangents:
            del tangent.node.meta["tracked"]
    return tangents, tuple(nodes)


def _tangent(trace: OpenTrace, number: int, output: Any) -> TracedTangent:
    value = functional.inner(output)
    size = tuple(value.shape)
    order: tuple[int, ...] = ()
    if all_concrete((*size, *value.stride())):
        stride = _dense_stride(value)
    else:  # strides are not known before the call, but which dimension is the innermost is
        order = order_of(value.stride())
        stride = strides_in(order, size)
    fake = empty_like_layout(trace.fake_mode, size, stride, value.dtype, value.device)
    node = trace.placeholder(f"tangents_{number}", fake)
    node.meta["tracked"] = fake
    return TracedTangent(node, size, stride, value.dtype, value.device, order)


def _dense_stride(value: torch.Tensor) -> tuple[Any, ...]:
    """The output's strides, or contiguous ones where several indices share an element."""
    if functional.overlaps_itself(value):
        return strides_in(range(value.dim()), value.shape)
    return tuple(value.stride())
