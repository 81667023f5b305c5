"""Which scalars on the CPU a part of a backward takes on the GPU: Inductor makes no CUDA graph of a graph that has an
input on the CPU, such as the number in `loss * scale` that was saved for the backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from aotviz.torch_private import backward_capture, operators


def moves(graph: fx.Graph, inputs: Sequence[Any]) -> dict[int, torch.device]:
    """Position of an input -> the device that it is moved to: CPU tensors without dimensions, if the other tensors are
    on one GPU, and every user of such a scalar also takes it from there. autograd's own functions do: what they compute
    is brought to the device of the gradient. Of operators, those do that return a new tensor.

    Args:
        inputs: one per placeholder of `graph`.
    """
    tensors = {i: value for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)}
    scalars = [i for i, tensor in tensors.items() if tensor.device.type == "cpu" and tensor.dim() == 0]
    devices = {tensor.device for i, tensor in tensors.items() if i not in scalars}
    nodes = graph.find_nodes(op="placeholder")
    if len(devices) != 1 or next(iter(devices)).type != "cuda":
        return {}
    return dict.fromkeys((i for i in scalars if all(map(_takes_any_device, nodes[i].users))), *devices)


def _takes_any_device(user: fx.Node) -> bool:
    function = operators.is_operator(user.target) and operators.name(user.target).startswith(("aten::", "prims::"))
    return backward_capture.is_pure(user.target) or (function and not operators.writes(user.target))
