"""Whether tracing a graph from Dynamo runs Python of the user's, which could keep a tensor of the trace.

Most graphs run none: they call torch's functions with plain tensors. To look for tensors that nothing could have kept
takes as long as 3 % of a compilation, so it is left out. Everything unknown counts as the user's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir.forms import Request
from aotviz.torch_private import operators, registered_operators, saved_tensor_hooks, surroundings_of_a_key

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, int, float, bool, torch.SymInt, torch.SymFloat)
_TORCHS = ("torch.", "_operator.", "builtins.", "math.", "aotviz.")


def runs(request: Request) -> bool:
    if not request.is_graph or not isinstance(request.fn, fx.GraphModule):
        return True
    values = (*request.args, *(value for *_, value in request.named))
    if any(type(value) not in _PLAIN for value in values) or saved_tensor_hooks.are_on():
        return True
    if surroundings_of_a_key.active_modes() or registered_operators.overridden():
        return True
    decompositions = (request.options.decompositions or {}).values()
    if not all(map(_is_torchs, decompositions)):
        return True
    graphs = [one.graph for one in request.fn.modules() if isinstance(one, fx.GraphModule)]
    return not all(_is_known(node) for graph in graphs for node in graph.nodes)


def _is_known(node: fx.Node) -> bool:
    given: list[fx.node.Argument] = []
    fx.node.map_aggregate((node.args, node.kwargs), given.append)
    if node.op == "call_module" or any(callable(one) and not isinstance(one, type) for one in given):
        return False
    if node.op != "call_function":
        return True
    if registered_operators.is_operator(node.target):
        return registered_operators.is_torchs(node.target)
    return not operators.is_higher_order(node.target) and _is_torchs(node.target)


def _is_torchs(function: Callable[..., Any] | str) -> bool:
    called = getattr(function, "func", function)  # of a partial one
    return f"{getattr(called, '__module__', None)}.".startswith(_TORCHS)
