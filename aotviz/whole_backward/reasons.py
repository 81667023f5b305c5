"""Why a backward was captured again: how it differs from each backward that was captured before.

C++ finds a capture by a key that it builds from autograd's graph: its nodes, their hooks, which gradients exist, and,
at first, all sizes. It does not say which part of the key is new. The captures themselves tell: two of them differ in
an autograd node, in what is done around one, or in the sizes of their inputs.

explain/guard_failures.py reads these texts, and says what to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch.fx as fx

from aotviz.recording import captured_visits
from aotviz.recording.captured_visits import ADDS, ANOTHER_KEY, SETS, Done
from aotviz.recording.guard_texts import ALSO, MOST_TOLD
from aotviz.whole_backward import steps
from aotviz.whole_backward.captured import Lifted, WholeBackward

HOOKS: dict[Any, str] = {  # step -> its kind of hook
    steps.tensor_pre_hook: "gradient hooks",
    steps.pre_hook: "pre-hooks",
    steps.post_hook: "hooks",
    steps.post_accumulate_grad_hook: "post-accumulate-grad hooks",
    steps.unpack: "unpack hooks",
}
DROPPED = "all captures were dropped since"  # by `reset()`, a change of autocast, or a capture that failed


def labels(graph: fx.Graph, count: int) -> tuple[tuple[str, ...], ...]:
    """Per visit, what is done, in words that are equal for equal keys."""
    found: list[list[str]] = [[] for _ in range(count)]
    for node in graph.nodes:
        if node.op == "call_function" and node.meta["visit"] >= 0:
            name = HOOKS.get(node.target) or getattr(node.target, "__name__", str(node.target))
            if node.target is steps.accumulate_grad:
                name = ADDS if node.meta["adds"] else SETS
            found[node.meta["visit"]].append(name)
    return tuple(map(tuple, found))


def difference(before: WholeBackward, now: WholeBackward) -> str:
    """How a backward differs from one that was captured before: all that tells them apart, so that the earlier one with
    the fewest differences is the nearest."""
    told = captured_visits.differences(_done(before), _done(now), tuple(HOOKS.values()))
    if not told or not any(one.kind == "size" for one in before.inputs):  # symbols fit other sizes too
        told += _resized(before, now)
    return ALSO.join(told[:MOST_TOLD]) or ANOTHER_KEY


def _done(call: WholeBackward) -> list[Done]:
    return [Done(visit.name, visit.subject, steps) for visit, steps in zip(call.visits, call.done, strict=True)]


def _resized(before: WholeBackward, now: WholeBackward) -> list[str]:
    """How the inputs that a visit reads differ from what the same visit read before. Where several tensors changed in
    the same way, one is told, if possible one that the user has a name for."""
    (earlier, fewer), (later, more) = _read(before), _read(now)
    kept: list[tuple[Lifted, Lifted]] = []
    numbers: list[str] = []
    for i, j in captured_visits.pairs([one.name for one in before.visits], [one.name for one in now.visits]):
        if i is None or j is None or before.visits[i].name != now.visits[j].name:
            continue
        if len(earlier[i]) == len(later[j]):
            kept += zip(earlier[i], later[j], strict=True)
        if fewer[i] < more[j]:
            numbers.append(f"a number that {now.visits[j]} keeps changed")
    told: dict[tuple[str, ...], str] = {}  # what changed, as it was and as it is -> the text
    for was, one in sorted(kept, key=lambda pair: not pair[1].is_users):
        for what, change in _changes(was, one):
            told.setdefault(change, f"the backward keeps {one.name}, whose {what} was {change[1]} and is {change[2]}")
    return list(told.values()) or list(dict.fromkeys(numbers))


def _read(call: WholeBackward) -> tuple[list[list[Lifted]], Counter[int]]:
    """Per visit, the tensors that it reads first, and the count of such numbers."""
    found: list[list[Lifted]] = [[] for _ in call.visits]
    for one in call.inputs:
        if one.kind == "tensor" and one.visit >= 0:
            found[one.visit].append(one)
    return found, Counter(one.visit for one in call.inputs if one.kind != "tensor")


def _changes(was: Lifted, one: Lifted) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """(what of a tensor changed, (its kind, as it was, as it is))."""
    if was.dtype != one.dtype:
        yield "dtype", ("dtype", was.dtype, one.dtype)
    if len(was.shape) != len(one.shape):
        yield "number of dimensions", ("number of dimensions", str(len(was.shape)), str(len(one.shape)))
    else:
        for k, (a, b) in enumerate(zip(was.shape, one.shape, strict=True)):
            if a != b:
                yield f"size {k}", ("size", str(a), str(b))
