"""One tensor passed twice (docs/design/system.md C1).

A duplicate that is not mutated needs nothing: each occurrence is traced as a separate tensor, and autograd adds up
their gradients. If it is mutated, the trace must know that both are one tensor: they become one graph input, and the
program is valid only for calls that pass the same tensor in both places, which the wrapper checks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from aotviz.ir.forms import Emitter, Reason, Rewrite, TracedCall
from aotviz.runtime import call_differs


@dataclass(frozen=True)
class MergeDuplicates(Rewrite):
    """Graph input k is user input `kept[k]`; user input i is graph input `position[i]`."""

    kept: tuple[int, ...]
    position: tuple[int, ...]
    names: tuple[str, ...]  # of the user inputs

    def traced(self, fn: Any) -> Any:
        """`fn`, called with each duplicate only once."""
        position = self.position
        return lambda *inputs: fn(*[inputs[p] for p in position])

    def inputs(self, emit: Emitter, variables: list[str]) -> list[str]:
        for index, place in enumerate(self.position):
            if self.kept[place] != index:
                call_differs.check_same(emit, self.names, variables, index, self.kept[place])
        return [variables[i] for i in self.kept]


def run(call: TracedCall) -> TracedCall:
    duplicates = [(i, first) for i, first in enumerate(call.duplicate_of) if first is not None]
    infos = call.meta.input_info
    changed = {i for i, info in enumerate(infos) if info.mutated or info.turned_on or info.turned_off}
    changed |= call.forward.hooked_inputs()
    mutated = {first for i, first in duplicates if i in changed or first in changed}
    names = tuple(d.name for d in call.descriptors)

    def told(pairs: Iterable[tuple[int, int]], what: str) -> tuple[Reason, ...]:
        return tuple(Reason(names[i], f"the same tensor as {names[first]}, {what}") for i, first in pairs)

    if not mutated:
        return replace(call, evidence=told(duplicates, "never mutated: each is a separate graph input"))
    merged = {i: first for i, first in duplicates if first in mutated}
    kept = tuple(i for i in range(len(names)) if i not in merged)
    place = {index: k for k, index in enumerate(kept)}
    written = {merged.get(i, i) for i, info in enumerate(infos) if info.mutates_data}
    rewrite = MergeDuplicates(kept, tuple(place[merged.get(i, i)] for i in range(len(names))), names)
    known = call.forward.program.known
    as_views = frozenset(place[i] for i in known.as_views if i in place and i not in written)
    forward = call.forward.rerun(
        fn=rewrite.traced(call.fn),
        args=[call.args[i] for i in kept],
        known=known.placed(dict(enumerate(rewrite.position)), as_views),
    )
    return call.retraced(
        forward,
        graph_inputs=tuple(call.graph_inputs[i] for i in kept),
        static_inputs=tuple(place[i] for i in call.meta.static_input_indices if i in place),
        rewrite=rewrite,
        evidence=told(merged.items(), "and mutated: merged into one graph input"),
    )
