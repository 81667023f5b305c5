"""Nodes of the autograd graph, the hooks on them, the engine that runs them, and how torch's compiled autograd sees
the nodes of Functions (`runtime/captured_backward.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter, methodcaller
from types import CodeType
from typing import Any

import torch
from torch._functorch.autograd_function import autograd_function_apply as autograd_function_apply

current_node: Callable[[], Any] = torch._C._current_autograd_node
"""The node that the engine runs in this thread, or None."""

current_backward: Callable[[], int] = torch._C._current_graph_task_id
"""A number for the backward that runs in this thread, or -1."""

will_execute = torch._C._will_engine_execute_node
"""Whether the running backward will execute a node. Raises RuntimeError for the node of a leaf under
`torch.autograd.grad`."""

RUN_BACKWARD: CodeType = torch.autograd.graph._engine_run_backward.__code__
"""The code object of torch's function that calls the engine."""


number: Callable[[Any], int] = methodcaller("_sequence_nr")
"""The sequence number of an autograd node, by which nodes of an FX graph refer to it."""

results: Callable[[Any], Sequence[Any]] = attrgetter("_input_metadata")
"""The shape, dtype and device of each result of the call that made a node."""

saved_with_hooks: Callable[[Any], Sequence[Any]] = attrgetter("_raw_saved_tensors")
"""What a user's `autograd.Function` passed to `save_for_backward`, packed, with its saved tensor hooks."""

gradient_hooks: Callable[[Any], Any] = attrgetter("_backward_hooks")
"""The dict of a tensor's gradient hooks; None if it never had one."""


def saved(node: Any, is_custom: bool) -> Iterator[tuple[Callable[[], Any], str]]:
    """For each value that a node saved: a function that returns it packed, with its saved tensor hooks, and the name of
    the attribute that returns it unpacked. Both may raise RuntimeError.

    `is_custom` is whether a user's `autograd.Function` made the node.
    """
    prefix = "_raw_" if is_custom else "_raw"
    for name in dir(node):
        if name.startswith("_raw_saved_"):
            yield functools.partial(getattr, node, name), name.removeprefix(prefix)


def at_end_of_backward(callback: Callable[[], None]) -> None:
    """Call `callback` at the end of the running backward."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)


def start_gradient_hooks(tensor: torch.Tensor, hooks: dict[Any, Any]) -> None:
    """Make `hooks` the dict in which hooks of a tensor are registered, and from which its node calls them."""
    tensor._backward_hooks = hooks
    node: Any = tensor.grad_fn
    if node is not None:  # it is None for a tensor that has become a leaf, for example by `detach_()`
        node._register_hook_dict(tensor)


class Context:
    """The `ctx` of a Function's backward: its node in all but the saved tensors, which a graph has unpacked."""

    def __init__(self, node: Any, saved: Sequence[Any]) -> None:
        vars(self).update(aotviz_node=node, saved_tensors=tuple(saved))

    @property
    def __class__(self) -> type:
        return type(self.aotviz_node)

    @__class__.setter
    def __class__(self, _: type) -> None:
        raise TypeError("the class of a backward's ctx can't be changed")

    def __getattr__(self, name: str) -> Any:
        return self.saved_tensors if name == "saved_variables" else getattr(self.aotviz_node, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.aotviz_node, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.aotviz_node, name)


def takers(node: Any) -> list[Any]:
    """What autograd knows of each tensor that the gradients of a node are for (shape, dtype, device); None for one that
    takes no gradient."""
    edges = node.next_functions
    return [None if following is None else following._input_metadata[index] for following, index in edges]


function_of: Callable[[Any], type[torch.autograd.Function]] = attrgetter("_forward_cls")
"""The Function that made a node."""

sizes_of: Callable[[Any], Sequence[Any]] = methodcaller("_get_compiled_autograd_symints")
"""The sizes that a Function's cache key contains besides its number, as symbols of the graph."""


def backward_of_torchs(value: Any) -> str:
    """The name of the backward of one of torch's own autograd nodes, as a captured graph calls it; "" for others."""
    kind = type(value)
    is_one = kind.__module__ == "torch._dynamo.compiled_autograd" and kind.__name__ == "Op"
    return f"{value.__module__}.{value.__name__}" if is_one and not value.is_custom_function else ""


def has_marked_sizes(function: type[torch.autograd.Function]) -> bool:
    """Whether it is a forward that torch's AOTAutograd compiled, and sizes of what it saves are symbolic."""
    return bool(getattr(getattr(function, "metadata", None), "dynamic_saved_tensors_idxs", None))


def number_of(function: type[torch.autograd.Function]) -> int:
    """The number by which torch tells the backwards of Functions apart."""
    return function._backward_cls._autograd_function_id  # type: ignore[attr-defined]
