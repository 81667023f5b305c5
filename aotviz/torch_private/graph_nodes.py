"""Private parts of FX graphs and nodes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch.fx as fx
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo
from torch.fx.passes.shape_prop import _extract_tensor_metadata

rename: Callable[[fx.Node, str], None] = fx.Node._rename
"""Gives a node another name, or a similar one that is free."""


# Behind Node's properties: every graph is read before and after every stage.
arguments: Callable[[fx.Node], tuple[Any, ...]] = attrgetter("_args")
keywords: Callable[[fx.Node], dict[str, Any]] = attrgetter("_kwargs")

tensor_metadata: Callable[[Any], Any] = _extract_tensor_metadata
"""What the metadata of a node says of a tensor under "tensor_meta"."""


STREAM = "stream"  # Dynamo's name for the number of a stream, among the notes that a user's `annotate` makes as well


def stream_of(node: Any) -> int | None:
    """The number of the user's stream that Dynamo noted for a node; None if it noted none."""
    number: int | None = node.meta.get("custom", {}).get(STREAM) if isinstance(node, fx.Node) else None
    return number


def newest(graph: fx.Graph) -> fx.Node:
    """The node after which the next one is inserted."""
    insert: Any = graph._insert
    return insert.__self__.prev


def stack_at(module: fx.GraphModule, line: int) -> str:
    """The stack trace of the node that a line of a graph's generated code runs; "" without one.

    `line` counts from the line of the code's `def`.
    """
    at = (getattr(module, "_lineno_map", None) or {}).get(line)  # made with the code
    nodes = () if at is None else itertools.islice(module.graph.nodes, at, at + 1)
    return next((str(node.meta.get("stack_trace") or "") for node in nodes), "")


def nested_codegen(names: list[str], in_spec: Any, out_spec: Any) -> Any:
    """The code generator of a graph that takes and returns nested values."""
    return _PyTreeCodeGen(_PyTreeInfo(names, in_spec, out_spec))
