"""Graphs that run operator by operator, and write their inputs as early as eager does.

A functional graph writes its inputs at its end. Where gradients are added up, all sums would be alive at once, beside
the gradients that they replace. Here a sum that is written back becomes an addition in place, where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.torch_private.modules import boxed

_ADD, _ADD_IN_PLACE = torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor


def run_early(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A compiler."""
    made = graphs.copy(module)
    place = {node: number for number, node in enumerate(made.graph.nodes)}
    for write in [node for node in made.graph.nodes if graphs.is_input_mutation(node)]:
        target, total = graphs.argument(write, 0), graphs.argument(write, 1)
        is_sum = total.target is _ADD and total.args[0] is target and not total.kwargs and list(total.users) == [write]
        if is_sum and max(place[user] for user in target.users if user is not write) == place[total]:
            total.target = _ADD_IN_PLACE
            write.replace_all_uses_with(total)
            made.graph.erase_node(write)
    made.recompile()
    run = boxed(made)
    run._boxed_call = True  # type: ignore[attr-defined]
    return run


run_early.takes_lazy_graphs = True  # type: ignore[attr-defined]
