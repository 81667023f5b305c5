"""Which saved tensors the backward may overwrite (SYSTEM.md D6).

A saved tensor that shares memory with no input, no output and no gradient dies with the backward that reads it, so
the backward may put a gradient in its place. A second backward through the same graph (`retain_graph=True`) still
needs it: for that, a backward that donates nothing is compiled when it is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.forms import Reason, SavedTensor, Split
from aotviz.torch_private import functional


def run(call: Split) -> Split:
    """Split -> Split."""
    forward, backward = call.forward_module.graph, call.backward_module.graph
    inputs = _storages(graphs.placeholders(forward))
    outputs = _storages(graphs.outputs(forward)[: len(call.slots)])
    gradients = _storages(graphs.outputs(backward))
    kept = Counter(functional.storage(s.value) for s in call.saved if isinstance(s.value, torch.Tensor))

    def judge(saved: SavedTensor) -> tuple[bool, str]:
        if not isinstance(saved.value, torch.Tensor):
            return False, "a number has no memory to give"
        key = functional.storage(saved.value)
        if key in inputs:
            return False, "it shares memory with an input"
        if key in outputs:
            return False, "it shares memory with an output"
        if key in gradients:
            return False, "a gradient is a view of it"
        if kept[key] > 1:
            return False, "another saved tensor shares its memory"
        if not call.options.donate_buffers:
            return False, "donate_buffers is off"
        return True, "nothing outside the backward shares its memory"

    saved = []
    for value in call.saved:
        donated, why = judge(value)
        saved.append(replace(value, donated=donated, why_donated=why))
    evidence = tuple(Reason(s.name, f"{'donated' if s.donated else 'not donated'}: {s.why_donated}") for s in saved)
    return replace(call, saved=tuple(saved), evidence=evidence)


def _storages(nodes: Iterable[Any]) -> set[Any]:
    values = (node.meta.get("val") for node in nodes if isinstance(node, fx.Node))
    return {functional.storage(value) for value in values if isinstance(value, torch.Tensor)}
