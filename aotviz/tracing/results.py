"""What a run did, and what its results are: conditions of rules that need both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotviz.ir.refusals import Names
from aotviz.ir.view_and_mutation import Data, MutationType, Ref, View
from aotviz.torch_private import pytree
from aotviz.torch_private.tensors import base_of
from aotviz.tracing import functional
from aotviz.tracing.events import MetadataOp, Viewed
from aotviz.tracing.facts_of_outputs import OutputFacts
from aotviz.tracing.ran import Ran
from aotviz.tracing.views_of_no_grad_bases import depends_on_later_use


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
    """Whether a result depends on a use of these inputs after the event, a `Marked`."""
    passed = pytree.tree_leaves([ran.open.node_of(ran.program.args[i]) for i in inputs])
    leaving = [value for value in (*ran.outputs, *ran.args) if inputs and functional.is_functional(value)]
    nodes = pytree.tree_leaves(ran.open.nodes_of(leaving))
    return depends_on_later_use(ran.open.graph, passed, ran.ledger.events[position], nodes)


def returns_a_forgotten_view(ran: Results) -> Iterator[Names]:
    """A replayed view of a leaf lost its connection by a write that changes nothing: the wrapper applies such a write
    before the call."""
    for output in ran.outputs:
        if any(output is view and view.requires_grad for view in ran.forgotten):
            position = ran.position(ran.ledger.owner(output))
            info = None if position is None else ran.input_info[position]
            if info is not None and info.mutation_type is MutationType.NOT_MUTATED and info.version_bumps:
                yield ran.program.name(position or 0)
