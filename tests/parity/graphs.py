"""The graphs of two pipelines beside each other: which are the same after renaming, and why the others are not.

A cause is told from the graphs themselves:

    order    the same nodes and results in another order
    views    the same operators as often and on as many elements, but for views
    copies   the same results, but for copies
    pieces   one pipeline compiled what the other did not
    other    all else
"""

from __future__ import annotations

import difflib
from collections import Counter
from typing import Any

import torch.fx as fx
from torch.utils._pytree import tree_leaves

from aotviz.comparing.same_graph import difference, is_copy
from aotviz.torch_private.operators import may_alias
from tests.oracle.progress import Row, stable

Graphs = list[dict[str, Any]]  # a compilation each: role -> graph module
ROLES = ("joint", "forward", "backward")
CAUSES = {
    "order": "The nodes and the results are torch's, in another order.",
    "views": """The graphs have the same operators on the same numbers of elements, except for views. An output is a
view of a tensor that the graph computes. Torch's graph returns the view, and also the tensor if that is an output.
Our graph returns the tensor, and the wrapper makes the view, so that its base, `grad_fn` and version are eager's. Our
backward therefore takes the gradient of the tensor instead of the view's.""",
    "copies": "Torch's graph copies the input of a dropout that drops nothing. Eager and our graph return the input.",
    "pieces": """Dynamo split the program into more pieces for one pipeline than for the other. If torch's backend
raises an error on a piece, for example because it reads a number from a tensor, Dynamo runs that piece uncompiled and
compiles only the functions that it calls. aotviz compiles the whole piece, which includes these functions. The table
counts the pieces that both compiled and that were split in the same way.""",
    "other": "Not explained.",
}
LONGEST, WIDEST = 60, 150  # lines of an example, characters of a line


def beside(mine: Graphs, theirs: Graphs) -> Row:
    """How many graphs of each kind are torch's, the causes for which others are not, and a short example of each."""
    pairs = aligned(mine, theirs)
    same = dict.fromkeys(ROLES, 0)
    text = ""
    causes: list[str] = []
    examples: dict[str, list[str]] = {}  # of joint graphs
    for number, (one, other) in enumerate(pairs):
        of_joint: list[str] = []
        for role in ROLES:
            found = difference(one[role], other[role])
            if found is None:
                same[role] += 1
                continue
            whys = causes_of(one[role], other[role], found.kind)
            if role == "joint":
                of_joint = whys
                shown = diff(one[role], other[role])
                for why in whys:
                    examples[why] = min(examples.get(why, shown), shown, key=len)
            elif of_joint and "other" not in (*whys, *of_joint):
                whys = of_joint  # a half differs as the whole does that it was cut from
            causes += [why for why in whys if why not in causes]
            text = text or f"{role} graph {number}: {found.kind}: {found}"
    if len(mine) != len(theirs):
        parts, left = _parts_of_larger(mine, theirs, pairs)
        causes += ["pieces", *(["other"] if left else [])]
        what = f"{len(mine)} compilations against torch's {len(theirs)}, of which {len(pairs)} have their like"
        what += f" and {parts} do all of their work within a larger one" if parts else ""
        what += f", and {left} do not" if left else ""
        text = f"{what}; {text}" if text else what
    nodes = sum(len(one["joint"].graph.nodes) for one in mine)
    found = {"same": same, "count": len(pairs), "nodes": nodes, "text": stable(text), "causes": causes}
    return {**found, "examples": {why: lines[:LONGEST] for why, lines in examples.items()}}


def aligned(mine: Graphs, theirs: Graphs) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each of our compilations with torch's of the same piece, in order; pieces of one alone are left out."""
    if len(mine) == len(theirs):
        return list(zip(mine, theirs, strict=True))
    pairs, rest = [], list(mine)
    for other in theirs:
        for k, one in enumerate(rest):
            found = difference(one["joint"], other["joint"])
            if found is None or causes_of(one["joint"], other["joint"], found.kind) != ["other"]:
                pairs.append((one, other))
                rest = rest[k + 1 :]
                break
    return pairs


