"""A graph as a Python function: one statement for each operator.

Inputs have the user's names, and a comment with dtype and shape. A comment with the user's line stands above the
operators that come from it. A graph inside a graph (a branch of `torch.cond`) becomes a function of its own.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.spelling import keywords, literal, spoken
from aotviz.recording.listing import SHORT
from aotviz.recording.sources import innermost
from aotviz.runtime.codegen import Source
from aotviz.standalone.spelled import Spelling

Names = Mapping[str, str]  # of an input of the graph -> the user's name of it


class GraphFunctions:
    """Writes the graphs of one program. `lines` are the functions, those inside of others first."""

    def __init__(self, spelling: Spelling) -> None:
        self.spelling = spelling
        self.lines: list[str] = []
        self._constants: dict[int, str] = {}

    def write(self, name: str, module: fx.GraphModule, about: str, names: Names) -> str:
        """Write one graph, with a docstring. Returns the name of the function."""
        with self.spelling.within(about):
            body = _Body(self, module, names).lines()
        self.lines += ["", "", f"def {name}({_parameters(body.parameters)}", f'    """{docstring(spoken(about))}"""']
        self.lines += body.lines
        return name

    def constant(self, module: fx.GraphModule, target: str) -> str:
        """The name of a constant of a graph; a graph inside of it is written as a function."""
        value = module
        for part in target.split("."):
            value = getattr(value, part)
        known = self.spelling.known(value)
        if known is not None:
            return known
        name = self.spelling.fresh(target.lstrip("_"))
        if isinstance(value, fx.GraphModule):
            self.write(name, value, f"the graph {target}", {})
        else:
            text = self.spelling.of(value)
            self.lines += ["", f"{name} = {text}"]
        self.spelling.name(name, value)
        return name


class _Written:
    """The parameters of a function, each with a comment, and its statements."""

    def __init__(self) -> None:
        self.parameters: list[tuple[str, str]] = []
        self.lines: list[str] = []


class _Body:
    def __init__(self, functions: GraphFunctions, module: fx.GraphModule, names: Names) -> None:
        self.functions, self.module, self.names = functions, module, names
        self.spelling = functions.spelling
        self.local = Source()  # its names are not those of the file, which it may refer to
        self.of_node: dict[fx.Node, str] = {}
        self.written = _Written()
        self._said = ""

    def lines(self) -> _Written:
        for node in self.module.graph.nodes:
            write = getattr(self, f"_{node.op}", None)
            if write is None:
                raise self.spelling.refuse(f"it has a node of the kind {node.op}, {node.name}")
            write(node)
        return self.written

    def _named(self, node: fx.Node, hint: str) -> str:
        name = self.of_node[node] = self.spelling.local(self.local, hint)
        return name

    def _placeholder(self, node: fx.Node) -> None:
        name = self._named(node, self.names.get(node.name, node.name))
        described = node.meta.get("desc")
        about = "" if described is None else self._spoken(str(described))
        told = "" if about.removeprefix("saved ") == name else about
        self.written.parameters.append((name, ", ".join(filter(None, (spoken(type_of(node.meta.get("val"))), told)))))

    def _get_attr(self, node: fx.Node) -> None:
        self.of_node[node] = self.functions.constant(self.module, str(node.target))

    def _call_function(self, node: fx.Node) -> None:
        if node.target is operator.getitem and not node.kwargs:
            value, item = map(self._argument, node.args)
            text = f"{value}[{item}]"
        else:
            named = keywords((name, self._argument(value)) for name, value in node.kwargs.items())
            given = ", ".join([*map(self._argument, node.args), *named])
            text = f"{self.spelling.of(node.target)}({given})"
        self._say(innermost(node.meta.get("stack_trace") or "").code)
        self.written.lines.append(f"    {self._named(node, node.name)} = {text}")

    def _output(self, node: fx.Node) -> None:
        results, described = node.args[0], node.meta.get("desc")
        self._say("")
        if not isinstance(results, (list, tuple)):
            self.written.lines.append(f"    return {self._argument(results)}")
            return
        about = described if isinstance(described, (list, tuple)) else [None] * len(results)
        self.written.lines.append("    return (")
        for value, one in zip(results, about, strict=False):
            comment = "" if one is None else f"  # {self._spoken(str(one))}"
            self.written.lines.append(f"        {self._argument(value)},{comment}")
        self.written.lines.append("    )")

    def _spoken(self, text: str) -> str:
        kind, _, name = text.partition(" ")
        return spoken(f"{kind} {self.names[name]}" if name in self.names else text)

    def _say(self, line: str) -> None:
        """A comment with the user's line, where another one begins."""
        if line and line != self._said:
            self.written.lines.append(f"    # {spoken(line)}")
        self._said = line

    def _argument(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return self.of_node[value]
        if isinstance(value, slice):
            return f"slice({', '.join(map(self._argument, (value.start, value.stop, value.step)))})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{literal(key)}: {self._argument(one)}" for key, one in value.items()) + "}"
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields") and not isinstance(value, torch.Size):
            items = ", ".join(map(self._argument, value))
            if isinstance(value, list):
                return f"[{items}]"
            return f"({items},)" if len(value) == 1 else f"({items})"
        return self.spelling.of(value)


def _parameters(parameters: Sequence[tuple[str, str]]) -> str:
    if not parameters:
        return "):"
    lines = [f"    {name}," + (f"  # {about}" if about else "") for name, about in parameters]
    return "\n".join(["", *lines, "):"])


def type_of(value: Any) -> str:
    """A value's type in brief: `f32[4, s0]`."""
    if not isinstance(value, torch.Tensor):
        return "" if value is None else type(value).__name__
    dtype = str(value.dtype)
    return f"{SHORT.get(dtype, dtype)}[{', '.join(map(str, value.shape))}]"


def docstring(text: str) -> str:
    """A text for between triple quotes."""
    return text.replace("\\", "\\\\").replace('"""', r"\"\"\"").removesuffix('"') + (
        '\\"' if text.endswith('"') else ""
    )


def users_names(graph: fx.Graph) -> dict[str, str]:
    """The user's names of the inputs of a forward graph."""
    described = ((node, node.meta.get("desc")) for node in graphs.placeholders(graph))
    return {node.name: str(about) for node, about in described if about is not None}
