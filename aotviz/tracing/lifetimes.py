"""Which saved tensors die with the backward that reads them, and why others do not (SYSTEM.md D6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.forms import Split
from aotviz.tracing import functional


def deaths(call: Split) -> list[tuple[bool, str]]:
    """For each saved value, whether only the backward can see it, and why."""
    forward, backward = call.forward_module.graph, call.backward_module.graph
    inputs = _storages(graphs.placeholders(forward))
    outputs = _storages(graphs.outputs(forward)[: len(call.slots)])
    gradients = _storages(graphs.outputs(backward))
    kept = Counter(functional.storage(s.value) for s in call.saved if functional.has_storage(s.value))

    def judge(value: Any) -> tuple[bool, str]:
        if not isinstance(value, torch.Tensor):
            return False, "a number has no memory"
        if not functional.has_storage(value):
            return False, "it is sparse and uses several storages"
        key = functional.storage(value)
        if key in inputs:
            return False, "it shares memory with an input"
        if key in outputs:
            return False, "it shares memory with an output"
        if key in gradients:
            return False, "a gradient is a view of it"
        if kept[key] > 1:
            return False, "another saved tensor shares its memory"
        return True, "nothing outside the backward shares its memory"

    return [judge(saved.value) for saved in call.saved]


def _storages(nodes: Iterable[Any]) -> set[Any]:
    values = (node.meta.get("val") for node in nodes if isinstance(node, fx.Node))
    return {functional.storage(value) for value in values if functional.has_storage(value)}
