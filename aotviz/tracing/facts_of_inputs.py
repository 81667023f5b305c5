"""What a run shows about its inputs (docs/design/system.md A1-A3): what is read once, rules, and facts.

`Seen` reads a functional tensor after the run, inside the open trace: reading the final value of a tensor applies the
writes that are still pending on its base. All else are functions of what was read, and of the events of the run: the
conditions of rules about inputs, which `rules.py` lists, and `facts` about inputs that no rule refuses.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir.graphs import placeholders
from aotviz.ir.symbolic_sizes import hint
from aotviz.ir.view_and_mutation import InputAliasInfo, Layout
from aotviz.ir.wrapper_subclasses import is_subclass, parts_by_path
from aotviz.torch_private import dispatch, operators
from aotviz.torch_private.tensors import base_of
from aotviz.tracing import functional, overlap, replay, storage_sizes, views, views_of_no_grad_bases
from aotviz.tracing.argument_state import Kind
from aotviz.tracing.arguments import Arguments
from aotviz.tracing.events import Marked, MetadataOp, Wrote
from aotviz.tracing.functional import Before, has_another_history
from aotviz.tracing.ledger import Ledger


class Seen:
    """What a run shows of one input that is a tensor, which is called `name` by the user: `fake` before the call, and
    `argument`, the functional tensor, after it."""

    def __init__(
        self, argument: torch.Tensor, fake: torch.Tensor, was: Before, ledger: Ledger, name: str, outputs: Sequence[Any]
    ) -> None:
        self.argument, self.fake, self.was, self.ledger = argument, fake, was, ledger
        self.name, self.outputs, self.number = name, outputs, ledger.number(argument)
        self.given = ledger.given.get(self.number)  # what happened to it, if it requires grad
        value = functional.inner(argument)
        self.is_set = functional.storage_replaced(argument)  # set_ was called on it
        self.replaced = self.is_set and functional.storage(fake) != functional.storage(value)  # by another storage
        self.before = views.layout(fake)
        # The value inside gets new strides with every write; the argument has the caller's.
        self.value = views.layout(value if self.is_set else argument)
        self.lies = self.value if self.replaced else views.layout(argument)  # now
        repeated = self.given is not None and self.given.repeated
        # The wrapper must change its shape or strides.
        self.moved = functional.metadata_mutated(argument) and (repeated or self.before != self.lies)
        self.left = ledger.left.get(self.number) if self.replaced else None  # what is left in its first storage
        self.changed = functional.data_mutated(argument)

    @property
    def has_new_grad_fn(self) -> bool:
        return has_another_history(self.argument, self.was.edge)

    @property
    def is_inference(self) -> bool:
        return bool(self.fake.is_inference() and not torch.is_inference_mode_enabled())


def facts(one: Seen, keep_input_mutations: bool) -> InputAliasInfo:
    """The facts about an input that no rule refuses."""
    argument, fake, ledger = one.argument, one.fake, one.ledger
    hidden, quiet = _hidden_from_autograd(one)
    moved = one.moved or _only_moves_seen(one)
    marks = ledger.marks_of(one.number)
    turned_on = one.was.edge is None and argument.requires_grad and argument.is_leaf and len(marks) == 1
    # A trace does not count the writes of operators that take lists.
    writes = ledger.writes_of(argument)
    bumps = max(operators.version(argument) - one.was.version - ledger.uncounted_writes_of(one.number), writes)
    sets = sum(event.sets_storage for event in ledger.metadata_ops(one.number))
    fewer = not torch.is_inference_mode_enabled() and bumps < writes + sets  # Dynamo makes `set_` of `x.data = ...`
    with_grad = one.was.edge is not None and torch.is_grad_enabled()
    differs = with_grad and (  # matters if it is a view of a base without grad
        (one.changed and hidden and not fake.is_leaf)
        or (bumps > 0 and bool(ledger.views_in(one.number)))
        or views_of_no_grad_bases.seen_later(ledger, argument, one.outputs)
    )
    return InputAliasInfo(
        is_tensor=True,
        is_leaf=fake.is_leaf,
        requires_grad=fake.requires_grad or turned_on,
        requires_grad_after=argument.requires_grad,
        mutates_data=one.changed and not one.replaced,
        mutates_metadata=one.replaced or moved,
        mutations_hidden_from_autograd=hidden or turned_on,
        mutations_under_no_grad_or_inference_mode=quiet,
        mutates_storage_metadata=one.replaced,
        read_bytes=ledger.read_sizes.get(one.number),
        storage_bytes=storage_sizes.of_input(argument, ledger, one.outputs),
        keep_input_mutations=keep_input_mutations and not one.is_inference,
        version_bumps=0 if one.is_inference else bumps,
        layout_after=one.lies if one.replaced or moved else None,
        written_parts=tuple(_written_parts(one)) if is_subclass(argument) else (),
        turned_on=turned_on,
        turned_off=one.was.edge is not None and not argument.requires_grad and len(marks) == 1,
        leaves_data=one.left is not None,
        assigns_data=one.number in ledger.assigned or fewer,
        asks_for_root=differs,
        history_ends=one.given is not None and one.given.used_after and not moved,
        inference=one.is_inference,
        only_in_inference_mode=_written_as_inference_tensor(one),
    )


def _written_parts(one: Seen) -> Iterator[tuple[str, int]]:
    """(Path, version bumps) of each part that is written, or whose version alone changes. A write to the whole bumps
    only the whole; one to a part that the function got (`to_local()`, `values()`) bumps the part."""
    for (path, part), version in zip(parts_by_path(one.argument), one.was.part_versions, strict=True):
        # a part that the trace makes in inference mode has no version
        bumps = max(operators.version(part) - version, one.ledger.writes_of(part))
        if functional.data_mutated(part) or (bumps > 0 and not one.changed):
            yield path, bumps


def _hidden_from_autograd(one: Seen) -> tuple[bool, bool]:
    """Whether autograd saw no change of an input, and whether all writes ran under no_grad or inference mode."""
    hidden = functional.hidden_from_autograd(one.argument)
    quiet = one.changed and functional.under_no_grad(one.argument)
    if one.was.edge is None or not (one.changed or one.moved):
        return hidden, quiet
    # A mutation that autograd sees gives the input a new edge.
    hidden = not one.has_new_grad_fn or _only_moves_seen(one)
    return hidden, quiet and hidden


def _only_moves_seen(one: Seen) -> bool:
    """Whether an input has a new `grad_fn` only because of in-place metadata ops: autograd saw none of the writes. The
    wrapper repeats these ops, and gradients and hooks pass through them as in eager."""
    if one.fake.is_leaf or base_of(one.fake) is not None or is_subclass(one.argument):
        return False
    if not one.changed or one.replaced or not one.has_new_grad_fn:
        return False
    ledger = one.ledger
    events = (event for _, event in ledger.changes() if event.mode.grad and ledger.root(event.tensor) == one.number)
    known = [event for event in events if ledger.tensors[event.tensor].requires_grad]
    alone = all(isinstance(e, MetadataOp) and e.tensor == one.number and replay.written_down(e) for e in known)
    return bool(known) and alone


def unrepeatable(one: Seen) -> MetadataOp | None:
    """The metadata op after which the gradients of the trace differ from eager's, since the input was written too."""
    given = one.given
    if given is None or given.kind is Kind.OWNER or given.unseen is None or not one.changed:
        return None
    hidden, _ = _hidden_from_autograd(one)
    return None if hidden else given.unseen


