"""Graph modules that compile their Python only when somebody calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx as fx
from torch.fx._lazy_graph_module import _LazyGraphModule, _make_graph_module, _use_lazy_graph_module


def lazy_graph_module(root: Any, graph: fx.Graph) -> fx.GraphModule:
    """A graph module over `root`'s constants. Its source is generated at the first call."""
    with _use_lazy_graph_module(True):
        return _make_graph_module(root, graph)


def plain_graph_module(root: Any, graph: fx.Graph) -> fx.GraphModule:
    """The same, of FX's own class: a compiler of the user's may script it, or look at its Python."""
    with _use_lazy_graph_module(False):
        return _make_graph_module(root, graph)


def forward_of(module: fx.GraphModule) -> Callable[..., Any]:
    """The Python of a graph, past the hooks that a user lets run at every module: a graph is none of the user's."""
    _LazyGraphModule.force_recompile(module)
    return module.forward
