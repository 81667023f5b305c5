"""What a program takes for granted about its inputs, as guards of Dynamo's.

Where two inputs were merged into one, that they are the same tensor becomes such a guard. That arguments share memory,
or do not, Dynamo has no guard for: see memory_patterns.py.
"""

from __future__ import annotations

from typing import Any

import torch.fx as fx

from aotviz.runtime.lowered import Program
from aotviz.stages.dedupe import MergeDuplicates
from aotviz.torch_private import dynamo


def install(graph_module: Any, lifted: int, program: Program) -> None:
    """Add guards to the compilation that Dynamo has going. `lifted` inputs stand before the graph's own."""
    if not isinstance(graph_module, fx.GraphModule) or not dynamo.compiling():
        return
    sources = [None] * lifted + [dynamo.source(node) for node in graph_module.graph.find_nodes(op="placeholder")]
    for rewrite in program.call.rewrites:
        if isinstance(rewrite, MergeDuplicates):
            for index, place in enumerate(rewrite.position):
                first = rewrite.kept[place]
                if first != index:
                    dynamo.guard_same(sources[first], sources[index])
