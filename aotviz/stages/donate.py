"""Which saved tensors the backward may overwrite (docs/design/system.md D6).

A saved tensor that shares memory with no input, output or gradient dies with the backward that reads it, so the
backward may put a gradient in its place. A second backward through the same graph (`retain_graph=True`) still needs it:
for that, a backward that donates nothing is compiled on demand.
"""

from __future__ import annotations

from dataclasses import replace

from aotviz.ir.forms import Reason, Split
from aotviz.tracing.saved_values import deaths


def run(call: Split) -> Split:
    saved = []
    for value, (dies, why) in zip(call.saved, deaths(call), strict=True):
        if dies and not call.options.donate_buffers:
            dies, why = False, "donate_buffers is off"
        saved.append(replace(value, donated=dies, why_donated=why))
    evidence = tuple(Reason(s.name, f"{'donated' if s.donated else 'not donated'}: {s.why_donated}") for s in saved)
    return replace(call, saved=tuple(saved), evidence=evidence)