# --- Conditions of rules. Each is given what was seen of an input, and says whether it is refused. ---


def loses_gradients(one: Seen) -> bool:
    """Whether eager loses some of its gradients, and the trace loses others: the wrapper repeats the ops after the
    graph. Or else it bumps the version counter before the graph, and all gradients are lost."""
    given = one.given
    return given is not None and given.used_after and (given.used or one.moved) and torch.is_grad_enabled()


def writes_twice(one: Seen) -> bool:
    return one.changed and not one.replaced and one.lies.concrete and overlap.writes_twice(one.lies)


def resized_after_a_write(one: Seen) -> bool:
    """Whether an input was written and then resized in a way that loses data. If it grows beyond its storage, the trace
    forgets the write. If it no longer has all the elements that it had, because it shrinks or had gaps in memory, the
    wrapper would write only the rest."""
    argument, ledger, lies = one.argument, one.ledger, one.lies
    if not one.moved or one.replaced or is_subclass(argument):
        return False
    grows = overlap.span(lies, one.fake.dtype)[1] > hint(one.fake.untyped_storage().nbytes())
    shrinks = math.prod(map(hint, lies.size)) < math.prod(map(hint, one.fake.shape))
    written: list[Layout] = []
    for _, event in ledger.changes():
        if isinstance(event, Wrote):
            written += [event.where or lies] if ledger.root(event.tensor) == one.number else []
        elif written and event.tensor == one.number:
            resized = event.operator is torch.ops.aten.resize_.default
            with dispatch.without_modes():
                gaps = resized and not all(views.contiguous(where) or overlap.covers(lies, where) for where in written)
            if grows or shrinks or gaps:
                return True
    return False


