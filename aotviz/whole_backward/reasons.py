"""Why a backward was captured again: how it differs from each backward that was captured before.

C++ finds a capture by a key that it builds from autograd's graph: its nodes, their hooks, which gradients exist, and,
at first, all sizes. It does not say which part of the key is new. The captures themselves tell: two of them differ in
an autograd node, in what is done around one, or in the sizes of their inputs.

explain/guard_failures.py reads these texts, and says what to do.
"""

from __future__ import annotations

import torch.fx as fx

from aotviz.recording import captured_visits
from aotviz.recording.captured_visits import ADDS, ANOTHER_KEY, SETS, Done
from aotviz.recording.guard_texts import ALSO, MOST_TOLD
from aotviz.whole_backward import steps
from aotviz.whole_backward.captured import WholeBackward

HOOKS = {  # step -> its kind of hook
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
    """How a backward differs from one that was captured before."""
    told = captured_visits.difference(_done(before), _done(now), HOOKS.values())
    return told or _resized(before, now) or ANOTHER_KEY


def _done(call: WholeBackward) -> list[Done]:
    return [Done(visit.name, visit.subject, steps) for visit, steps in zip(call.visits, call.done, strict=True)]


def same(before: WholeBackward, now: WholeBackward) -> bool:
    """Whether nothing tells two captures apart."""
    return difference(before, now) == ANOTHER_KEY


def _resized(before: WholeBackward, now: WholeBackward) -> str:
    earlier = {one.name: one for one in before.inputs if one.dtype}
    told: list[str] = []
    for one in now.inputs:
        was = earlier.get(one.name)
        if was is None or not one.dtype:
            continue
        kept = f"the backward keeps {one.name}"
        if was.dtype != one.dtype:
            told.append(f"{kept}, whose dtype was {was.dtype} and is {one.dtype}")
        elif len(was.shape) == len(one.shape):
            pairs = enumerate(zip(was.shape, one.shape, strict=True))
            told += [f"{kept}, whose size {k} was {a} and is {b}" for k, (a, b) in pairs if a != b]
        else:
            told.append(f"{kept}, whose number of dimensions was {len(was.shape)} and is {len(one.shape)}")
    lifted = {one.name for one in before.inputs}
    numbers = dict.fromkeys(one.visit for one in now.inputs if not one.dtype and one.name not in lifted)
    if not told:
        told = [f"a number that {now.visits[visit]} keeps changed" for visit in numbers if visit >= 0]
    return ALSO.join(told[:MOST_TOLD])
