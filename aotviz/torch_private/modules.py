"""Graph modules that compile their Python only when somebody calls them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from types import MethodType
from typing import Any

import torch.fx as fx
from torch.fx._lazy_graph_module import _make_graph_module, _use_lazy_graph_module
from torch.fx.graph_module import _forward_from_src


def lazy_graph_module(root: Any, graph: fx.Graph) -> fx.GraphModule:
    """A graph module over `root`'s constants. Its source is generated at the first call."""
    with _use_lazy_graph_module(True):
        return _make_graph_module(root, graph)


def plain_graph_module(root: Any, graph: fx.Graph) -> fx.GraphModule:
    """The same, of FX's own class: a compiler of the user's may script it, or look at its Python."""
    with _use_lazy_graph_module(False):
        return _make_graph_module(root, graph)


def boxed(module: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """The Python of a graph as a function of a list, which it empties: an argument is freed after its last use.

    Its source is generated at the first call. It passes by the hooks that a user lets run at every module, for a graph
    is none of the user's.
    """

    @functools.cache
    def forward() -> Callable[[list[Any]], Any]:
        graph = module.graph
        codegen = graph._codegen
        graph.set_codegen(_Boxed())
        try:
            code = graph.python_code("self")
        finally:
            graph.set_codegen(codegen)
        return MethodType(_forward_from_src(code.src, code.globals), module)

    return lambda args: forward()(args)


class _Boxed(fx.graph.CodeGen):
    """Arguments in one list."""

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **_: Any) -> str:
        found = (re.match(r"\w+", variable) for variable in free_vars)
        names = [name[0] for name in found if name is not None and name[0] != "self"]
        given = "args"
        while given in names:
            given += "_"
        unpacked = [f"    {', '.join(names)}, = {given}", f"    {given}.clear()"] if names else []
        return "\n".join([f"def forward(self, {given}){maybe_return_annotation}:", *unpacked])
