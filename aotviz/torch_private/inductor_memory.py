"""What Inductor must know of memory that others see, and asks nobody about.

It overwrites saved tensors that are donated to a backward; its cache of compiled graphs takes no note of which ones
these are, so a backward that must keep them could be answered with one that doesn't. And it uses the memory of a
tensor again once no node reads it, though a script object may still hold that tensor. Both are told to it by a pass
over its scheduler's nodes, the one place where a caller's code runs while a graph's memory is planned and which the
cache's key names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._inductor import config, custom_graph_pass
from torch._inductor.virtualized import V

# What Inductor takes for a pass with a name of its own; in older releases, one class served for all passes.
_Pass: Any = getattr(custom_graph_pass, "CustomSchedulerPass", custom_graph_pass.CustomGraphPass)
_METHOD = torch.ops.higher_order.call_torchbind


class _MemoryFacts(_Pass):
    """Runs before fusion, and then the user's own pass, if there is one."""

    def __init__(self, donated: Sequence[int], before: Any) -> None:
        self.donated, self.before = tuple(donated), before

    def __call__(self, nodes: list[Any]) -> list[Any]:
        for node in nodes:
            if getattr(node.node, "op_overload", None) is _METHOD:
                V.graph.never_reuse_buffers.update(value.get_name() for value in node.node.inputs)
        return nodes if self.before is None else self.before(nodes)

    def uuid(self) -> Any:
        """Names this pass, and the user's, in a cache key."""
        theirs = self.before.uuid() if isinstance(self.before, _Pass) else None
        return ("aotviz memory", self.donated, theirs)


def memory_facts(graph_module: fx.GraphModule, donated: Sequence[int] | None) -> contextlib.AbstractContextManager[Any]:
    """Must be active while Inductor compiles `graph_module`, whose inputs `donated` it may overwrite.

    `donated` is None for a forward, which is given nothing of the kind.
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
