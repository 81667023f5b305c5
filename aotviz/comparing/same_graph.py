"""Compare two graphs up to renaming.

Nodes are compared by operator, arguments, the values of constants and the graphs of higher-order operators, never by
name. A different order of the same nodes is distinguished from different results, because a partitioner or a hook may
reorder nodes without any visible effect.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import graphs


@dataclass(frozen=True)
class GraphDifference:
    """The first difference between two graphs. `ours` and `theirs` are a node's text; "" if one graph has ended.

    `kind`: "order" (same results, same nodes in another order), "extra" (same results, but one graph has nodes that
    the other does not have), "results" (different results).
    """

    kind: str
    ours: str
    theirs: str
    node: str  # our node's name; theirs if our graph has ended
    stack: str = ""  # where in the user's program that node comes from

    def __str__(self) -> str:
        if self.kind == "order":
            return f"the same nodes in another order, from {self.node}: {self.ours} against {self.theirs}"
        what = "one has more nodes" if self.kind == "extra" else "they differ"
        return f"{what}, first at {self.node}: {self.ours or 'nothing'} against {self.theirs or 'nothing'}"


def difference(ours: fx.GraphModule, theirs: fx.GraphModule) -> GraphDifference | None:
    """The first difference between two graphs up to renaming, or None.

    >>> import torch
    >>> a = torch.fx.symbolic_trace(lambda x, y: (x + y).sin())
    >>> b = torch.fx.symbolic_trace(lambda left, right: (left + right).sin())
    >>> difference(a, b)
    >>> print(difference(a, torch.fx.symbolic_trace(lambda x, y: (x + y).cos())))
    they differ, first at sin: call_method sin(%2) against call_method cos(%2)
    """
    mine, others = _Numbered(ours), _Numbered(theirs)
    for (node, text), (_, other_text) in zip(mine.lines, others.lines, strict=False):
        if text != other_text:
            return _told(mine, others, node, text, other_text)
    if len(mine.lines) == len(others.lines):
        return None
    longer = mine if len(mine.lines) > len(others.lines) else others
    node, text = longer.lines[min(len(mine.lines), len(others.lines))]
    return _told(mine, others, node, text if longer is mine else "", text if longer is others else "")


def _told(mine: _Numbered, others: _Numbered, node: fx.Node, ours: str, theirs: str) -> GraphDifference:
    kind = "results"
    ours_mean, theirs_mean = mine.meanings(), others.meanings()
    if ours_mean[mine.lines[-1][0]] == theirs_mean[others.lines[-1][0]]:
        kind = "order" if Counter(ours_mean.values()) == Counter(theirs_mean.values()) else "extra"
    return GraphDifference(kind, ours, theirs, node.name, str(node.meta.get("stack_trace") or ""))


class _Numbered:
    """A graph's nodes as text, with numbers instead of names."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.number: dict[fx.Node, int] = {}
        self.inputs = {node: i for i, node in enumerate(module.graph.find_nodes(op="placeholder"))}
        self.lines: list[tuple[fx.Node, str]] = []
        for index, node in enumerate(module.graph.nodes):
            self.number[node] = index
            self.lines.append((node, self._text(node, lambda n: f"%{self.number[n]}")))

    def _text(self, node: fx.Node, spell: Any) -> str:
        if node.op == "placeholder":
            return f"input {self.inputs[node]}"
        if node.op == "get_attr":
            return f"constant {_constant(self.module, str(node.target))}"
        arguments = [_spelled(a, spell) for a in node.args]
        arguments += [f"{k}={_spelled(v, spell)}" for k, v in sorted(node.kwargs.items())]
        if node.op == "output":
            return f"return {_spelled(node.args[0], spell)}"
        where = "" if node.op == "call_function" else f"{node.op} "
        return f"{where}{_target(node.target)}({', '.join(arguments)})"

    def meanings(self) -> dict[fx.Node, int]:
        """For each node, a hash of what it computes from the inputs. Each random draw counts as different.

        A plain copy counts as the same as its source: torch copies the input of a dropout that drops nothing.
        """
        found: dict[fx.Node, int] = {}
        draws = 0
        for node, _ in self.lines:
            if is_copy(node):
                found[node] = found[graphs.argument(node)]
                continue
            text = self._text(node, found.__getitem__)
            if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                draws += 1
                text += f" draw {draws}"
            found[node] = hash(text)
        return found


def is_copy(node: fx.Node) -> bool:
    """Whether a node copies another one without changing its layout."""
    return node.target is torch.ops.aten.clone.default and not node.kwargs and isinstance(node.args[0], fx.Node)


def _spelled(value: Any, spell: Any) -> str:
    if isinstance(value, fx.Node):
        return str(spell(value))
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_spelled(item, spell) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_spelled(v, spell)}" for k, v in value.items()) + "}"
    return repr(value)


def _target(target: Any) -> str:
    if isinstance(target, str):
        return target
    name = str(target) if type(target).__name__ in ("OpOverload", "HigherOrderOperator") else ""
    return name or f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}".removeprefix(
        "_operator."
    )


def _constant(module: fx.GraphModule, path: str) -> str:
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    if isinstance(value, fx.GraphModule):
        return "graph {" + "; ".join(text for _, text in _Numbered(value).lines) + "}"
    if isinstance(value, torch.Tensor):
        shown = value.tolist() if value.numel() <= 8 and type(value) in (torch.Tensor, torch.nn.Parameter) else "..."
        return f"{value.dtype}{list(value.shape)} {shown}"
    return repr(value)
