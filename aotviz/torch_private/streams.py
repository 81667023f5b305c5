"""Streams of the user in a graph.

Dynamo notes for each node of a `with stream:` the number of that stream, and records and waits for events by operators
in the graph that return nothing. A graph that runs operator by operator runs them all in order, on one stream. Inductor
runs nodes on the streams that are noted, and would move operators that return nothing. So it gets a forward in which
each of these comes after all that was computed before it, and what reads that later reads it through the operator.
Inductor's `control_deps` says both.

The nodes of a backward have the notes of the forward's, but no events: torch inserts new ones there. The events of one
graph are lost once another graph has run. So a backward here runs on one stream, the one on which autograd calls it.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
import torch.fx as fx
from torch._inductor.fx_passes import control_dependencies

from aotviz.torch_private import versions
from aotviz.torch_private.graph_nodes import STREAM, stream_of


def tie(module: fx.GraphModule) -> None:
    """Keep the order of a forward's operators for streams and events, whatever Inductor moves. Edits it."""
    graph = module.graph
    if not versions.has("an operator without a result can be tied") or not any(map(_is_for_streams, graph.nodes)):
        return
    latest: dict[fx.Node, fx.Node] = {}  # value -> what later nodes read in its place
    before: list[fx.Node] = []  # what the next operator for streams comes after
    seen: set[fx.Node] = set()
    for node in list(graph.nodes):
        seen.add(node)
        _write_where_computed(node)
        _read(latest, node)
        if isinstance(node.meta.get("val"), torch.Tensor):
            latest[node] = node
            before.append(node)
        if before and _is_for_streams(node):
            read_later = [value for value in latest if value.users.keys() - seen]
            tied = _tied(module, node, before, [latest[value] for value in read_later])
            for number, value in enumerate(read_later, 1):
                with graph.inserting_before(node):
                    latest[value] = graph.call_function(operator.getitem, (tied, number))
                latest[value].meta = dict(value.meta)
            node.replace_all_uses_with(tied)
            graph.erase_node(node)
            before = [tied]
            seen.add(tied)
    module.recompile()


def _is_for_streams(node: fx.Node) -> bool:
    return getattr(node.target, "namespace", "") == "streams"


def _write_where_computed(node: fx.Node) -> None:
    """Let an input be written on the stream on which the value is computed."""
    if node.target is torch.ops.aten.copy_.default and stream_of(node) != stream_of(node.args[1]):
        node.meta["custom"] = {**node.meta.get("custom", {}), STREAM: stream_of(node.args[1])}


def _read(latest: dict[fx.Node, fx.Node], node: fx.Node) -> None:
    """Let a node read the latest values. An input that is written stays that input."""
    written = node.args[:1] if node.target is torch.ops.aten.copy_.default else ()
    args, kwargs = node.args[len(written) :], dict(node.kwargs)
    args, kwargs = fx.node.map_arg((args, kwargs), lambda one: latest.get(one, one))
    node.args, node.kwargs = (*written, *args), kwargs


def _tied(module: fx.GraphModule, node: fx.Node, before: Sequence[fx.Node], passed: Sequence[fx.Node]) -> fx.Node:
    """A call before `node` that runs it after these nodes. Its results are the node's and then the values `passed`."""
    inside = control_dependencies._create_subgraph_for_node(module.graph, node, passed)
    name = control_dependencies.get_subgraph_name(module, node.name)
    setattr(module, name, inside)
    with module.graph.inserting_before(node):
        run = module.graph.get_attr(name)
        arguments: tuple[fx.node.Argument, ...] = (tuple(before), run, *node.all_input_nodes, *passed)
        tied = module.graph.call_function(control_dependencies.control_deps, arguments)
    tied.meta["val"] = (None, *(one.meta["val"] for one in passed))
    return tied


def run_on_one(module: fx.GraphModule) -> None:
    """Remove the notes about streams. Edits a backward."""
    for node in module.graph.nodes:
        if stream_of(node) is not None:
            notes = node.meta["custom"]
            node.meta["custom"] = {name: notes[name] for name in notes if name != STREAM}
