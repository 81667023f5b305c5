"""Nodes of autograd's graph, the hooks on them, and the engine that runs them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter, methodcaller
from types import CodeType
from typing import Any

import torch
from torch._functorch.autograd_function import autograd_function_apply

__all__ = ["autograd_function_apply"]

current_node = torch._C._current_autograd_node
"""The node that the engine runs in this thread, or None."""

current_backward: Callable[[], int] = torch._C._current_graph_task_id
"""A number for the backward that runs in this thread, or -1."""

will_execute = torch._C._will_engine_execute_node
"""Whether the running backward gets to a node. Raises RuntimeError for a leaf's under `torch.autograd.grad`."""

RUN_BACKWARD: CodeType = torch.autograd.graph._engine_run_backward.__code__
"""The code of what calls the engine."""


number: Callable[[Any], int] = methodcaller("_sequence_nr")
"""The number by which the nodes of a graph refer to an autograd node."""

results: Callable[[Any], Sequence[Any]] = attrgetter("_input_metadata")
"""The shape, dtype and device of each result of the call that a node is of."""

gradient_hooks: Callable[[Any], Any] = attrgetter("_backward_hooks")
"""The dict in which a tensor's gradient hooks are; None where it never had one."""


def saved(node: Any, is_custom: bool) -> Iterator[tuple[Callable[[], Any], str]]:
    """For each thing that a node saved: what gives it with its hooks, and the attribute that has it without.

    `is_custom` says of a node that a user's `autograd.Function` made it. Either may raise RuntimeError.
    """
    prefix = "_raw_" if is_custom else "_raw"
    for name in dir(node):
        if name.startswith("_raw_saved_"):
            yield functools.partial(getattr, node, name), name.removeprefix(prefix)


def saved_with_hooks(ctx: Any) -> Sequence[Any]:
    """What a user's `autograd.Function` gave to `save_for_backward`, with its hooks."""
    return ctx._raw_saved_tensors


def at_end_of_backward(callback: Callable[[], None]) -> None:
    """Call `callback` when the running backward has ended."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)


def start_gradient_hooks(tensor: torch.Tensor, hooks: dict[Any, Any]) -> None:
    """Let hooks of a tensor be registered in that dict, and its node call them from there."""
    tensor._backward_hooks = hooks
    node: Any = tensor.grad_fn
    if node is not None:  # a leaf by now, as after `detach_()`
        node._register_hook_dict(tensor)
