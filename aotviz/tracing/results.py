"""What a run did, and what its results are: conditions of rules that need both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from aotviz.ir.refusals import Names
from aotviz.ir.view_and_mutation import Data, MutationType, Ref, View
from aotviz.ir.wrapper_subclasses import is_subclass
from aotviz.torch_private.tensors import base_of
from aotviz.tracing import functional
from aotviz.tracing.events import MetadataOp, Viewed
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

    An input that is a view of that input requires grad from then on, too, which this trace does not know.
    """
    for i in ran.turned_on:
        number, source = ran.ledger.number(ran.args[i]), ran.program.args[i]
        before = ran.ledger.events[: ran.ledger.marks_of(number)[0]]
        steps = (step for step in ran.output_facts.replay if isinstance(step, View | Data))
        replayed = any(step.source == Ref("input", i) for step in steps)
        viewed = replayed and any(isinstance(event, Viewed) and event.source == number for event in before)
        views = (one for one in ran.program.args if isinstance(one, torch.Tensor) and base_of(one) is source)
        if viewed or any(is_subclass(one) or ran.open.node_of(one).users for one in views):
            yield repr(ran.program.names[i]), "on"


def returns_a_forgotten_view(ran: Results) -> Iterator[Names]:
    """A replayed view of a leaf lost its connection by a write that changes nothing: the wrapper applies such a write
    before the call."""
    for output in ran.outputs:
        if any(output is view and view.requires_grad for view in ran.forgotten):
            position = ran.position(ran.ledger.owner(output))
            info = None if position is None else ran.input_info[position]
            if info is not None and info.mutation_type is MutationType.NOT_MUTATED and info.version_bumps:
                yield ran.program.name(position or 0)
