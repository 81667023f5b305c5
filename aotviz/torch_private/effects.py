"""Operators with side effects, as plain calls.

Functionalisation threads a token through each effectful call, such as the error check of a matrix decomposition, and
adds an input for the first of them. An interpreter or Inductor keeps effectful calls in their order without that,
so the tokens are taken out of the graph again.
"""

from __future__ import annotations

import operator

import torch
import torch.fx as fx


def drop_tokens(graph: fx.Graph) -> None:
    """Replace each `with_effects(token, op, ...)` by `op(...)`, and remove the tokens. Edits `graph`."""
    calls = list(graph.find_nodes(op="call_function", target=torch.ops.higher_order.with_effects))
    for node in calls:
        _token, target, *args = node.args
        with graph.inserting_before(node):
            plain = graph.call_function(target, tuple(args), dict(node.kwargs))
        plain.meta = {**node.meta, "val": _results(node.meta.get("val"))}
        for user in list(node.users):
            _reconnect(user, plain)
        graph.erase_node(node)
    for node in graph.find_nodes(op="placeholder"):
        if calls and "token" in node.name and not node.users:
            graph.erase_node(node)


def _results(value: object) -> object:
    """The value of `op(...)`, from that of `(token, *results)`."""
    if not isinstance(value, (tuple, list)) or len(value) < 2:
        return None
    return value[1] if len(value) == 2 else tuple(value[1:])


def _reconnect(user: fx.Node, plain: fx.Node) -> None:
    """`user` takes one entry of `(token, *results)`; let what reads it read the plain call's results."""
    if user.target is not operator.getitem:
        raise NotImplementedError(f"{user} reads an effect token in a way that aotviz does not know")
    index = user.args[1]
    if index == 0:
        for reader in list(user.users):
            if reader.target is torch.ops.higher_order.with_effects:
                reader.update_arg(0, None)
        if not user.users:
            user.graph.erase_node(user)
        return
    if isinstance(plain.meta.get("val"), tuple):
        user.update_arg(0, plain)
        user.update_arg(1, int(str(index)) - 1)
        return
    user.replace_all_uses_with(plain)
    user.graph.erase_node(user)
