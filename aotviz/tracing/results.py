"""What a run did, and what its results are: conditions of rules that need both."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.refusals import Names
from aotviz.ir.symbolic_sizes import SYMBOLIC
from aotviz.ir.view_and_mutation import Data, MutationType, Ref, View
from aotviz.torch_private import operators, pytree
from aotviz.torch_private.tensors import base_of
from aotviz.tracing import functional
from aotviz.tracing.events import Marked, MetadataOp, Viewed
from aotviz.tracing.facts_of_outputs import OutputFacts
from aotviz.tracing.ran import Ran


@dataclass(frozen=True, eq=False)
class Results(Ran):
    output_facts: OutputFacts
    forgotten: tuple[Any, ...]  # views that lost their connection to a leaf
    turned: MetadataOp | None  # after it, gradients of another input go to other elements; see inputs_and_bases.py


def differentiates_after_a_move(ran: Results) -> Iterator[tuple[bool, Names]]:
    """The metadata op after which gradients would differ from eager's."""
    event = ran.turned or ran.ledger.unrepeatable
    yield from () if event is None else (ran.told_of(event),)


def gains_a_leaf(ran: Results) -> Iterator[Names]:
    """A result requires grad although no input does: its autograd graph ends in a leaf made inside."""
    if ran.with_gradients:
        return
    infos = zip(ran.outputs, ran.output_facts.infos, strict=True)
    new = {id(output) for output, info in infos if info.new_leaf}
    leaving = [(f"output {k}", output) for k, output in enumerate(ran.outputs) if id(output) not in new]
    for name, value in (*zip(map(repr, ran.program.names), ran.args, strict=False), *leaving):
        if functional.is_functional(value) and value.requires_grad:
            yield name


def views_before_a_mark(ran: Results) -> Iterator[Names]:
    """A view of an input that the wrapper must replay and that was taken before the input required grad.

    An input that is a view of that input requires grad from then on, too, which this trace does not know. So it is
    refused if a result is computed from such a view afterwards.
    """
    for i in ran.turned_on:
        position = ran.ledger.marks_of(ran.ledger.number(ran.args[i]))[0]
        given = [(j, one) for j, one in enumerate(ran.program.args) if isinstance(one, torch.Tensor)]
        views = [j for j, one in given if base_of(one) is ran.program.args[i]]
        if any(_viewed_before(ran, position, j) for j in (i, *views)) or _used_after(ran, position, views):
            yield repr(ran.program.names[i]), "on"


def _viewed_before(ran: Results, position: int, i: int) -> bool:
    """Whether the wrapper must replay a view of an input, and one was taken before this event."""
    number = ran.ledger.number(ran.args[i])
    early = any(isinstance(e, Viewed) and e.source == number for e in ran.ledger.events[:position])
    steps = ran.output_facts.replay
    return early and any(isinstance(step, View | Data) and step.source == Ref("input", i) for step in steps)


def _used_after(ran: Results, position: int, inputs: Sequence[int]) -> bool:
    """Whether a result depends on a use of these inputs in grad mode after the event, a `Marked`."""
    mark = ran.ledger.events[position]
    assert isinstance(mark, Marked)
    passed = pytree.tree_leaves([ran.open.node_of(ran.program.args[i]) for i in inputs])
    leaving = [value for value in (*ran.outputs, *ran.args) if functional.is_functional(value)]
    nodes = pytree.tree_leaves(ran.open.nodes_of(leaving))
    return any(map(graphs.dependencies(ran.open.graph, _uses_after(ran.open.graph, passed, mark)), nodes))


def _uses_after(graph: fx.Graph, inputs: Sequence[fx.Node], mark: Marked) -> list[fx.Node]:
    """The nodes after `mark` that read the data of these inputs, or of views of them, in grad mode. Views only lead on
    to what reads them."""
    place: dict[Any, int] = {node: k for k, node in enumerate(graph.nodes)}
    found: list[fx.Node] = []
    aliases = [*inputs]
    for alias in aliases:
        for use in alias.users:
            if use.target is operator.getitem or operators.is_view(use.target):
                aliases += [use] if use.target is not torch.ops.aten.detach.default else []
            elif place[use] > place[mark.after] and not use.meta.get("under_no_grad"):
                found += [use] if not isinstance(use.meta.get("val"), SYMBOLIC) else []
    return found


def returns_a_forgotten_view(ran: Results) -> Iterator[Names]:
    """A replayed view of a leaf lost its connection by a write that changes nothing: the wrapper applies such a write
    before the call."""
    for output in ran.outputs:
        if any(output is view and view.requires_grad for view in ran.forgotten):
            position = ran.position(ran.ledger.owner(output))
            info = None if position is None else ran.input_info[position]
            if info is not None and info.mutation_type is MutationType.NOT_MUTATED and info.version_bumps:
                yield ran.program.name(position or 0)
