"""Tells mypy what torch leaves out: the nodes of an `fx.Graph` are of the class `Node`.

Torch declares them as Any, for the sake of another type checker (see `_node_list` in torch/fx/graph.py). Half of the
pipeline loops over nodes, so what it does with them would stay unchecked.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.nodes import FuncDef
from mypy.plugin import ClassDefContext, Plugin
from mypy.types import CallableType, UnboundType

_CLASSES = "torch.fx.graph.Graph", "torch.fx.graph._node_list"
_METHODS = "find_nodes", "__iter__", "__reversed__"  # each returns something of Any


def _with_nodes(context: ClassDefContext) -> None:
    for method in context.cls.defs.body:
        if isinstance(method, FuncDef) and method.name in _METHODS:
            for declared in (method.type, method.unanalyzed_type):
                if isinstance(declared, CallableType) and isinstance(declared.ret_type, UnboundType):
                    declared.ret_type.args = (UnboundType("Node"),)


class Nodes(Plugin):
    def get_customize_class_mro_hook(self, fullname: str) -> Callable[[ClassDefContext], None] | None:
        return _with_nodes if fullname in _CLASSES else None


def plugin(_version: str) -> type[Plugin]:
    return Nodes
