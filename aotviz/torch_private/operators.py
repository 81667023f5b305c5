"""What is known of an operator, and of the tensors and graphs that it works on, by torch's own account."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx


def is_operator(target: Any) -> bool:
    """Whether a node's target is an operator of the dispatcher."""
    return isinstance(target, torch._ops.OpOverload)


def writes(target: Any) -> bool:
    """Whether an operator changes one of its arguments."""
    return is_operator(target) and bool(target._schema.is_mutable)


def is_view(target: Any) -> bool:
    return is_operator(target) and bool(target.is_view)


def is_random(target: Any) -> bool:
    return is_operator(target) and torch.Tag.nondeterministic_seeded in target.tags


def version(tensor: torch.Tensor) -> int:
    """How often a tensor was written in place; 0 for an inference tensor, which does not count."""
    return 0 if tensor.is_inference() else int(tensor._version)


def empty_copy(graph: fx.Graph) -> fx.Graph:
    """A graph of the same kind, without nodes."""
    return fx.Graph(tracer_cls=getattr(graph, "_tracer_cls", None))


def named_slots(root: torch.nn.Module, names: Sequence[str]) -> list[tuple[dict[str, Any], str]]:
    """For each parameter or buffer by its dotted name, the dict that holds it and its key there."""
    places: list[tuple[dict[str, Any], str]] = []
    for name in names:
        path, _, leaf = name.rpartition(".")
        owner = root.get_submodule(path)
        places.append((owner._parameters if leaf in owner._parameters else owner._buffers, leaf))
    return places


def dynamo_source(node: fx.Node) -> Any:
    """What Dynamo says a graph input is: a source expression such as "L['x']", or None."""
    for holder in (getattr(node, "_dynamo_source", None), getattr(node.meta.get("grapharg"), "source", None)):
        name = getattr(holder, "name", None)
        name = name() if callable(name) else name
        if isinstance(name, str) and name:
            return name
    return None


def is_static_input(value: Any) -> bool:
    """Whether an input stays at its place in memory between calls: a parameter, or what Dynamo marked so."""
    return isinstance(value, torch.nn.Parameter) or bool(getattr(value, "_dynamo_static_input_type", None))
