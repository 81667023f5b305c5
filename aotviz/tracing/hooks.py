"""A saved tensor hook that is a graph, traced for one tensor so that it can be inserted into another graph."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir.refusals import Refused
from aotviz.ir.symbolic_sizes import SYMBOLIC
from aotviz.ir.wrapper_subclasses import is_subclass
from aotviz.torch_private import pytree
from aotviz.tracing import functional
from aotviz.tracing.open_trace import OpenTrace


@dataclass(frozen=True)
class SavedHookContext:
    """What a saved tensor hook can ask about its surroundings while it is traced."""

    name: str  # of the saved tensor's node, in the forward graph
    forward: fx.Graph
    backward: fx.Graph


_context: contextvars.ContextVar[SavedHookContext | None] = contextvars.ContextVar("saved_hook", default=None)


def saved_hook_context() -> SavedHookContext | None:
    """Called by a saved tensor hook while it is traced: returns which tensor it is for, or None outside a trace.

    >>> saved_hook_context() is None
    True
    """
    return _context.get()


@contextlib.contextmanager
def _within(context: SavedHookContext) -> Iterator[None]:
    token = _context.set(context)
    try:
        yield
    finally:
        _context.reset(token)


@dataclass(frozen=True)
class HookGraph:
    """A traced hook. `packed` is its result with fake tensors; `values` are the leaves of that."""

    trace: OpenTrace
    inputs: tuple[fx.Node, ...]
    results: tuple[Any, ...]  # per leaf: a node, or a constant
    values: tuple[Any, ...]
    packed: Any

    def into(self, root: torch.nn.Module, graph: fx.Graph, arguments: Sequence[fx.Node], tag: str) -> list[Any]:
        """Copy the hook into `graph`, whose constants are attributes of `root`; return its results there."""
        copied = dict(zip(self.inputs, arguments, strict=True))
        for node in self.trace.graph.nodes:
            if node in copied:
                continue
            made = copied[node] = graph.node_copy(node, copied.__getitem__)
            made.meta["partitioner_tag"] = tag
            if node.op == "get_attr":
                made.target = _constant(root, getattr(self.trace.tracer.root, node.target))
        return [copied[result] if isinstance(result, fx.Node) else result for result in self.results]


def trace_hook(
    kind: str,
    hook: fx.GraphModule,
    argument: Any,
    fake_mode: Any,
    decompositions: Mapping[Any, Any] | None,
    context: SavedHookContext,
) -> HookGraph:
    """Trace `hook(argument)`; `argument` is any pytree, its tensors fake.

    Raises:
        Refused: the hook takes or returns a tensor subclass, or writes its argument.
    """
    about = f"the {kind} hook of the saved tensor {context.name!r}"
    trace = OpenTrace(fake_mode, decompositions, keeps_stacks=False)
    leaves, spec = pytree.tree_flatten(argument)
    _refuse_subclasses(about, leaves)
    with torch.no_grad(), trace.active("is_forward"), _within(context):
        traced = [(i, leaf) for i, leaf in enumerate(leaves) if isinstance(leaf, (torch.Tensor, *SYMBOLIC))]
        inputs = [trace.placeholder(f"packed_{i}", leaf) for i, leaf in traced]
        given = [trace.functional(leaf) for leaf in leaves]
        result = hook(pytree.tree_unflatten(given, spec))
        for value in filter(functional.is_functional, given):
            if functional.data_mutated(value) or functional.metadata_mutated(value):
                raise Refused("saved tensor hook writes", about)
        found, found_spec = pytree.tree_flatten(result)
        _refuse_subclasses(about, found)
        values = [functional.inner(value) if functional.is_functional(value) else value for value in found]
        results = [trace.node_of(value) for value in values]
        values = [v if isinstance(r, fx.Node) else r for v, r in zip(values, results, strict=True)]
    packed = pytree.tree_unflatten(values, found_spec)
    return HookGraph(trace, tuple(inputs), tuple(results), tuple(values), packed)


def _refuse_subclasses(about: str, leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if is_subclass(leaf):
            raise Refused("saved tensor hook of a subclass", about, type(leaf).__name__)


def _constant(root: torch.nn.Module, value: Any) -> str:
    number = 0
    while hasattr(root, f"_hook_constant_{number}"):
        number += 1
    setattr(root, f"_hook_constant_{number}", value)
    return f"_hook_constant_{number}"
