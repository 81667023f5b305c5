"""Graphs from Dynamo that register hooks which Dynamo sets after the forward: they are compiled in pieces.

While torch's compiled autograd is switched on, Dynamo does not stop at a gradient hook on an intermediate tensor. The
graph has a call that registers the hook, and an input, a `BackwardState`, where Dynamo puts the hook after each
forward. For a backward hook of a module, it also has calls of the `BackwardHook` that such a call returns. When the
backward is captured, the backward of a compiled graph is one node, and no hook can be called in the middle of it. So
the graph is split at these calls, as Dynamo does otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.fx as fx
from torch.fx.passes.split_module import split_module
from torch.utils.hooks import BackwardHook

from aotviz.frontends import dynamo_graphs
from aotviz.torch_private import dynamo, runtime

OF_HOOKS = (dynamo.BackwardState, BackwardHook)  # neither is a value that a compiled graph can take
Compile = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def compiled_in_pieces(module: Any, inputs: Sequence[Any], compile_piece: Compile) -> Callable[..., Any] | None:
    """The graph, with what lies between two such calls compiled; None if it has no such call."""
    if not isinstance(module, fx.GraphModule):
        return None
    holders = [node for node in module.graph.nodes if isinstance(node.meta.get("example_value"), OF_HOOKS)]
    registering = {user for node in holders for user in node.users}
    if not registering:
        return None
    whole, pieces = _split(module, holders, registering)
    given = dict(zip(whole.graph.find_nodes(op="placeholder"), inputs, strict=True))
    for call in pieces:
        piece = getattr(whole, str(call.target))
        dynamo_graphs.describe(piece, module)
        places = piece.graph.find_nodes(op="placeholder")
        pairs = zip(call.args, places, strict=True)
        examples = [given.get(outer, inner.meta.get("example_value")) for outer, inner in pairs]
        call.op, call.target = "call_function", _of_tuple(piece, compile_piece, examples)
    whole.recompile()

    def in_pieces(*inputs: Any) -> Any:
        return whole(*inputs)

    return runtime.skipped(in_pieces)


def _split(
    module: fx.GraphModule, holders: Sequence[fx.Node], registering: set[fx.Node]
) -> tuple[fx.GraphModule, list[fx.Node]]:
    """The graph as calls of pieces, and those calls that do not register hooks."""
    number, numbers = 0, {}
    before: fx.Node | None = None
    for node in module.graph.nodes:
        number += node in registering or before in registering
        numbers[node], before = number, node
    held = [node.meta.pop("example_value") for node in holders]  # split_module() looks for symbols in it
    try:
        whole = split_module(module, module, numbers.__getitem__, keep_original_order=True)
    finally:
        for node, value in zip(holders, held, strict=True):
            node.meta["example_value"] = value
    as_they_are = {f"submod_{numbers[node]}" for node in registering}
    return whole, [node for node in whole.graph.find_nodes(op="call_module") if node.target not in as_they_are]


def _of_tuple(piece: fx.GraphModule, compile_piece: Compile, examples: Sequence[Any]) -> Callable[..., Any]:
    """A compiled piece. A graph for a compiler returns a tuple; a piece with one result returns it alone."""
    output = piece.graph.output_node()
    if isinstance(output.args[0], tuple):
        return compile_piece(piece, examples)
    output.args = ((output.args[0],),)
    piece.recompile()
    compiled = compile_piece(piece, examples)

    def alone(*inputs: Any) -> Any:
        return compiled(*inputs)[0]

    return alone
