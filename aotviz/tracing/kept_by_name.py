"""Tensors whose later writes eager's backward sees, and does not check for.

Two kinds: what a custom autograd.Function keeps as an attribute (`ctx.x = x`) and not by `save_for_backward`, and the
parts of a saved subclass, as of `DTensor.from_local(x)`, which has a version counter of its own. The backward reads
such a tensor with the writes that happened since. So if the caller can see that memory, the nodes that read it stay in
the backward, and the tensor is saved without a version check. If a partitioner gives the backward something else
instead, or if other nodes read the tensor's original value, it is saved with the check, and a write raises an error.

`saved_unseen` finds inputs that torch's own operators save with a version check that misses some writes. Eager then
computes with the values of that moment. The compiled backward raises if such an input was written.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import autograd_graph, graphs, wrapper_subclasses
from aotviz.ir.partition_functions import BACKWARD_ONLY, must_save
from aotviz.python_state.free_variables import reachable
from aotviz.torch_private import autograd_nodes
from aotviz.tracing import functional, views
from aotviz.tracing.open_trace import OpenTrace

_READS = "reads_kept_by_name"  # in a node's `meta`: which of its input nodes are such tensors; a pass may remove views


def found(trace: OpenTrace, nodes: Sequence[Any], meets_subclass: bool) -> Mapping[fx.Node, set[int]]:
    """Map the graph node of each such tensor to the numbers of the autograd nodes that keep it."""
    kept: defaultdict[fx.Node, set[int]] = defaultdict(set)
    keepers = [node for node in nodes if meets_subclass or autograd_graph.from_custom_function(node)]
    if not keepers:
        return kept
    with trace.active("is_forward"):
        for node in keepers:
            held = [trace.node_of(functional.inner(part)) for part in _parts(node)]
            if autograd_graph.from_custom_function(node):
                held += _by_name(trace, node)
            for one in held:
                kept[one].add(autograd_nodes.number(node))
    return kept


def _parts(node: Any) -> Iterator[Any]:
    """The parts of the subclasses that an autograd node saved."""
    for tensor in functional.saved_tensors_of(node):
        if wrapper_subclasses.is_subclass(tensor):
            yield from filter(functional.is_plain, wrapper_subclasses.parts(tensor))


def _by_name(trace: OpenTrace, node: Any) -> list[Any]:
    """What only attributes of a custom Function's node keep."""
    values = (one.value for one in reachable(node))
    tensors = (one for one in values if isinstance(one, torch.Tensor) and functional.is_plain(one))
    held = [trace.node_of(functional.inner(tensor)) for tensor in tensors]
    saved: Sequence[Any] = ()
    with contextlib.suppress(RuntimeError):  # one of them was written since
        saved = node.saved_tensors if held else ()
    checked = [trace.node_of(functional.inner(tensor)) for tensor in saved if functional.is_plain(tensor)]
    return [one for one in held if one not in checked]


def _view_again(graph: fx.Graph, reader: fx.Node, view: fx.Node, kept: defaultdict[fx.Node, set[int]]) -> None:
    """Let a node that reads a kept view take that view itself. Other users of the view may need the values from before
    the writes."""
    views, made = list[fx.Node](), view
    while graphs.is_view(made):
        views.append(made)
        made = graphs.argument(made)
    with graph.inserting_before(reader):
        for one in reversed(views):
            made = graph.node_copy(one, lambda node, one=one, made=made: made if node is one.args[0] else node)  # type: ignore[misc]
            made.meta = {**reader.meta, "val": one.meta["val"]}
            kept[made].add(reader.meta["autograd_number"])
    reader.replace_input_with(view, made)


def _is_in_backward(node: fx.Node) -> bool:
    """The forward of a second derivative runs autograd nodes, too."""
    return str(node.meta.get("partitioner_tag")).endswith("backward")


