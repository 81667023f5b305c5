"""The partitioner of a change that lowers the peak: the halves that another one makes, with another schedule.

A schedule names what each half runs and what is saved (`recording/schedules.py`). Here the same is done to torch's
graphs. A program whose graphs have other nodes is refused by name: the change was computed for another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.partition_functions import Halves
from aotviz.recording.schedules import Schedule
from aotviz.torch_private import operators
from aotviz.torch_private.modules import graph_module


@dataclass(frozen=True)
class Scheduled:
    """A partitioner. Its content is part of the key of the cache."""

    title: str
    schedule: Schedule
    otherwise: Callable[..., Any]

    @property
    def __name__(self) -> str:
        return self.title

    def __repr__(self) -> str:
        return f"<aotviz {self.title}>"

    def __call__(self, joint: fx.GraphModule, joint_inputs: Any, *, num_fwd_outputs: int, **others: Any) -> Halves:
        partition = self.otherwise
        forward, backward = partition(joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **others)
        made = _Relisting(self, forward, backward, num_fwd_outputs)
        return made.forward(), made.backward()


class _Relisting:
    def __init__(self, change: Scheduled, forward: fx.GraphModule, backward: fx.GraphModule, results: int) -> None:
        self._change, self._modules = change, (forward, backward)
        returned = graphs.outputs(forward.graph)
        self._results, before = returned[:results], {node.name for node in returned[results:]}
        self._first = {node.name: node for node in forward.graph.nodes}
        given = graphs.placeholders(backward.graph)
        self._own = {node.name: node for node in backward.graph.nodes if node.op not in ("placeholder", "output")}
        saved = [self._named(name, self._first) for name in change.schedule.saved]
        self._saved = sorted(saved, key=lambda node: not isinstance(node.meta.get("val"), torch.Tensor))
        self._given = {node.name: node for node in given if node.name in before}
        self._others = [node for node in given if node.name not in before]

    def _named(self, name: str, nodes: dict[str, fx.Node]) -> fx.Node:
        if name not in nodes:
            raise ValueError(f"{self._change.title} was computed for another program: this one has no node {name!r}")
        return nodes[name]

    def forward(self) -> fx.GraphModule:
        (module, _), nodes = self._modules, self._change.schedule.forward
        graph, known = operators.empty_copy(module.graph), dict[str, fx.Node]()
        for node in graphs.placeholders(module.graph):
            _copy(graph, node, known)
        for name in nodes:
            _copy(graph, self._named(name, self._first), known)
        return self._done(module, graph, known, [*self._results, *self._saved])

    def backward(self) -> fx.GraphModule:
        _, module = self._modules
        graph, known = operators.empty_copy(module.graph), dict[str, fx.Node]()
        for node in self._saved:
            given = self._given.get(node.name)
            if given is not None:
                _copy(graph, given, known)
            else:
                known[node.name] = graph.placeholder(node.name)
                known[node.name].meta["val"] = node.meta["val"]
        for node in self._others:
            _copy(graph, node, known)
        for name in self._change.schedule.backward:
            _copy(graph, self._own.get(name) or self._named(name, self._first), known)
        return self._done(module, graph, known, graphs.outputs(module.graph))

    def _done(
        self, module: fx.GraphModule, graph: fx.Graph, known: dict[str, fx.Node], results: Sequence[Any]
    ) -> fx.GraphModule:
        ordered = [node.name for node in graph.nodes if _is_ordered(node)]
        before = [n.name for n in module.graph.nodes if _is_ordered(n) and (n.name in ordered or self._is_only_here(n))]
        if ordered != before:
            raise ValueError(f"{self._change.title} moves what draws random numbers or has effects: {before}")
        graph.output(tuple(known[one.name] if isinstance(one, fx.Node) else one for one in results))
        output = graphs.output_node(graph)
        output.meta = dict(graphs.output_node(module.graph).meta)
        if "desc" in output.meta and len(output.meta["desc"] or ()) != len(results):
            described = [*output.meta["desc"]][: len(self._results)]
            output.meta["desc"] = described + [None] * (len(results) - len(described))
        return graph_module(module, graph)

    def _is_only_here(self, node: fx.Node) -> bool:
        """Not so of what the forward drew, and a partitioner leaves in the backward although nothing reads it."""
        return node.graph is not self._modules[1].graph or node.name not in self._first


def _is_ordered(node: fx.Node) -> bool:
    return operators.is_random(node.target) or (node.op == "call_function" and node.is_impure())


def _copy(graph: fx.Graph, node: fx.Node, known: dict[str, fx.Node]) -> None:
    known[node.name] = graph.node_copy(node, lambda one: known[one.name])
