"""Tell Inductor about memory that is still used outside of its graph.

Inductor overwrites saved tensors that are donated to a backward, but the key of its cache does not say which ones these
are. The cache could then return a backward that overwrites tensors for a backward that must keep them. Inductor also
reuses the memory of a tensor when no node reads it any more, although a script object may still hold the tensor. A pass
over the scheduler's nodes solves both: it runs while Inductor plans the memory of a graph, and the cache key contains
its uuid. No other place allows both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._inductor import config, custom_graph_pass
from torch._inductor.virtualized import V

# The class of passes that have a uuid. Older releases have one class for all kinds of passes.
_Pass: Any = getattr(custom_graph_pass, "CustomSchedulerPass", custom_graph_pass.CustomGraphPass)
_METHOD = torch.ops.higher_order.call_torchbind


class _MemoryFacts(_Pass):
    """A pass that runs before fusion. It then calls the user's own pass, if there is one."""

    def __init__(self, donated: Sequence[int], before: Any) -> None:
        self.donated, self.before = tuple(donated), before

    def __call__(self, nodes: list[Any]) -> list[Any]:
        for node in nodes:
            if getattr(node.node, "op_overload", None) is _METHOD:
                V.graph.never_reuse_buffers.update(value.get_name() for value in node.node.inputs)
        return nodes if self.before is None else self.before(nodes)

    def uuid(self) -> Any:
        """Identifies this pass, and the user's, in a cache key."""
        theirs = self.before.uuid() if isinstance(self.before, _Pass) else None
        return ("aotviz memory", self.donated, theirs)


def memory_facts(graph_module: fx.GraphModule, donated: Sequence[int] | None) -> contextlib.AbstractContextManager[Any]:
    """A context for compiling `graph_module` with Inductor. It may overwrite the inputs at the positions `donated`.

    `donated` is None for a forward, which has no donated inputs.
    """
    calls_methods = any(_METHOD in (node.target, *node.args[:2]) for node in graph_module.graph.nodes)
    if donated is None and not calls_methods:
        return contextlib.nullcontext()
    before = config._pre_fusion_custom_pass
    told: Any = _MemoryFacts(donated or (), before)
    if before is not None and not isinstance(before, _Pass):
        told = told.__call__  # a bare function, like the user's own, keeps the graph out of the cache
    patched: contextlib.AbstractContextManager[Any] = config.patch(_pre_fusion_custom_pass=told)
    return patched
