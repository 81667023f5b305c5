"""Lowers a captured backward: what lies between two calls of Python becomes one graph for the compiler.

A region is a run of steps that only compute. A hook, a backward of a custom autograd.Function or anything else that
calls Python ends it. Gradients that are ready inside of a region are accumulated right behind it, since no Python runs
before that could tell.

A region is compiled when it first runs, for the layout of its inputs; C++'s key says nothing of these. After
`MOST_LAYOUTS` layouts, it runs operator by operator.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir.forms import Reason
from aotviz.torch_private.modules import lazy_graph_module
from aotviz.whole_backward import steps
from aotviz.whole_backward.captured import WholeBackward
from aotviz.whole_backward.dead_nodes import has_effects

MOST_LAYOUTS = 8
Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def run(compiler: Compiler, call: WholeBackward) -> WholeBackward:
    """WholeBackward -> WholeBackward, whose regions are nodes."""
    graph, made = fx.Graph(), dict[fx.Node, fx.Node]()
    regions: list[Region] = []
    for kind, nodes in _parts(call.graph):
        if kind == "region" and any(node.target is not steps.add for node in nodes):
            region = Region(compiler, nodes, f"{call.name}_{len(regions)}")
            regions.append(region)
            result = graph.call_function(region, tuple(made[node] for node in region.inputs))
            result.meta["visit"] = nodes[0].meta["visit"]
            for index, node in enumerate(region.outputs):
                made[node] = graph.call_function(operator.getitem, (result, index))
                made[node].meta["visit"] = node.meta["visit"]
        else:
            for node in nodes:
                made[node] = graph.node_copy(node, made.__getitem__)
    reasons = tuple(Reason(region.__name__, f"{len(region.module.graph.nodes)} nodes, one graph") for region in regions)
    return replace(call, graph=graph, evidence=reasons)


def _parts(graph: fx.Graph) -> Iterator[tuple[str, list[fx.Node]]]:
    """("region" or "python", nodes), in an order in which they can run."""
    region: list[fx.Node] = []
    late: list[fx.Node] = []  # accumulations, which follow the region
    for node in graph.nodes:
        if node.op == "call_function" and _takes_from_python(node):
            yield "python", [node]
        elif node.op == "call_function" and not has_effects(node):
            region.append(node)
        elif node.target is steps.accumulate_grad:
            late.append(node)
        else:
            yield "region", region
            yield "python", [*late, node]
            region, late = [], []


def _takes_from_python(node: fx.Node) -> bool:
    """Whether it takes an item out of what Python returned, or of what C++ hands over."""
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, fx.Node) and (source.op == "placeholder" or has_effects(source))


class Region:
    """Steps that only compute, as a function of their inputs; it returns a list."""

    def __init__(self, compiler: Compiler, nodes: Sequence[fx.Node], name: str) -> None:
        self.__name__ = name
        self._compiler = compiler
        inside = set(nodes)
        self.inputs = list(dict.fromkeys(one for node in nodes for one in node.all_input_nodes if one not in inside))
        self.outputs = [node for node in nodes if any(user not in inside for user in node.users)]
        graph = fx.Graph()
        made = {node: graph.placeholder(node.name) for node in self.inputs}
        for node in nodes:
            made[node] = graph.node_copy(node, made.__getitem__)
        graph.output(tuple(made[node] for node in self.outputs))
        self.module = lazy_graph_module(torch.nn.Module(), graph)
        self._programs: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        key = tuple(map(_layout, inputs))
        program = self._programs.get(key)
        if program is None:
            if len(self._programs) >= MOST_LAYOUTS:
                return self.module(*inputs)
            program = self._programs[key] = self._compiled(inputs)
        return program(*(value for value in inputs if isinstance(value, torch.Tensor)))

    def _compiled(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        """For these: numbers and missing gradients become constants of the graph."""
        graph, made = fx.Graph(), dict[fx.Node, Any]()
        for node, value in zip(self.module.graph.find_nodes(op="placeholder"), inputs, strict=True):
            made[node] = graph.placeholder(node.name) if isinstance(value, torch.Tensor) else value
        for node in self.module.graph.nodes:
            if node.op != "placeholder":
                made[node] = graph.node_copy(node, made.__getitem__)
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        return self._compiler(lazy_graph_module(torch.nn.Module(), graph), tensors)


def _layout(value: Any) -> Any:
    """What a program is compiled for."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride() if value.layout is torch.strided else value.layout, value.dtype, value.device
    return value
