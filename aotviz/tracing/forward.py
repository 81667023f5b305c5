"""One functionalised run of the user's function: the forward half of the graph, and every fact about the call.

The run is left open, so that the backward can be traced behind it in the same graph (`backward.py`). It can be
taken once for that; a second taker, such as a user who resumes from an earlier stage twice, gets a fresh run.

Note [Gradient edges before the run]
A function may mutate the very inputs it is to be differentiated by. Their gradient edges are taken before it runs,
so that the input as it was remains addressable without a clone of it in the graph.

Note [Moved inputs]
The gradient at such an edge has the shape that the tensor has in the end. A function that transposes an input in place
would get a gradient of the wrong shape; it is run again on a view of that input, which may move as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from aotviz.ir.descriptors import InputDescriptor
from aotviz.ir.graphs import placeholders, prefix
from aotviz.ir.metadata import InputAliasInfo, OutputAliasInfo
from aotviz.torch_private import pytree
from aotviz.torch_private.fakes import rng_preserved
from aotviz.torch_private.open_trace import OpenTrace, module_stack
from aotviz.tracing import facts


@dataclass(frozen=True)
class Program:
    """What is to be run: `fn(*args)` returns any pytree. `args` are fakes, one per graph input."""

    fn: Callable[..., Any]
    args: Sequence[Any]
    fake_mode: Any
    decompositions: Mapping[Any, Any] | None
    root: torch.nn.Module | None  # whose module paths the nodes carry
    is_graph: bool  # `fn` interprets a graph whose nodes bring their own stacks
    keep_input_mutations: bool
    fresh: frozenset[int] = frozenset()  # inputs that the function gets as a view; see Note [Moved inputs]


class ForwardTrace:
    """An open trace of the forward, with what was read off it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.trace = OpenTrace(program.fake_mode, program.decompositions, keeps_stacks=not program.is_graph)
        self._taken = False
        self.with_gradients = any(isinstance(a, torch.Tensor) and a.requires_grad for a in program.args)
        prefix = "primals_{}" if self.with_gradients else "arg{}_1"
        first = 1 if self.with_gradients else 0
        with rng_preserved(), self.trace.active("is_forward"), module_stack(program.root):
            for index, value in enumerate(program.args):
                self.trace.placeholder(prefix.format(index + first), value)
            self._run()
        self.forward_length = len(self.trace.graph.nodes)

    def _run(self) -> None:
        args = [self.trace.functional(a) for a in self.program.args]
        self.edges = [facts.edge(a) for a in args]  # see Note [Gradient edges before the run]
        with torch.enable_grad():
            args = [a.view(a.shape) if i in self.program.fresh else a for i, a in enumerate(args)]
        before = [facts.before(a) for a in args]
        grad_mode = torch.is_grad_enabled()
        result = self.program.fn(*args)
        self.grad_enabled_after = torch.is_grad_enabled() if torch.is_grad_enabled() != grad_mode else None
        torch.set_grad_enabled(grad_mode)
        self.outputs, self.out_spec = pytree.tree_flatten(result)
        paths, _ = pytree.tree_flatten_with_path(result)
        self.output_paths = tuple(pytree.keystr(path) for path, _ in paths)
        self.args = args
        self.input_info: tuple[InputAliasInfo, ...] = tuple(
            facts.of_input(arg, fake, was, self.program.keep_input_mutations)
            for arg, fake, was in zip(args, self.program.args, before, strict=True)
        )
        self.output_info: tuple[OutputAliasInfo, ...]
        self.output_info, self.bases = facts.of_outputs(self.trace, args, self.outputs, self.input_info)

    def graph(self) -> Any:
        """The forward's nodes, without what a later stage traced behind them."""
        graph = self.trace.graph
        return prefix(graph, self.forward_length) if len(graph.nodes) != self.forward_length else graph

    def describe(self, descriptors: Sequence[InputDescriptor]) -> None:
        """Say on each placeholder what it is to the user."""
        for node, descriptor in zip(placeholders(self.trace.graph), descriptors, strict=False):
            node.meta["desc"] = descriptor

    def take(self) -> ForwardTrace:
        """This trace, to be continued; a fresh one for whoever comes second."""
        if self._taken:
            again = ForwardTrace(self.program)
            again.describe([node.meta.get("desc") for node in placeholders(self.trace.graph)])
            return again.take()
        self._taken = True
        return self

    def rerun(self, **changes: Any) -> ForwardTrace:
        """The same program with another calling convention."""
        return ForwardTrace(replace(self.program, **changes))
