"""Where a tensor of a trace lies in the caller's memory.

A view that is taken after a write begins, in the trace, where it begins in the written value. That is another place if
an input does not begin where its storage does. For such a view, the statements that took it are repeated from there.
"""

from __future__ import annotations

from typing import Any

from aotviz.ir.view_and_mutation import Layout
from aotviz.tracing import functional
from aotviz.tracing.ledger import Ledger, Moved
from aotviz.tracing.views import layout


def callers_layout(ledger: Ledger, tensor: Any) -> Layout:
    """The layout in the caller's memory; the one in the trace, if that cannot be told."""
    root, path = ledger.path(tensor)
    if path and functional.has_storage(root) and functional.data_mutated(root) and layout(root).offset != 0:
        passed = {id(root), *(id(event.results[k]) for event, k in path)}
        if not any(isinstance(event, Moved) and id(event.tensor) in passed for event in ledger.events):
            return ledger.layout_after(root, path) or layout(tensor)
    return layout(tensor)
