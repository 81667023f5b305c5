"""What a run of the user's function did, and the facts about its inputs: all that the conditions of most rules read.

`Results` (`results.py`) adds what its results are. `Run` (`forward.py`) is the same, and can be continued.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from aotviz.ir.graphs import placeholders
from aotviz.ir.refusals import Names
from aotviz.ir.view_and_mutation import InputAliasInfo
from aotviz.ir.wrapper_subclasses import is_subclass, parts_by_path
from aotviz.python_state import leaks
from aotviz.tracing import functional, registered_hooks, replay
from aotviz.tracing.argument_state import Kind
from aotviz.tracing.arguments import Arguments
from aotviz.tracing.events import Marked, MetadataOp
from aotviz.tracing.ledger import Ledger
from aotviz.tracing.open_trace import OpenTrace


@dataclass(frozen=True, eq=False)
class Ran(Arguments):
    """Its inherited sequences, and `input_info`, are one per graph input."""

    open: OpenTrace  # live: the joint graph continues it
    members: Mapping[int, Any]  # as in WithMembers
    shared: Mapping[int, int]
    members_with_grad_fn: frozenset[int]
    outputs: tuple[Any, ...]  # flat; behind them, tensors on which the wrapper registers hooks
    out_spec: Any
    output_names: tuple[str, ...]  # one per output
    input_info: tuple[InputAliasInfo, ...]

    def __post_init__(self) -> None:
        leaks.exclude_from_search(self, "open", "program", "plans", "input_info", "edges", "part_edges")

    @property
    def ledger(self) -> Ledger:
        return self.open.ledger

    @property
    def with_gradients(self) -> bool:
        return self.program.with_gradients

    @property
    def turned_on(self) -> list[int]:
        """The inputs that come to require grad."""
        return [i for i, info in enumerate(self.input_info) if info.turned_on]

    def told_of(self, event: MetadataOp) -> tuple[bool, tuple[str, ...]]:
        return told_of_move(event, self.open, self)

    def hooked_inputs(self) -> set[int]:
        """The inputs on which the function registers gradient hooks."""
        hooked = {*self.ledger.hooked(), *(hook.tensor for hook in self.ledger.traced_hooks)}
        return {i for i, argument in enumerate(self.args) if self.ledger.number(argument) in hooked}

    def moved_parts(self) -> Iterator[tuple[int, str, torch.Tensor, MetadataOp]]:
        """(Input, path, part, op) of the parts of subclass inputs that the function got (`to_local()` under no_grad)
        and changed by a metadata op."""
        for i, argument in enumerate(self.args):
            if is_subclass(argument) and not self.input_info[i].mutates_metadata:
                for path, part in parts_by_path(argument):
                    moved = next(self.ledger.metadata_ops(self.ledger.number(part)), None)
                    if moved is not None:
                        yield i, path, part, moved

    def graph_input(self, index: int) -> tuple[Any, Any]:
        """The placeholder of a graph input, and its fake. For a subclass, each part is a graph input."""
        node = placeholders(self.open.graph)[index]
        return node, node.meta["val"]

    def wants_view(self, position: int) -> bool:
        """Whether the function must run on a view of this argument; see Note [Inputs changed in place]."""
        passed, argument = self.program.args[position], self.args[position]
        given = self.ledger.given.get(self.ledger.number(argument))
        if given is None or given.kind is not Kind.OWNER or given.viewed:
            return True
        return passed.is_leaf and passed.shape != argument.shape


def told_of_move(event: MetadataOp, opened: OpenTrace, given: Arguments) -> tuple[bool, tuple[str, ...]]:
    """Whether a metadata op is `set_`, and what its rule says: of whom, and of others the operator and what to use
    instead."""
    if event.sets_storage:
        return True, ("a view and its base",)
    position = given.position(opened.ledger.tensors[opened.ledger.root(event.tensor)])
    described = [node.meta.get("desc") for node in placeholders(opened.graph)]
    return False, replay.named(event, "an intermediate" if position is None else str(described[position] or "an input"))


# --- Conditions of rules (`rules.py`). Each yields what a rule names. ---


def writes_a_passed_view(ran: Ran) -> Iterator[tuple[bool, Names]]:
    """An argument is changed by a metadata op, written too, and the function got a view of it, because it fails
    otherwise: the write would give that view a `grad_fn`, and not the argument."""
    for i in ran.program.known.as_views:
        info, moved = ran.input_info[i], next(ran.ledger.metadata_ops(ran.ledger.number(ran.args[i])), None)
        if moved is not None and (info.mutates_data or info.mutates_storage_metadata):
            yield ran.told_of(moved)


def marks_a_shared_input(ran: Ran) -> Iterator[Names]:
    """A change of requires_grad that the wrapper cannot repeat on the input."""
    inputs, names = [ran.ledger.number(one) for one in (*ran.args, *ran.members.values())], ran.program.names
    for event in (event for event in ran.ledger.events if isinstance(event, Marked) and event.tensor in inputs):
        position = inputs.index(event.tensor)
        info = ran.input_info[position] if position < len(ran.args) else None
        if info is None or not (info.turned_on or info.turned_off):
            name = repr(names[position]) if position < len(names) else "an input that overlaps another"
            yield name, "on" if event.on else "off"


def hooks_a_leaf(ran: Ran) -> Iterator[Names]:
    """A hook on a leaf made inside, for which a compiled backward computes no gradient."""
    for tensor in ran.outputs[ran.out_spec.num_leaves :]:
        if functional.grad_fn(tensor) is None:
            yield "a leaf that it creates", "a compiled backward does not compute its gradient"


def returns_a_handle(ran: Ran) -> Iterator[Names]:
    if any(isinstance(output, registered_hooks.Handle) for output in ran.outputs):
        yield "a tensor", "its handle is returned"


def returns_an_inference_subclass(ran: Ran) -> Iterator[Names]:
    for one in () if torch.is_inference_mode_enabled() else ran.outputs:
        if functional.is_functional(one) and is_subclass(one) and one.is_inference():
            yield "an output"


def writes_a_part_elsewhere(ran: Ran) -> Iterator[Names]:
    """The caller has memory that was written under another name."""
    yield from ran.ledger.outdated([*ran.outputs, *ran.args])


def moves_and_writes_a_part(ran: Ran) -> Iterator[Names]:
    for position, path, part, moved in ran.moved_parts():
        if functional.data_mutated(part):
            yield replay.named(moved, ran.program.names[position] + path)


def gives_an_alias_a_symbolic_shape(ran: Ran) -> Iterator[Names]:
    members = set(map(ran.ledger.number, ran.members.values()))
    if any(event.tensor in members and not replay.written_down(event) for event in ran.ledger.metadata_ops()):
        yield "an input"
