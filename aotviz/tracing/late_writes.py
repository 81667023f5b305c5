"""Inputs that a backward writes: the backward of a custom autograd.Function, or a gradient hook, writes to an argument
or a buffer.

The write becomes the last node of the joint graph, and every partitioner must leave it in the backward. The input is
then one of the saved values, so autograd checks, as for any, that it was not written in between.

A backward with several incoming gradients is not called with all of them each time, and in eager the write depends on
which of them reach its Function. Such programs are refused, and so is a call with create_graph=True, in which the
gradients are computed by another program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotviz.ir.partition_functions import BACKWARD_ONLY
from aotviz.ir.refusals import Names, Refused
from aotviz.ir.wrapper_subclasses import is_subclass, parts
from aotviz.torch_private import operators
from aotviz.tracing import functional
from aotviz.tracing.open_trace import OpenTrace

LateWrites = tuple[tuple[int, int], ...]  # (graph input, how often its version counter is bumped)


def values_now(args: Sequence[Any]) -> list[list[Any]]:
    """For each argument, the current values of its parts."""
    return [list(map(functional.inner, parts(a))) if functional.is_functional(a) else [] for a in args]


def changed(args: Sequence[Any], before: list[list[Any]]) -> list[int]:
    """The arguments whose values are others than before."""
    pairs = enumerate(zip(before, values_now(args), strict=True))
    return [i for i, (was, now) in pairs if any(a is not b for a, b in zip(was, now, strict=True))]


class Watch:
    """Created before a backward is traced; `written` is called after it."""

    def __init__(self, trace: OpenTrace, passed: Sequence[Any], args: Sequence[Any]) -> None:
        self.trace, self.passed, self.args = trace, passed, args
        with trace.active("is_forward"):
            self.before = values_now(args)
            self.versions = [operators.version(one) if functional.is_functional(one) else 0 for one in args]

    def written(self, name: Callable[[int], str]) -> LateWrites:
        """Put what the backward wrote to inputs into the graph. Returns pairs of an input and how often its version
        counter was bumped. `name` gives an input's name. Raises Refused."""
        trace, args, before, found = self.trace, self.args, self.before, []
        with trace.active("is_backward"):
            for i in changed(args, before):
                bumps = operators.version(args[i]) - self.versions[i]
                target: Any = None if any(map(is_subclass, args)) else trace.node_of(before[i][0])
                now, (was, *_) = functional.inner(args[i]), before[i]
                is_input = getattr(target, "op", "") == "placeholder" and not _is_shared(self.passed, i)
                if bumps < 1 or not is_input or (now.shape, now.stride()) != (was.shape, was.stride()):
                    raise Refused("written by a backward", name(i))
                node = trace.graph.call_function(torch.ops.aten.copy_.default, (target, trace.node_of(now)))
                tags = {"partitioner_tag": BACKWARD_ONLY, "autograd_backward": True}
                node.meta = {"val": target.meta["val"], **tags}
                found.append((i, bumps))
        return tuple(found)


@dataclass(frozen=True, eq=False)
class Backward:
    """What a traced backward computes and writes."""

    names: Sequence[Any]  # one per graph input
    part_edges: Sequence[tuple[int, str, Any]]  # of the parts of subclasses
    part_gradients: Sequence[Any]  # one per part edge
    tangents: int
    late: LateWrites


def writes_for_one_of_several(one: Backward) -> Iterator[Names]:
    if one.late and one.tangents > 1:
        yield str(one.names[one.late[0][0]])


def reaches_a_part(one: Backward) -> Iterator[Names]:
    """A part of a subclass gets a gradient, and autograd sees only the whole."""
    for (index, path, _), value in zip(one.part_edges, one.part_gradients, strict=True):
        if value is not None:
            yield f"{one.names[index]}{path}", str(one.names[index])


def _is_shared(passed: Sequence[Any], i: int) -> bool:
    """Whether an input shares its memory with another, or is moved."""
    keys = [functional.storage(one) for one in passed if functional.has_storage(one)]
    own = passed[i]
    return not functional.has_storage(own) or keys.count(functional.storage(own)) > 1
