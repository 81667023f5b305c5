"""Storages that the function resizes directly: `x.untyped_storage().resize_(0)`, as FSDP frees its parameters.

The graph computes with values, so most resizes are no part of it. Before the graph runs, the wrapper makes room for all
that the function reads and writes; after the writes, it gives the storage its last size. What a function frees in
between and does not fill again, it may not read, so no value depends on the sizes in between.

The exception is an input that `torch.ops.fsdp.copy_` fills. That operator stays in the graph and writes the input's own
memory, so the resizes stay there too, each at its place. Otherwise a graph that gathers one parameter after the other
would need the memory of all of them at once. Where a result is a view of such an input, the wrapper takes that view
after the graph, and needs the memory for it: then the wrapper resizes this input too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from aotviz.ir import graphs
from aotviz.ir.partition_functions import FORWARD_ONLY, must_save
from aotviz.ir.refusals import Names
from aotviz.torch_private import operators
from aotviz.tracing import functional
from aotviz.tracing.ledger import Ledger
from aotviz.tracing.open_trace import OpenTrace
from aotviz.tracing.ran import Ran


def of_input(argument: Any, ledger: Ledger, results: Iterable[Any]) -> tuple[int, int] | None:
    """Return the largest and the last size, in bytes, that the wrapper gives the storage of an input; None if it does
    not resize it. Another input over the same storage may have resized it last."""
    if not resizes(ledger, argument) or _stays_in_graph(ledger, argument, results):
        return None
    own = ledger.storages[ledger.number(argument)]
    sizes = [event.size for event in ledger.resized_storages if ledger.storages.get(event.tensor) == own]
    return max(sizes), sizes[-1]


def returns_a_resized_storage(ran: Ran) -> Iterator[Names]:
    """A result whose storage does not have its first size again: a graph cannot return it like that."""
    ledger = ran.ledger
    first = {event.tensor: event.was for event in reversed(ledger.resized_storages)}
    last = {event.tensor: event.size for event in ledger.resized_storages}
    inside = {tensor for tensor in last if last[tensor] != first[tensor]}.difference(map(ledger.number, ran.args))
    if any(ledger.root(ledger.number(one)) in inside for one in ran.outputs if isinstance(one, torch.Tensor)):
        yield "a result, or a tensor that shares its memory"


def put_into(trace: OpenTrace, passed: Iterable[tuple[Any, Any]], results: Sequence[Any]) -> None:
    """Put the resizes of inputs that the graph itself fills into it, unless the wrapper does them. `passed` are the
    inputs with their fakes.

    The backward must not compute again what the forward computed from such an input: its memory may be freed by then.
    """
    graph, ledger = trace.graph, trace.ledger
    for argument, fake in passed:
        if not is_filled(ledger, argument):
            continue
        node = trace.node_of(fake)
        for user in [user for user in graph.nodes if any(graphs.owner(n) is node for n in user.all_input_nodes)]:
            if operators.writes(user.target):
                user.meta["partitioner_tag"] = FORWARD_ONLY
            elif not operators.is_view(user.target) and "recompute" not in user.meta:
                must_save(user)
        for event in reversed(ledger.resized_storages):
            if event.tensor == ledger.number(argument) and _stays_in_graph(ledger, argument, results):
                with graph.inserting_after(event.after):
                    resize = graph.call_function(operators.RESIZE_STORAGE, (node, event.size))
                resize.meta.update(val=None, partitioner_tag=FORWARD_ONLY)


def resizes(ledger: Ledger, argument: Any) -> bool:
    number = ledger.number(argument)
    return any(event.tensor == number for event in ledger.resized_storages)


def _stays_in_graph(ledger: Ledger, argument: Any, results: Iterable[Any]) -> bool:
    views = (one for one in results if functional.is_functional(one) and one is not argument)
    return is_filled(ledger, argument) and not any(ledger.owner(one) is argument for one in views)


def is_filled(ledger: Ledger, argument: Any) -> bool:
    """Whether an operator that stays in the graph writes an input that the function resizes."""
    written = (event.operator for _, event in ledger.writes_to(ledger.number(argument)))
    return resizes(ledger, argument) and any(
        one is not None and operators.name(one) == operators.FILLS for one in written
    )
