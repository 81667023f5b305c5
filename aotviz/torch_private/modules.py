"""Graph modules that compile their Python only when somebody calls them."""

from __future__ import annotations

from typing import Any

import torch.fx as fx
from torch.fx._lazy_graph_module import _make_graph_module, _use_lazy_graph_module


def lazy_graph_module(root: Any, graph: fx.Graph) -> fx.GraphModule:
    """A graph module over `root`'s constants. Its source is generated at the first call."""
    with _use_lazy_graph_module(True):
        return _make_graph_module(root, graph)
