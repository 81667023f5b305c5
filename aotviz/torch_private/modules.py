"""Private attributes of modules, and graph modules whose Python code is generated at the first call."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Set
from operator import attrgetter
from types import MethodType
from typing import Any

import torch
import torch.fx as fx
from torch.fx._lazy_graph_module import _make_graph_module, _use_lazy_graph_module
from torch.fx.graph_module import _forward_from_src

CONVERTS = torch.nn.Module._apply.__code__
"""The code that converts the parameters of a module, as `Module.to` does."""


tensors_of: Callable[[torch.nn.Module], tuple[dict[str, Any], dict[str, Any]]] = attrgetter("_parameters", "_buffers")
"""The dicts of a module's parameters and of its buffers, by name."""

pre_hooks: Callable[[torch.nn.Module], Any] = attrgetter("_forward_pre_hooks")
"""The forward pre-hooks of a module, by number."""

hooks_of: Callable[[torch.nn.Module], tuple[Any, ...]] = attrgetter(
    "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"
)
"""The hooks of a module's forward and backward, as dicts by number."""


def graph_module(root: Any, graph: fx.Graph, lazy: bool = True) -> fx.GraphModule:
    """A graph module over `root`'s constants. `lazy`: its source is generated at the first call; else it is a plain
    `fx.GraphModule`, which a user's compiler may script, or read the code of."""
    with _use_lazy_graph_module(lazy):
        return _make_graph_module(root, graph)


def boxed(module: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """`boxed_now`, but the code is generated at the first call."""
    forward = functools.cache(lambda: boxed_now(module))
    return lambda args: forward()(args)


def boxed_now(module: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """The Python code of a graph as a function of a list, which it empties: an argument is freed after its last use.

    It skips the global module hooks, since a graph is not a module of the user's.
    """
    graph = module.graph
    codegen = graph._codegen
    inputs = graph.find_nodes(op="placeholder")
    unread = {node.name for node in inputs if not node.users and node.name == node.target}
    graph.set_codegen(_Boxed(unread))
    try:
        code = graph.python_code("self")
    finally:
        graph.set_codegen(codegen)
    return MethodType(_forward_from_src(*_direct(graph, code.src, code.globals)), module)


def _direct(graph: fx.Graph, text: str, names: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Let the code call the dispatcher by a global name: `torch.ops.aten.sin.default(x)` looks up four attributes and
    runs a Python function on its way there, which takes longer than many operators."""
    taken = {node.name for node in graph.nodes}
    called = {str(node.target): node.target._op for node in graph.nodes if type(node.target) is torch._ops.OpOverload}
    free = {name: called[one] for one in called if (name := one.replace(".", "_")) not in taken}

    def shorter(call: re.Match[str]) -> str:
        name = call[2].replace(".", "_")
        return call[1] + name if name in free else call[0]

    return _OPERATOR.sub(shorter, text), {**names, **free}


_OPERATOR = re.compile(r"^( +\w+ = )torch\.ops\.(\w+\.\w+\.\w+)(?=\()", re.MULTILINE)


class _Boxed(fx.graph.CodeGen):
    """Arguments in one list. Those that no node reads are freed at once."""

    def __init__(self, unread: Set[str]) -> None:
        super().__init__()
        self._unread = unread

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **_: Any) -> str:
        found = (re.match(r"\w+", variable) for variable in free_vars)
        names = [name[0] for name in found if name is not None and name[0] != "self"]
        given = "args"
        while given in names:
            given += "_"
        unpacked = [f"    {', '.join(names)}, = {given}", f"    {given}.clear()"] if names else []
        unpacked += [f"    del {name}" for name in names if name in self._unread]
        return "\n".join([f"def forward(self, {given}){maybe_return_annotation}:", *unpacked])


@contextlib.contextmanager
def flat_weights_kept(module: torch.nn.Module) -> Iterator[None]:
    """Restore the list of weights of recurrent modules, which they rebuild in a call with other weights, as
    in a trace."""
    held = [(one, one._flat_weights) for one in module.modules() if isinstance(one, torch.nn.RNNBase)]
    try:
        yield
    finally:
        for one, weights in held:
            one._flat_weights = weights
