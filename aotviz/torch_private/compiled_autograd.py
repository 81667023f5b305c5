"""Functions and their nodes, as torch's compiled autograd sees them; see `runtime/captured_backward.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, methodcaller
from typing import Any

import torch


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
