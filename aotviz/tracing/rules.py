"""The conditions under which a program is refused: all that follow from the log of a run and the facts about it.

Each entry is the name of a rule in `ir/refusals.py`, which has its sentence, and a condition: a function that yields
what the sentence names, once for each place where the rule holds. Nothing runs or changes between the entries of one
list. The first that holds names the refusal, so a narrower one stands before a wider one. A list is asked at one
moment, when what its conditions read is known.

What is refused elsewhere is found where nothing is left to be asked afterwards; `tests/test_refusals.py` has the places
and says for each why it is no entry here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from aotviz.ir.forms import TracedCall
from aotviz.ir.refusals import Asked, Conditions, Names
from aotviz.tracing import (
    after_the_graph,
    facts_of_inputs,
    inputs_and_bases,
    late_writes,
    other_storages,
    ran,
    results,
    shared_memory,
    storage_sizes,
)
from aotviz.tracing.after_the_graph import GraphAndRest
from aotviz.tracing.facts_of_inputs import Seen
from aotviz.tracing.inputs_and_bases import InputsAndBases
from aotviz.tracing.late_writes import Backward
from aotviz.tracing.ran import Ran
from aotviz.tracing.results import Results
from aotviz.tracing.shared_memory import Grouped, Members, Rooted


def _input(holds: Callable[[Seen], bool], names: str = "{}") -> Callable[[Seen], Iterator[str]]:
    """The condition of a rule about one input. `names`: what its sentence names, with the input's name for {}."""
    return lambda one: iter((names.format(one.name),) if holds(one) else ())


def _either(first: str, second: str, finds: Callable[[Asked], Iterator[tuple[bool, Names]]]) -> Conditions[Asked]:
    """Two rules. `finds` yields what a sentence names, and whether it is that of the first."""
    return (
        (first, lambda one: (names for holds, names in finds(one) if holds)),
        (second, lambda one: (names for holds, names in finds(one) if not holds)),
    )


_MOVES = "alias is given another storage", "metadata op on a view"  # `set_` is a metadata op, too
_LEAF_OR_VIEW = "leaf that is a view", "view whose base does not require grad"

# While an input's facts are read.
OF_INPUT: Conditions[Seen] = (
    ("view whose base does not require grad", _input(facts_of_inputs.loses_gradients)),
    (
        "alias is given another storage",
        _input(lambda one: one.is_set and not one.replaced and one.before != one.value, "{} and what it is set to"),
    ),
    ("overlapping write", _input(facts_of_inputs.writes_twice, "an alias of {}")),
    ("resized after a write", _input(facts_of_inputs.resized_after_a_write)),
    ("set_ before a write", _input(lambda one: one.replaced and one.has_new_grad_fn)),
    ("old storage is written", _input(facts_of_inputs.old_storage_is_shared)),
    (
        "storage is resized",
        _input(
            lambda one: one.is_set and storage_sizes.resizes(one.ledger, one.argument),
            "{}, which set_ gives another storage",
        ),
    ),
    (
        "storage is resized",
        _input(
            lambda one: one.changed and storage_sizes.is_filled(one.ledger, one.argument),
            "{}, which torch.ops.fsdp.copy_ and another operator write",
        ),
    ),
)

# When the function has returned, and its inputs are read.
OF_RUN: Conditions[Ran] = (
    ("hook that depends on the call", ran.hooks_a_leaf),
    ("requires_grad changes", ran.marks_a_shared_input),
    ("storage is resized", storage_sizes.returns_a_resized_storage),
    ("part that is not a view", ran.writes_a_part_elsewhere),
    ("old storage is written", other_storages.old_storage_is_written),
    *(
        (reason, functools.partial(other_storages.is_shared, reason))
        for reason in ("alias is given another storage", "data is assigned")
    ),
    ("hook that depends on the call", ran.returns_a_handle),
    ("inference mode inside", ran.returns_an_inference_subclass),
    ("metadata op on a view", ran.moves_and_writes_a_part),
    ("alias gets a symbolic shape", ran.gives_an_alias_a_symbolic_shape),
)

# When its results are read, too.
OF_RESULTS: Conditions[Results] = (
    ("requires_grad changes", results.views_before_a_mark),
    ("leaf that is a view", results.returns_a_forgotten_view),
    ("a leaf made inside", results.gains_a_leaf),
)

# The stage "metadata": after the first run, and, where gradients are wanted, after the last.
OF_VIEWS_PASSED: Conditions[Ran] = _either(*_MOVES, ran.writes_a_passed_view)
OF_CALL: Conditions[InputsAndBases] = (
    *_either(*_LEAF_OR_VIEW, inputs_and_bases.loses_its_base),
    *_either(*_MOVES, inputs_and_bases.writes_after_turning),
    ("data is assigned", inputs_and_bases.assigns_data_of_a_view),
    ("set_ before a write", inputs_and_bases.uses_a_view_set_elsewhere),
    ("hook on an alias", inputs_and_bases.hooks_a_written_view),
)

# The stage "synthetic bases": before groups are formed, of each, of its storage and roots, and of all together.
OF_PARTS: Conditions[TracedCall] = (("parts of subclasses overlap", shared_memory.has_overlapping_parts),)
OF_MEMBERS: Conditions[Members] = (
    ("view of what is written", shared_memory.bypasses_a_custom_view),
    ("as_strided in a chain of views", shared_memory.reaches_outside),
    ("alias is given another storage", shared_memory.is_set_elsewhere),
)
OF_STORAGES: Conditions[Members] = (("subclasses without a common base", shared_memory.are_subclasses),)
OF_ROOT: Conditions[Rooted] = (("view whose base does not require grad", shared_memory.loses_its_grad_fn),)
OF_GROUPS: Conditions[Grouped] = (
    ("view is resized", shared_memory.resizes_a_view),
    *_either(*_LEAF_OR_VIEW, shared_memory.ends_another),
)

# The stage "joint": before the backward is traced, and after it.
OF_GRAPH_AND_REST: Conditions[GraphAndRest] = (
    ("data is assigned", after_the_graph.assigns_saved_data),
    ("data is written after the graph", after_the_graph.writes_saved_data),
    ("gradient of a result", after_the_graph.is_differentiated_later),
)
OF_GRADIENTS: Conditions[Results] = _either(*_MOVES, results.differentiates_after_a_move)
OF_BACKWARD: Conditions[Backward] = (
    ("part of a subclass by itself", late_writes.reaches_a_part),
    ("written by a backward", late_writes.writes_for_one_of_several),
)
