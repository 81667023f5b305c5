"""The views that a call takes before its graph runs.

An input that is a view gets a new `grad_fn` when that is read at another version. If the function only changes the
shape or strides of views of such an input, these views are taken first, as `v` here, so that gradients flow to the
`grad_fn` that the input has afterwards:

    v = x[:2]
    with torch.no_grad(): v.unsqueeze_(0)
    return v, x.sin()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aotviz.ir.forms import Split
from aotviz.ir.view_and_mutation import Move, Ref, ReplayStep, View
from aotviz.tracing.functional import is_view_with_history


def come_first(
    call: Split, counter_of: Callable[[int], int], passed: Callable[[int], Sequence[int]]
) -> list[ReplayStep]:
    """These steps, in their order. `counter_of` gives the number of a graph input's version counter, `passed` the flat
    inputs that it consists of."""
    owner: dict[Ref, Ref] = {}
    steps_of: dict[int, list[ReplayStep]] = {}
    for step in call.meta.replay:
        source = owner.get(step.source, step.source)
        owner.update(dict.fromkeys(step.made, source))
        if source.kind == "input":
            steps_of.setdefault(counter_of(source.index), []).append(step)
    found: list[ReplayStep] = []
    for counter, steps in steps_of.items():
        inputs = [i for i in range(len(call.meta.input_info)) if counter_of(i) == counter]
        if _only_moves_views(steps) and _of_unchanged_views(call, inputs, passed):
            found += steps
    return found


def _only_moves_views(steps: Sequence[ReplayStep]) -> bool:
    views = all(isinstance(step, Move) or (isinstance(step, View) and step.value is None) for step in steps)
    return views and any(isinstance(step, Move) and step.counts for step in steps)


def _of_unchanged_views(call: Split, inputs: Sequence[int], passed: Callable[[int], Sequence[int]]) -> bool:
    """Whether nothing changes these inputs themselves, and one of them is a view that gets a gradient."""
    if any(call.meta.input_info[i].mutated for i in inputs):
        return False
    differentiated = (passed(i) for i in inputs if call.gradients[i].value is not None)
    return any(len(flat) == 1 and is_view_with_history(call.args[flat[0]]) for flat in differentiated)
