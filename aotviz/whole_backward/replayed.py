"""Writes the Python that runs a captured backward: a line for each node, in order, grouped by the autograd node that it
is of. A value is let go of after the line that reads it last, as autograd's engine lets go of it."""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from typing import Any

import torch.fx as fx

from aotviz.ir import graphs
from aotviz.runtime.codegen import Source
from aotviz.whole_backward import current_node, steps
from aotviz.whole_backward.captured import PartedBackward, ReplayedBackward
from aotviz.whole_backward.compiled_parts import Part


def run(call: PartedBackward) -> ReplayedBackward:
    """PartedBackward -> ReplayedBackward."""
    source = Source()
    writer = _Writer(call, source)
    writer.write()
    function, filename = source.build(call.name, "backward")
    return ReplayedBackward(call.options, call.name, call, function, filename, source.text, tuple(source.notes))


class _Writer:
    def __init__(self, call: PartedBackward, source: Source) -> None:
        self._call, self._source = call, source
        self._names: dict[fx.Node, str] = {}
        self._said = -1  # the visit of which the code has told `current_node`

    def write(self) -> None:
        source, graph = self._source, self._call.graph
        source.line("def backward(inputs, sizes, scalars, hooks, packed):")
        for name in ("inputs", "sizes", "scalars", "hooks", "packed"):
            source.fresh(name)  # no variable of the user's takes it
        source.indent()
        lists = {"tensor": "inputs", "size": "sizes", "scalar": "scalars"}
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        for node, lifted in zip(placeholders, self._call.inputs, strict=False):
            if node.users:
                self._names[node] = source.fresh(node.name)
                source.line(f"{self._names[node]} = {lists[lifted.kind]}[{lifted.position}]")
        source.line("del inputs[:]", "the caller keeps nothing that the backward could free")
        self._names |= {node: node.name for node in placeholders[len(self._call.inputs) :]}  # hooks, packed
        self._last = _last_uses(graph)
        for node in graph.nodes:
            if isinstance(node.target, Part):
                self._part(node)
                continue
            if node.op == "call_function":
                self._step(node)
            elif node.op == "get_attr":
                self._names[node] = source.bind(str(node.target), node.meta["constant"])
            elif node.op == "output":
                source.line(f"return {self._text(graphs.outputs(graph))}", "the gradients that were asked for")
            if node.op != "output":
                self._let_go(node)
        source.dedent()

    def _let_go(self, node: fx.Node) -> None:
        """Delete the variables of what no later node reads; constants have none."""
        gone = [self._names[one] for one in self._last.get(node, ()) if one.op != "get_attr"]
        if gone:
            self._source.line(f"del {', '.join(gone)}", comment=False)

    def _step(self, node: fx.Node) -> None:
        name = self._names[node] = self._source.fresh(node.name)
        visit = node.meta["visit"]
        fact = str(self._call.visits[visit]) if visit >= 0 else ""
        if node.target is operator.getitem:
            text = f"{self._text(node.args[0])}[{node.args[1]!r}]"
        elif node.target is steps.gradient_of:
            text = f"{self._text(node.args[0])}.grad"
        else:
            if node.target in steps.CALLS_PYTHON and visit != self._said:
                self._said = visit
                self._source.line(
                    f"{self._source.bind('at', current_node.at)}({self._call.visits[visit].number})", fact
                )
            target = self._source.bind(getattr(node.target, "__name__", "step"), node.target)
            given = [self._text(value) for value in node.args]
            given += [f"{key}={self._text(value)}" for key, value in node.kwargs.items()]
            text = f"{target}({', '.join(given)})"
        self._source.line(f"{name} = {text}", fact)

    def _part(self, node: fx.Node) -> None:
        """A compiled part. Only the list holds what is not read afterwards, so that the part can free it."""
        source = self._source
        name = self._names[node] = source.fresh(node.name)
        target = source.bind(getattr(node.target, "__name__", "part"), node.target)
        given = source.fresh("given")
        source.line(f"{given} = {self._text(node.args[0])}", "the part frees these when it no longer needs them")
        more = ""
        if len(node.args) > 1:
            leaves = source.fresh("leaves")
            source.line(f"{leaves} = {self._text(node.args[1])}", "the part adds to the gradients of these")
            more = f", {leaves}"
        self._let_go(node)
        source.line(f"{name} = {target}({given}{more})", comment=False)

    def _text(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return self._names[value]
        if isinstance(value, (list, tuple)):
            inner = ", ".join(map(self._text, value))
            if isinstance(value, list):
                return f"[{inner}]"
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if value is None or isinstance(value, (int, str)) or (isinstance(value, float) and math.isfinite(value)):
            return repr(value)
        return self._source.bind(type(value).__name__.lower(), value)


def _last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """Node -> what no later node reads."""
    last: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        for argument in node.all_input_nodes:
            last[argument] = node
        if node.op == "call_function" and not node.users and not isinstance(node.target, Part):
            last[node] = node
    found: dict[fx.Node, list[fx.Node]] = defaultdict(list)
    for node, reader in last.items():
        if node.op != "placeholder" or node.name not in ("hooks", "packed"):
            found[reader].append(node)
    return found
