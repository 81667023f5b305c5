"""Puts the captured backward into eager's order.

C++ tells of autograd's nodes depth first. Autograd's engine runs, of the nodes whose gradients are complete, the one
that was made last in the forward; accumulation into leaves runs at once. The order is what a user sees of hooks, and it
decides in which order the gradients of one tensor are added up, so in the last bit of their sum.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.forms import Reason
from aotviz.whole_backward import steps
from aotviz.whole_backward.captured import Visit, WholeBackward


def run(call: WholeBackward) -> WholeBackward:
    """WholeBackward -> WholeBackward."""
    order = in_eagers_order(call.visits, _followers(call))
    graph = _rewritten(call, order)
    moved = [Reason(str(call.visits[k]), "runs here in eager") for place, k in enumerate(order) if place != k]
    place_of = {position: place for place, position in enumerate(order)}
    return replace(
        call,
        graph=graph,
        visits=tuple(call.visits[k] for k in order),
        done=tuple(call.done[k] for k in order),
        inputs=tuple(replace(one, visit=place_of.get(one.visit, -1)) for one in call.inputs),
        evidence=tuple(moved),
    )


def in_eagers_order(visits: Sequence[Visit], followers: Sequence[Sequence[int]]) -> list[int]:
    """The positions of the visits, in the order in which the engine runs them.

    Args:
        visits: in any order, the root first.
        followers: per visit, which others take its results, one entry per edge of autograd's graph, in its order.
    """
    waiting = Counter(itertools.chain.from_iterable(followers))
    ready, order = list[_Ready](), list[int]()

    def is_ready(position: int) -> None:
        heapq.heappush(ready, _Ready(-visits[position].sequence, position))

    for position in range(len(visits)):
        if waiting[position] == 0:
            is_ready(position)
    while ready:
        order.append(heapq.heappop(ready).position)
        for follower in followers[order[-1]]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                is_ready(follower)
    return order


@dataclass(frozen=True, order=True)
class _Ready:
    """A visit whose gradients are complete. Of equal ones, `heapq` hands out the one that C++'s std::priority_queue
    does: in both, the child on the right moves up on a tie."""

    priority: int  # the lowest runs first
    position: int = field(compare=False)


def _followers(call: WholeBackward) -> list[list[int]]:
    """Per visit, the visits that read its results."""
    found: list[list[int]] = [[] for _ in call.visits]
    readers: dict[fx.Node, dict[int, None]] = defaultdict(dict)  # the visits in order, each once
    for node in call.graph.nodes:
        if node.op == "call_function" and node.target is not steps.add:
            for part in (part for one in node.all_input_nodes for part in _summands(one)):
                if part.op == "call_function" and part.meta["visit"] not in (node.meta["visit"], -1):
                    readers[part][node.meta["visit"]] = None
    for node in call.graph.nodes:
        if node in readers:
            found[node.meta["visit"]] += readers[node]
    return found


def _summands(node: fx.Node) -> Iterator[fx.Node]:
    """The gradients that a node is the sum of; itself if it is no sum."""
    if node.target is steps.add:
        for position in range(len(node.args)):
            yield from _summands(graphs.argument(node, position))
    else:
        yield node


def _rewritten(call: WholeBackward, order: Sequence[int]) -> fx.Graph:
    """The graph in this order. Gradients are added up as they come in that order, as the engine adds them."""
    graph, made = fx.Graph(), dict[fx.Node, fx.Node]()
    groups: dict[int, list[fx.Node]] = defaultdict(list)
    sums_of: dict[fx.Node, list[fx.Node]] = defaultdict(list)  # a gradient -> the sums that it is a part of
    read = {one for node in call.graph.nodes if node.target is not steps.add for one in node.all_input_nodes}
    *nodes, output = call.graph.nodes
    for node in nodes:
        if node.op != "call_function" or node.meta["visit"] < 0:
            made[node] = graph.node_copy(node, made.__getitem__)
        elif node.target is not steps.add:
            groups[node.meta["visit"]].append(node)
        elif node in read:  # the last sum of several gradients
            for part in _summands(node):
                sums_of[part].append(node)
    for place, position in enumerate(order):
        for node in groups[position]:
            copied = made[node] = graph.node_copy(node, made.__getitem__)
            copied.meta = {**node.meta, "visit": place}
        for node in groups[position]:
            for total in sums_of[node]:
                if total in made:
                    made[total] = graph.call_function(steps.add, (made[total], made[node]))
                    made[total].meta["visit"] = place
                else:
                    made[total] = made[node]
    graph.node_copy(output, made.__getitem__)
    return graph
