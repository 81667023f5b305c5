"""What became of each autograd node of a captured backward, for a reader (the workbench's view "Backward")."""

from __future__ import annotations

from collections.abc import Mapping

import torch.fx as fx

from aotviz.whole_backward.captured import Account, WholeBackward
from aotviz.whole_backward.reasons import HOOKS


def of(call: WholeBackward, parts: Mapping[fx.Node, int]) -> tuple[Account, ...]:
    """One account per visit. `parts` gives the number of the compiled part of each node that is in one."""
    steps: list[list[fx.Node]] = [[] for _ in call.visits]
    last: dict[fx.Node, int] = {}  # inputs -> the visit that reads them last
    for node in call.graph.nodes:
        visit = node.meta.get("visit", -1)
        if node.op == "call_function" and visit >= 0:
            steps[visit].append(node)
            last |= {one: visit for one in node.all_input_nodes if one.op == "placeholder"}
    frees: list[list[str]] = [[] for _ in call.visits]
    inputs = call.graph.find_nodes(op="placeholder")
    for node, _ in zip(inputs, call.inputs, strict=False):  # without hooks and packed values, which the caller keeps
        if node in last:
            frees[last[node]].append(node.name)
    return tuple(
        Account(
            steps=tuple(node.name for node in some),
            hooks=tuple(HOOKS[node.target] for node in some if node.target in HOOKS),
            waits_for=_waits_for(position, some),
            frees=tuple(frees[position]),
            parts=tuple(dict.fromkeys(parts[node] for node in some if node in parts)),
            copied=next((node.name.split("_")[0] for node in some if node.meta.get("is_copied")), ""),
        )
        for position, some in enumerate(steps)
    )


def _waits_for(position: int, steps: list[fx.Node]) -> tuple[int, ...]:
    read = (one.meta.get("visit", -1) for node in steps for one in node.all_input_nodes if one.op == "call_function")
    return tuple(dict.fromkeys(visit for visit in read if visit not in (position, -1)))
