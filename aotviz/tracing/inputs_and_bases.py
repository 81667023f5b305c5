"""Inputs whose gradients depend on their base, and on other inputs with the same version counter, in one call.

See `views_of_no_grad_bases.py` and Note [Views changed in place] in `ledger.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aotviz.ir.refusals import Names
from aotviz.ir.storages import has_no_root
from aotviz.torch_private.tensors import base_of
from aotviz.tracing import functional
from aotviz.tracing.events import MetadataOp, Wrote
from aotviz.tracing.functional import is_view_with_history
from aotviz.tracing.ran import Ran
from aotviz.tracing.views import layout
from aotviz.tracing.views_of_no_grad_bases import used_after, writes_of


@dataclass(frozen=True, eq=False)
class InputsAndBases:
    ran: Ran
    duplicate_of: tuple[int | None, ...]  # as in FlatCall
    counter_of: tuple[int, ...]

    def occurrences(self) -> dict[int, list[int]]:
        """Position of an input that requires grad -> itself and its duplicates."""
        found: dict[int, list[int]] = {}
        for i, first in enumerate(self.duplicate_of):
            found.setdefault(i if first is None else first, []).append(i)
        return {first: same for first, same in found.items() if self.ran.input_info[first].requires_grad}

    def counting_with(self, position: int) -> list[int]:
        """The other inputs that are written and share the version counter of this one, its duplicates included."""
        written = (j for j, info in enumerate(self.ran.input_info) if info.version_bumps > 0 and j != position)
        return [j for j in written if self.counter_of[j] == self.counter_of[position]]

    def is_used_after(self, position: int) -> bool:
        """Whether an input, or an earlier view of it, is used after one of those was written. For a leaf, only its
        views count: the leaf itself does not change."""
        ran, argument = self.ran, self.ran.args[position]
        written = [ran.args[j] for j in self.counting_with(position)]
        node = None if ran.input_info[position].is_leaf else ran.graph_input(position)[0]
        return used_after(ran.ledger, ran.open.graph, argument, written, node)

    def lose_views(self) -> dict[int, tuple[int, ...]]:
        """The inputs whose gradients depend on their base, with the other inputs whose writes bump their version
        counter."""
        infos, found = self.ran.input_info, dict[int, tuple[int, ...]]()
        for position, same in self.occurrences().items():
            used = any(map(self.is_used_after, same))
            if used or any(infos[i].asks_for_root for i in same):
                counts = used or not infos[position].is_leaf
                found.update((i, tuple(self.counting_with(i)) if counts else ()) for i in same)
        return found

    def turned_bases(self) -> Iterator[tuple[MetadataOp | None, int, int]]:
        """(The last op that autograd did not see, base, view) of each base whose elements changed their order."""
        for position, same in self.occurrences().items():
            if not is_view_with_history(self.ran.program.args[position]):
                continue
            for j in (j for j in self.counting_with(position) if j not in same):
                given = self.ran.ledger.given.get(self.ran.ledger.number(self.ran.args[j]))
                if given is not None and given.reordered and base_of(self.ran.program.args[j]) is None:
                    yield from ((given.unseen, j, i) for i in same)

    def turned(self) -> MetadataOp | None:
        """The metadata op under no_grad that changed the order of a base's elements before one of its views was used.
        In eager, the gradient of the view then goes to other elements."""
        ran, found = self.ran, None
        for unseen, base, view in self.turned_bases():
            node, graph, moved = ran.graph_input(view)[0], ran.open.graph, [ran.args[base]]
            if unseen is not None and used_after(ran.ledger, graph, ran.args[view], moved, node):
                found = unseen
        return found


# --- Conditions of rules (`rules.py`). ---


def loses_its_base(one: InputsAndBases) -> Iterator[tuple[bool, Names]]:
    """An input is used after autograd saw the write to another with the same counter: it gets a `grad_fn` from it."""
    infos, args = one.ran.input_info, one.ran.program.args
    for position, same in one.occurrences().items():
        if has_no_root(args[position]):
            written = (infos[j] for j in one.counting_with(position) if j not in same and infos[j].mutates_data)
            seen = any(info.requires_grad_after and not info.mutations_hidden_from_autograd for info in written)
            if seen and any(map(one.is_used_after, same)):
                yield infos[position].is_leaf, one.ran.program.name(position)


def writes_after_turning(one: InputsAndBases) -> Iterator[tuple[bool, Names]]:
    """A view is written after the elements of its base changed their order in grad mode."""
    args = one.ran.args
    for unseen, base, view in one.turned_bases():
        if unseen is None:
            moves = ((k, e) for k, e in writes_of(one.ran.ledger, [args[base]]) if isinstance(e, MetadataOp))
            position, moved = next(moves, (0, None))
            writes = (k for k, e in writes_of(one.ran.ledger, [args[view]]) if isinstance(e, Wrote) and e.mode.grad)
            if moved is not None and max(writes, default=0) > position:
                yield one.ran.told_of(moved)


def assigns_data_of_a_view(one: InputsAndBases) -> Iterator[Names]:
    """`.data` of a view is assigned, and the view written: its gradient depends on when autograd last read its
    `grad_fn`."""
    for i, info in enumerate(one.ran.input_info):
        if info.assigns_data and info.version_bumps and is_view_with_history(one.ran.program.args[i]):
            yield one.ran.program.name(i)


def uses_a_view_set_elsewhere(one: InputsAndBases) -> Iterator[Names]:
    """A view is given another storage with `set_`, and used. Autograd still considers it a view of the same base, with
    the layout of its new storage."""
    ran = one.ran
    for i, (info, argument) in enumerate(zip(ran.input_info, ran.program.args, strict=True)):
        moves = info.mutates_storage_metadata and not info.assigns_data and info.requires_grad
        if moves and base_of(argument) is not None and info.layout_after != layout(argument):
            given = ran.open.node_of(functional.inner(ran.args[i]))
            if any(user.op != "output" and not user.meta.get("under_no_grad") for user in given.users):
                yield ran.program.name(i)


def hooks_a_written_view(one: InputsAndBases) -> Iterator[Names]:
    """The function registers a gradient hook on a view, and writes it in grad mode. In eager, the write gives the view
    another `grad_fn`, and later gradients bypass the hook."""
    for i in one.ran.hooked_inputs():
        info = one.ran.input_info[i]
        written = info.mutates_data and not info.mutations_hidden_from_autograd
        if written and is_view_with_history(one.ran.program.args[i]):
            yield one.ran.program.name(i)
