"""Puts the captured backward into eager's order.

C++ tells of autograd's nodes depth first. Autograd's engine runs, of the nodes whose gradients are complete, the one
that was made last in the forward; accumulation into leaves runs at once. The order is what a user sees of hooks, and it
decides in which order the gradients of one tensor are added up, so in the last bit of their sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

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
    waiting = [0] * len(visits)
    for some in followers:
        for follower in some:
            waiting[follower] += 1
    ready, order = Heap(), list[int]()
    for position, count in enumerate(waiting):
        if count == 0:
            ready.push(visits[position].sequence, position)
    while ready:
        position = ready.pop()
        order.append(position)
        for follower in followers[position]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready.push(visits[follower].sequence, follower)
    return order


class Heap:
    """std::priority_queue of (priority, value): of equal priorities it hands out the one that C++ does."""

    def __init__(self) -> None:
        self._items: list[tuple[int, int]] = []

    def __bool__(self) -> bool:
        return bool(self._items)

    def push(self, priority: int, value: int) -> None:
        self._items.append((priority, value))
        self._rise(len(self._items) - 1, (priority, value))

    def pop(self) -> int:
        items = self._items
        _, top = items[0]
        last = items.pop()
        if items:
            hole, child = 0, 2
            while child < len(items):
                child -= items[child][0] < items[child - 1][0]
                items[hole] = items[child]
                hole, child = child, 2 * child + 2
            if child == len(items):
                items[hole] = items[child - 1]
                hole = child - 1
            self._rise(hole, last)
        return top

    def _rise(self, hole: int, item: tuple[int, int]) -> None:
        items = self._items
        while hole and items[(hole - 1) // 2][0] < item[0]:
            items[hole] = items[(hole - 1) // 2]
            hole = (hole - 1) // 2
        items[hole] = item


def _followers(call: WholeBackward) -> list[list[int]]:
    """Per visit, the visits that read its results."""
    found: list[list[int]] = [[] for _ in call.visits]
    readers: dict[fx.Node, list[int]] = {}
    for node in call.graph.nodes:
        if node.op == "call_function" and node.target is not steps.add:
            for part in dict.fromkeys(part for one in node.all_input_nodes for part in _summands(one)):
                if part.op == "call_function" and part.meta["visit"] not in (node.meta["visit"], -1):
                    known = readers.setdefault(part, [])
                    if node.meta["visit"] not in known:
                        known.append(node.meta["visit"])
    for node, visits in ((node, readers.get(node, ())) for node in call.graph.nodes if node.op == "call_function"):
        found[node.meta["visit"]] += visits
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
    groups: dict[int, list[fx.Node]] = {position: [] for position in order}
    sums: dict[fx.Node, list[fx.Node]] = {}  # the last sum of several gradients -> these
    output: Any = None
    for node in call.graph.nodes:
        if node.op == "output":
            output = node
        elif node.op != "call_function" or node.meta["visit"] < 0:
            made[node] = graph.node_copy(node, made.__getitem__)
        elif node.target is steps.add:
            sums[node] = list(_summands(node))
        else:
            groups[node.meta["visit"]].append(node)
    read = {one for node in call.graph.nodes if node.target is not steps.add for one in node.all_input_nodes}
    sums = {total: parts for total, parts in sums.items() if total in read}
    parts_of: dict[fx.Node, list[fx.Node]] = {}
    for total, parts in sums.items():
        for part in parts:
            parts_of.setdefault(part, []).append(total)
    for place, position in enumerate(order):
        for node in groups[position]:
            copied = made[node] = graph.node_copy(node, made.__getitem__)
            copied.meta = {**node.meta, "visit": place}
        for node in groups[position]:
            for total in parts_of.get(node, ()):
                before = made.get(total)
                if before is None:
                    made[total] = made[node]
                else:
                    made[total] = graph.call_function(steps.add, (before, made[node]))
                    made[total].meta["visit"] = place
    graph.node_copy(output, made.__getitem__)
    return graph
