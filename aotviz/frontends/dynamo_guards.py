"""Dynamo guards for what a program assumes about its inputs.

If two inputs were merged into one, a guard checks that they are still the same tensor. Dynamo has no guard that checks
whether different tensors share memory: see memory_patterns.py.
"""

from __future__ import annotations

from typing import Any

import torch.fx as fx

from aotviz.runtime.lowered import Program
from aotviz.stages.dedupe import MergeDuplicates
from aotviz.torch_private import dynamo


def install(graph_module: Any, lifted: int, program: Program) -> None:
    """Add guards to Dynamo's running compilation. `lifted` is the number of inputs before the graph's own."""
    if not isinstance(graph_module, fx.GraphModule) or not dynamo.compiling():
        return
    sources = [None] * lifted + [dynamo.source(node) for node in graph_module.graph.find_nodes(op="placeholder")]
    for rewrite in program.call.rewrites:
        if isinstance(rewrite, MergeDuplicates):
            for index, place in enumerate(rewrite.position):
                first = rewrite.kept[place]
                if first != index:
                    dynamo.guard_same(sources[first], sources[index])
