"""Tensors that a custom autograd.Function keeps by name (`ctx.x = x`), and not by `save_for_backward`.

Its backward reads such a tensor as it is by then: what was written to it since counts, and nobody checks. So where
the caller holds that memory too, the nodes that read it stay in the backward, and the tensor is saved without a check
of its version. Where a partitioner gives the backward something else instead, or other nodes read the tensor as it was,
it is saved with the check, and a write is refused.

`saved_unseen` finds what torch's own operators save without a check that sees all writes; those are refused, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import torch.fx as fx

from aotviz.ir.wrapper_subclasses import is_subclass
from aotviz.torch_private import autograd_nodes
from aotviz.tracing import functional
from aotviz.tracing.open_trace import OpenTrace

_READS = "reads_kept_by_name"  # in a node's `meta`: the names of the nodes that it reads so


def found(trace: OpenTrace, nodes: Sequence[Any]) -> Mapping[fx.Node, set[int]]:
    """The graph nodes of the tensors that these autograd nodes keep by name only -> the autograd nodes' numbers."""
    kept: defaultdict[fx.Node, set[int]] = defaultdict(set)
    custom = list(filter(functional.from_custom_function, nodes))
    if not custom:
        return kept
    with trace.active("is_forward"):
        for node in custom:
            held = [trace.node_of(functional.inner(tensor)) for tensor in _tensors(vars(node))]
            saved = functional.saved_by(node) if held else ()
            checked = [trace.node_of(functional.inner(tensor)) for tensor in saved if _is_plain(tensor)]
            for one in held:
                if isinstance(one, fx.Node) and one not in checked:
                    kept[one].add(autograd_nodes.number(node))
    return kept


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif _is_plain(value):
        yield value


def _is_plain(value: Any) -> bool:
    return functional.is_functional(value) and not is_subclass(value)


def hold_readers(graph: fx.Graph, kept: Mapping[fx.Node, set[int]], visible: Sequence[Any]) -> None:
    """Keep the nodes of the backward that read what is kept, and `visible` to the caller, in the backward."""
    places = {functional.storage(node.meta["val"]) for node in visible if _has_storage(node)}
    for node in graph.nodes:
        read = [
            one.name
            for one in node.all_input_nodes
            if node.meta.get("autograd_number") in kept.get(one, ())
            and _has_storage(one)
            and functional.storage(one.meta["val"]) in places
        ]
        if read and node.op == "call_function":
            node.meta[_READS] = read
            node.meta["partitioner_tag"] = "must_be_in_backward"


def saved_unseen(trace: OpenTrace, nodes: Sequence[Any], written: Mapping[int, Any], bases: Set[int]) -> set[int]:
    """Which of the `written` inputs have memory that autograd saved by an alias whose version counter does not count
    all writes to it: `.data` has its own, and so have some of the arguments that one of the `bases` is made of."""
    if not written:
        return set()
    found: set[int] = set()
    with trace.active("is_forward"):
        bases_last = sorted(written, key=lambda i: i in bases)  # a member of a base that is written lies in its storage
        places = {functional.storage(written[i]): i for i in bases_last if _is_plain(written[i])}
        for tensor in (tensor for node in nodes for tensor in functional.saved_tensors_of(node) if _is_plain(tensor)):
            i = places.get(functional.storage(tensor))
            if i is not None and (i in bases or not functional.shares_counter(tensor, written[i])):
                found.add(i)
    return found


def _has_storage(node: Any) -> bool:
    return isinstance(node, fx.Node) and functional.has_storage(node.meta.get("val"))


def readers(graph: fx.Graph) -> dict[str, set[str]]:
    """For each node that is kept by name, the nodes that read it as it is when the backward runs."""
    by_name: defaultdict[str, set[str]] = defaultdict(set)
    for node in graph.nodes:
        for name in node.meta.get(_READS, ()):
            by_name[name].add(node.name)
    return by_name


def read_as_it_is(backward: fx.Graph, wanted: Mapping[str, set[str]]) -> frozenset[str]:
    """Which of `wanted`, which `readers` gave, nothing but these readers read in the backward of the cut graph."""
    inputs = {node.name: node for node in backward.nodes if node.op == "placeholder"}
    users = {name: {user.name for user in inputs[name].users} for name in wanted if name in inputs}
    return frozenset(name for name, known in users.items() if known == wanted[name])
