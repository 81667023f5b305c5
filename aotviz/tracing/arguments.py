"""The arguments as the function gets them: functional tensors, and their state before it runs.

Note [Gradient edges before the run]
A function may mutate the inputs that its outputs are differentiated with respect to. So their gradient edges are taken
before it runs; no clone in the graph is needed to refer to the original input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch

from aotviz.ir.subclass_meta import Plan, plan
from aotviz.ir.wrapper_subclasses import is_subclass, parts_by_path
from aotviz.python_state import leaks
from aotviz.tracing import functional
from aotviz.tracing.functional import Before
from aotviz.tracing.open_trace import OpenTrace
from aotviz.tracing.program import Program, StandIn
from aotviz.tracing.views_of_no_grad_bases import ViewOfNoGradBase, viewed_like


@dataclass(frozen=True, eq=False)
class Arguments:
    """All sequences: one per graph input."""

    program: Program
    plans: tuple[Plan, ...]
    args: tuple[Any, ...]
    before: tuple[Before, ...]
    edges: tuple[Any, ...]  # see Note [Gradient edges before the run]
    part_edges: tuple[tuple[int, str, Any], ...]  # of the parts of subclasses
    no_grad_views: tuple[ViewOfNoGradBase, ...]  # those of `program.known.no_grad_views`

    def __post_init__(self) -> None:
        leaks.exclude_from_search(self, "program", "plans", "edges", "part_edges")

    def position(self, tensor: torch.Tensor) -> int | None:
        """The position of a tensor among them, or None."""
        return next((i for i, argument in enumerate(self.args) if argument is tensor), None)

    def replaced(self, stand_ins: Mapping[int, StandIn]) -> Arguments:
        """With the tensors that a rewrite created inside the function."""
        return replace(
            self,
            args=tuple(stand_ins[i].tensor if i in stand_ins else one for i, one in enumerate(self.args)),
            before=tuple(stand_ins[i].before if i in stand_ins else one for i, one in enumerate(self.before)),
            edges=tuple(stand_ins[i].edge if i in stand_ins else one for i, one in enumerate(self.edges)),
        )


def of_program(program: Program, opened: OpenTrace) -> Arguments:
    """Create the placeholders of a trace, and give its ledger the arguments."""
    names = map("primals_{}".format, count(1)) if program.with_gradients else map("arg{}_1".format, count())
    plans = tuple(
        plan(value, lambda part: opened.placeholder(next(names), part), opened.knows) for value in program.args
    )
    args = list(map(functional.wrapped, program.args))
    for i in program.known.no_grad_views:
        value = program.args[i]
        args[i] = viewed_like(opened.without_history(value), value)
    edges, part_edges = tuple(map(functional.edge, args)), tuple(_part_edges(args))
    with torch.enable_grad():
        args = [a.view(a.shape) if i in program.known.as_views else a for i, a in enumerate(args)]
    before = tuple(map(Before.of, args))
    no_grad_views = tuple(
        ViewOfNoGradBase(args[i], not program.args[i].is_leaf, before[i], tuple((args[j], before[j]) for j in others))
        for i, others in program.known.no_grad_views.items()
    )
    for i, (value, argument) in enumerate(zip(program.args, args, strict=True)):
        opened.ledger.give(argument, value, i in program.known.as_views)
    return Arguments(program, plans, tuple(args), before, edges, part_edges, no_grad_views)


def _part_edges(args: list[Any]) -> Iterator[tuple[int, str, Any]]:
    """(input, path, gradient edge) of each part of a subclass that requires grad by itself."""
    for i, value in enumerate(args):
        for path, part in parts_by_path(value) if is_subclass(value) else ():
            found = functional.edge(part)
            if found is not None:
                yield i, path, found
