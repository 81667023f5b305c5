"""Turn a graph from Dynamo that takes lists into a graph that takes flat inputs.

Compiled autograd passes the saved tensors to its backward in one list, so that the callee can free them. Dynamo keeps
that list as one input of the graph. The pipeline takes flat inputs only: each nested input is replaced by its leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx

from aotviz.torch_private import pytree

_PART = "aotviz_part_of"
_KEPT = ("compile_subgraph_reason",)  # Dynamo's attributes of the graph module


def flattened(module: Any, inputs: Sequence[Any]) -> tuple[Any, list[Any], Callable[[Sequence[Any]], list[Any]] | None]:
    """The graph with flat inputs, these inputs, and a function that flattens a call's inputs (None if they are flat
    already)."""
    nested = {i for i, value in enumerate(inputs) if not pytree.tree_structure(value).is_leaf()}
    if not nested or not isinstance(module, fx.GraphModule):
        return module, list(inputs), None
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    nodes = list(graph.find_nodes(op="placeholder"))
    freed = [i for i in nested if nodes[i].meta.get("steal_arg", False)]
    for i in sorted(nested):
        _take_apart(graph, nodes[i], inputs[i])
    flat = fx.GraphModule(module, graph)
    describe(flat, module)

    def leaves(passed: Sequence[Any]) -> list[Any]:
        found = pytree.tree_leaves(list(passed))
        for i in freed:
            passed[i].clear()
        return found

    return flat, pytree.tree_leaves(list(inputs)), leaves


def describe(made: fx.GraphModule, module: fx.GraphModule) -> None:
    """Keep what Dynamo tells of `module` in a graph that was made from it."""
    made.meta = dict(module.meta)
    for name in _KEPT:
        if hasattr(module, name):
            setattr(made, name, getattr(module, name))


def part_of(node: fx.Node) -> tuple[fx.Node, str] | None:
    """For a leaf of a nested input: the input, and the position of the leaf in it, e.g. "[0]"."""
    found: tuple[fx.Node, str] | None = node.meta.get(_PART)
    return found


def _take_apart(graph: fx.Graph, node: fx.Node, value: Any) -> None:
    paths, spec = pytree.tree_flatten_with_path(value)
    made = []
    with graph.inserting_before(node):
        for path, leaf in paths:
            part = graph.placeholder(node.name + "".join(f"_{_key(entry)}" for entry in path))
            part.meta[_PART] = (node, pytree.keystr(path))
            if isinstance(leaf, torch.Tensor):
                part.meta["example_value"] = leaf
            made.append(part)
    _replace(graph, node, pytree.tree_unflatten(made, spec))


def _key(entry: Any) -> Any:
    return getattr(entry, "idx", getattr(entry, "key", "part"))


def _replace(graph: fx.Graph, node: fx.Node, parts: Any) -> None:
    """Let the users of the nested `node` read its parts."""
    for user in list(node.users):
        if _is_item(user, node, parts):
            part = parts[user.args[1]]
            if isinstance(part, fx.Node):
                user.replace_all_uses_with(part)
                graph.erase_node(user)
            else:
                _replace(graph, user, part)
        else:
            user.args = fx.node.map_arg(user.args, lambda n: parts if n is node else n)
            user.kwargs = fx.node.map_arg(user.kwargs, lambda n: parts if n is node else n)
    graph.erase_node(node)


def _is_item(user: fx.Node, node: fx.Node, parts: Any) -> bool:
    takes = user.op == "call_function" and getattr(user.target, "__name__", "") == "getitem" and user.args[0] is node
    key = user.args[1] if takes else None
    return takes and (isinstance(key, int) or (isinstance(parts, Mapping) and isinstance(key, str)))