def _parts_of_larger(
    mine: Graphs, theirs: Graphs, pairs: list[tuple[dict[str, Any], dict[str, Any]]]
) -> tuple[int, int]:
    """Of torch's compilations without their like, how many a larger one of ours contains, and how many none does."""
    paired = {id(other["joint"]) for _, other in pairs}
    alone = [_work(other["joint"]) for other in theirs if id(other["joint"]) not in paired]
    ours = [_work(one["joint"]) for one in mine]
    within = sum(any(work <= larger for larger in ours) for work in alone)
    return within, len(alone) - within


def causes_of(one: fx.GraphModule, other: fx.GraphModule, kind: str) -> list[str]:
    """Why two graphs are not the same; `kind` is that of their `GraphDifference`."""
    if kind == "order":
        return ["order"]
    if _work(one) != _work(other):
        return ["other"]
    copies = [sum(map(is_copy, module.graph.nodes)) for module in (one, other)]
    found = ["copies"] if copies[0] != copies[1] else []
    return found if found and kind == "extra" else [*found, "views"]


def _work(module: fx.GraphModule) -> Counter[str]:
    """What a graph computes, views and copies left out: operator, type and number of elements of each result."""
    calls = [node for node in module.graph.nodes if node.op == "call_function" and not may_alias(node.target)]
    calls = [node for node in calls if not is_copy(node)]
    return Counter(f"{node.target} {_size(node.meta.get('val'))}" for node in calls)


def _size(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return str([_size(item) for item in value])
    return f"{value.dtype} {value.numel()}" if hasattr(value, "numel") else type(value).__name__


def diff(one: fx.GraphModule, other: fx.GraphModule) -> list[str]:
    """Our graph as it parts from torch's: lines of a unified diff, from theirs to ours."""
    found = difflib.unified_diff(_lines(other), _lines(one), "torch", "aotviz", lineterm="", n=1)
    return [line if len(line) <= WIDEST else line[: WIDEST - 1] + "…" for line in found]


def _lines(module: fx.GraphModule) -> list[str]:
    """A line a node, named by its operator and its place among those of that operator."""
    names: dict[fx.Node, str] = {}
    seen: Counter[str] = Counter()
    lines = []
    for node in module.graph.nodes:
        kind = "input" if node.op == "placeholder" else str(getattr(node.target, "__name__", node.target)).split(".")[0]
        seen[kind] += 1
        names[node] = f"{kind}_{seen[kind]}"
        given = tree_leaves(node.args) if node.op == "output" else node.args
        arguments = ", ".join(str(fx.map_arg(a, names.__getitem__)) for a in given).replace("'", "")
        if node.op == "output":
            lines.append(f"return {arguments}")
        elif node.op != "placeholder":
            lines.append(f"{names[node]} = {node.target}({arguments})")
    return lines


def table(rows: list[Row]) -> list[str]:
    """A line a family, then each cause with the shortest example of it."""
    judged = [row for row in rows if "graphs" in row]
    lines = ["### Graphs, after renaming", ""]
    lines += ["| family | graphs | joint nodes | joint | forward | backward | cause | first difference |"]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: | --- | --- |"]
    for row in judged:
        found = row["graphs"]
        counts = [f"{found['same'].get(role, 0)} of {found['count']} same" for role in ROLES]
        text = found["text"].replace("|", "\\|")
        why = ", ".join(found.get("causes", []))
        counts = " | ".join(counts)
        lines.append(f"| {row['key']} | {found['count']} | {found.get('nodes', '')} | {counts} | {why} | {text} |")
    whole = [row for row in judged if set(row["graphs"]["same"].values()) == {row["graphs"]["count"]}]
    lines += [
        "",
        f"In {len(whole)} of {len(judged)} families all graphs are torch's. The others differ for these reasons:",
    ]
    for why, meaning in CAUSES.items():
        having = [row for row in judged if why in row["graphs"].get("causes", [])]
        if not having:
            continue
        lines += ["", f"**{why}** ({', '.join(row['key'] for row in having)}). {meaning}"]
        examples = [(row["key"], row["graphs"]["examples"].get(why)) for row in having]
        shown = min(((lines, key) for key, lines in examples if lines), key=lambda pair: len(pair[0]), default=None)
        if shown:
            lines += ["", f"From {shown[1]}, torch's lines (-) and ours (+):", "", "```diff", *shown[0][2:], "```"]
    return [*lines, ""]