def old_storage_is_shared(one: Seen) -> bool:
    if one.left is None:
        return False
    return base_of(one.fake) is not None or is_subclass(one.argument) or one.left.layout != one.before


def _written_as_inference_tensor(one: Seen) -> bool:
    """Whether an inference tensor is written, which raises outside of inference mode. Dynamo leaves that mode while it
    calls a backend, so the wrapper checks it. Only a detached alias can be written anywhere."""
    if not one.is_inference:
        return False
    ledger, storage = one.ledger, functional.storage
    outside = {event.tensor for _, event in ledger.changes() if not event.mode.inference}
    made = (ledger.origin(alias) for alias in outside if storage(ledger.tensors[alias]) == storage(one.argument))
    return any(event is None or not event.detaches for event in made)


def of_stand_in(argument: torch.Tensor, fake: torch.Tensor, was: Before) -> InputAliasInfo:
    """Return the facts about an input whose memory belongs to another: only its `grad_fn` and layout can change.

    One write gives it both its new data and its new `grad_fn`.
    """
    written = has_another_history(argument, was.edge)
    moved = functional.metadata_mutated(argument) and views.layout(fake) != views.layout(argument)
    return InputAliasInfo(
        is_tensor=True,
        is_leaf=fake.is_leaf,
        requires_grad=fake.requires_grad,
        requires_grad_after=argument.requires_grad,
        mutates_data=written,
        mutates_metadata=moved,
        version_bumps=int(written),
        layout_after=views.layout(argument) if moved else None,
    )


def is_reshaped_leaf(argument: torch.Tensor, fake: torch.Tensor, info: InputAliasInfo) -> bool:
    """Whether an input is a leaf that changes shape in place."""
    moves = info.mutates_metadata and not info.mutates_storage_metadata
    return info.requires_grad and info.is_leaf and moves and fake.shape != argument.shape


def used_before_moving(given: Arguments, position: int, info: InputAliasInfo, ledger: Ledger, graph: fx.Graph) -> bool:
    """Whether autograd records a use of a leaf before the leaf changes shape."""
    argument, known = given.args[position], given.program.known
    if not is_reshaped_leaf(argument, given.program.args[position], info):
        return False
    events, nodes, number = iter(ledger.events), iter(graph.nodes), ledger.number(argument)
    if info.turned_on:  # autograd records no earlier use
        mark = next(e for e in events if isinstance(e, Marked) and e.tensor == number)
        next((node for node in nodes if node is mark.after), None)
    moved = next((e.node for e in events if isinstance(e, MetadataOp) and e.tensor == number), None)
    before = itertools.takewhile(lambda node: node is not moved, nodes)
    used = {n for n in before if not n.meta.get("under_no_grad")} if moved is not None else set()
    passed = placeholders(graph)[position]
    for _ in (on for on in (known.no_grad_views, known.as_views) if position in on):
        passed = next(iter(passed.users))  # the function ran on a view of it
    # A view that nothing reads and the function did not ask for was taken to regenerate others.
    asked = {event.node for event in ledger.views()}
    real = (user for user in passed.users if user.users or user in asked or not operators.is_view(user.target))
    return any(user in used for user in real)
