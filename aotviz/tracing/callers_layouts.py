"""Where a tensor of a trace lies in the caller's memory.

A view that is taken after a write begins, in the trace, where it begins in the written value. That is another place if
an input does not begin where its storage does. For such a view, the statements that took it are repeated from there.
"""

from __future__ import annotations

import torch

from aotviz.ir.view_and_mutation import Layout
from aotviz.tracing import functional
from aotviz.tracing.events import MetadataOp, TensorNumber
from aotviz.tracing.ledger import Ledger
from aotviz.tracing.views import contiguous, layout


def callers_layout(ledger: Ledger, tensor: torch.Tensor) -> Layout:
    """The layout in the caller's memory; the one in the trace, if that cannot be told."""
    return known_layout(ledger, tensor) or layout(tensor)


def known_layout(ledger: Ledger, tensor: torch.Tensor) -> Layout | None:
    """The layout in the caller's memory; None if that cannot be told."""
    number, path = ledger.path(ledger.number(tensor))
    root = ledger.tensors[number] if path else None
    if root is None or not (functional.has_storage(root) and functional.data_mutated(root) and layout(root).offset):
        return layout(tensor)
    passed = {number, *(event.results[k] for event, k in path)}
    if any(event.tensor in passed for event in ledger.metadata_ops()):
        return None
    return ledger.layout_after(number, path)


def looks_contiguous(ledger: Ledger, tensor: torch.Tensor, lies: Layout) -> bool:
    """Whether a view of a written tensor is contiguous in the trace but not in the caller's memory. There `contiguous`
    and `reshape` would copy, and the program would behave differently. `lies`: the tensor's layout before the run."""
    number = ledger.number(tensor)
    if not ledger.is_viewed(number) or not lies.concrete:
        return False
    moved: set[TensorNumber] = set()
    for event in ledger.events:
        if isinstance(event, MetadataOp):
            moved.add(event.tensor)
            lies = event.where or lies if event.tensor == number else lies
        for view, where in ledger.views_of_memory(number, (event,)):
            _, path = ledger.path(view)
            passed = any(one.source in moved and one.source != number for one, _ in path)
            if passed or not (where.concrete and contiguous(where)):
                continue
            if not contiguous(ledger.layout_after(number, path, lies) or where):
                return True
    return False