def hold_readers(graph: fx.Graph, kept: Mapping[fx.Node, set[int]], results: Sequence[Any]) -> None:
    """Keep the backward's nodes that read such tensors in the backward, if the caller can see the memory: it belongs to
    an input or one of the `results`."""
    kept = defaultdict(set, kept)
    visible = filter(_has_storage, (*graphs.placeholders(graph), *results))
    places = {functional.storage(node.meta["val"]) for node in visible}
    owners = {graphs.owner(node) for node in (*graphs.placeholders(graph), *results)}
    for one, numbers in list(kept.items()):
        if graphs.owner(one) in owners:  # autograd may take a view again of what has been written
            kept[graphs.owner(one)] |= numbers
    for node in list(filter(_is_in_backward, graph.nodes)):
        for one in node.all_input_nodes:
            if node.meta.get("autograd_number") in kept.get(one, ()) and graphs.owner(one) in owners:
                _view_again(graph, node, one, kept)
    for node in filter(_is_in_backward, graph.nodes):
        number = node.meta.get("autograd_number")
        is_write = graphs.is_input_mutation(node)  # of tracing/late_writes.py
        inputs = node.all_input_nodes
        read = [
            i
            for i, one in enumerate(inputs)
            if number in kept.get(one, ()) or (is_write and one in kept)
            if _has_storage(one) and functional.storage(one.meta["val"]) in places
        ]
        if read and node.op == "call_function":
            for one in (inputs[i] for i in read if inputs[i].meta.get("partitioner_tag") != BACKWARD_ONLY):
                must_save(one)
            node.meta[_READS] = read
            node.meta["partitioner_tag"] = BACKWARD_ONLY


def saved_unseen(trace: OpenTrace, nodes: Sequence[Any], inputs: Mapping[int, Any], bases: Set[int]) -> set[int]:
    """Which of the `inputs` have memory that autograd saved through an alias with another version counter. `.data` has
    its own counter, and so have a subclass that was made over the memory (`DTensor.from_local`), and some of the
    arguments that one of the `bases` consists of."""
    if not inputs:
        return set()
    found: set[int] = set()
    with trace.active("is_forward"):
        bases_last = sorted(inputs, key=lambda i: i in bases)  # the members of a base share its storage
        places = {functional.storage(inputs[i]): i for i in bases_last if functional.is_plain(inputs[i])}
        for tensor in (tensor for node in nodes for tensor in functional.saved_tensors_of(node)):
            i = places.get(functional.storage(tensor)) if functional.is_plain(tensor) else None
            if i is not None and (i in bases or not functional.shares_counter(tensor, inputs[i])):
                found.add(i)
    return found


def _has_storage(node: Any) -> bool:
    return isinstance(node, fx.Node) and functional.has_storage(node.meta.get("val"))


def stands_for(written: fx.Node, before: Any) -> bool:
    """Whether a backward can read an input, which has the value `written` after the call, in place of what that value
    is a view of: they have one layout."""
    value, whole = written.meta["val"], graphs.owner(written).meta["val"]
    return bool(views.layout(value) == views.layout(whole) and value.stride() == before.stride())


def readers(graph: fx.Graph) -> dict[str, set[str]]:
    """For each tensor kept as an attribute, the nodes that read it when the backward runs."""
    by_name: defaultdict[str, set[str]] = defaultdict(set)
    for node in graph.nodes:
        inputs = node.all_input_nodes
        for i in node.meta.get(_READS, ()) if inputs else ():
            by_name[inputs[min(i, len(inputs) - 1)].name].add(node.name)
    return by_name


def read_as_it_is(backward: fx.Graph, wanted: Mapping[str, set[str]]) -> dict[str, str]:
    """Which of the `wanted` tensors the backward of the partitioned graph has, with no other readers than these, and as
    which of its inputs: a view may be taken of one there."""
    nodes = {node.name: node for node in backward.nodes}
    inputs = {name: graphs.owner(nodes[name]) for name in wanted if name in nodes}
    readers = defaultdict[fx.Node, set[str]](set)
    for name, one in inputs.items():
        readers[one] |= wanted[name]
    fits = {one for one in readers if one.op == "placeholder" and _only_read_by(one, readers[one])}
    return {name: one.name for name, one in inputs.items() if one in fits}


def _only_read_by(node: fx.Node, readers: set[str]) -> bool:
    return all(user.name in readers or (graphs.is_view(user) and _only_read_by(user, readers)) for user in node.users)
