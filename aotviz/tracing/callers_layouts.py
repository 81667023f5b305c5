"""Where a tensor of a trace lies in the caller's memory.

A view that is taken after a write begins, in the trace, where it begins in the written value. That is another place if
an input does not begin where its storage does. For such a view, the statements that took it are repeated from there.
"""

from __future__ import annotations

import torch

from aotviz.ir.view_and_mutation import Layout
from aotviz.tracing import functional
from aotviz.tracing.ledger import Ledger, MetadataOp
from aotviz.tracing.views import contiguous, layout


def callers_layout(ledger: Ledger, tensor: torch.Tensor) -> Layout:
    """The layout in the caller's memory; the one in the trace, if that cannot be told."""
    return known_layout(ledger, tensor) or layout(tensor)


def known_layout(ledger: Ledger, tensor: torch.Tensor) -> Layout | None:
    """The layout in the caller's memory; None if that cannot be told."""
    root, path = ledger.path(tensor)
    if not (path and functional.has_storage(root) and functional.data_mutated(root) and layout(root).offset != 0):
        return layout(tensor)
    passed = {id(root), *(id(event.results[k]) for event, k in path)}
    if any(isinstance(event, MetadataOp) and id(event.tensor) in passed for event in ledger.events):
        return None
    return ledger.layout_after(root, path)


def looks_contiguous(ledger: Ledger, tensor: torch.Tensor, lies: Layout) -> bool:
    """Whether a view of a written tensor is contiguous in the trace but not in the caller's memory. There `contiguous`
    and `reshape` would copy, and the program would behave differently. `lies`: the tensor's layout before the run."""
    if not ledger.is_viewed(tensor) or not lies.concrete:
        return False
    moved: set[int] = set()
    for event in ledger.events:
        if isinstance(event, MetadataOp):
            moved.add(id(event.tensor))
            lies = event.where or lies if event.tensor is tensor else lies
        for view, where in ledger.views_of_memory(tensor, (event,)):
            _, path = ledger.path(view)
            passed = any(id(one.source) in moved and one.source is not tensor for one, _ in path)
            if passed or not (where.concrete and contiguous(where)):
                continue
            if not contiguous(ledger.layout_after(tensor, path, lies) or where):
                return True
    return False
