"""What would lower the peak of each compilation, what it keeps for the backward beside eager, and what Inductor needs.

The workbench shows it in the view of memory. A page that talks to a kernel asks for one compilation when its view is
opened: saving a recording and showing it cost nothing more. A page that is written for a browser without one has it for
its first compilations, up to `MOST_NODES` nodes in all, so that writing takes less than about a second longer.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Hashable

from aotviz.recording import inductor_memory
from aotviz.recording.compilation import Compilation
from aotviz.recording.findings import PeakChange, PeakRecord
from aotviz.recording.holders import Recorded
from aotviz.recording.inductor_memory import InductorMemory
from aotviz.recording.schema import NONE

MOST_NODES = 5000
_KINDS = ("training", "inference", "compiled autograd")

_known: weakref.WeakKeyDictionary[Recorded, tuple[Hashable, dict[str, list[PeakRecord]]]] = weakref.WeakKeyDictionary()


def of_all(recording: Recorded) -> list[PeakRecord]:
    """Of the first compilations, up to `MOST_NODES` nodes in all."""
    found: list[PeakRecord] = []
    left = MOST_NODES
    for one in recording.compilations:
        nodes = 2 * one.nodes  # of the largest graph; forward and backward
        if nodes <= left:
            left -= nodes
            found += _of(recording, one)
    return found


def of_one(recording: Recorded, compilation_id: str) -> list[PeakRecord]:
    """Of one compilation, for each device; nothing if it has no plan of memory, or is no longer there."""
    return [record for one in recording.compilations if one.id == compilation_id for record in _of(recording, one)]


def _of(recording: Recorded, compilation: Compilation) -> list[PeakRecord]:
    revision = recording.revision
    known = _known.get(recording)
    if known is None or known[0] != revision:
        known = _known[recording] = revision, {}
    records = known[1]
    if compilation.id not in records:
        records[compilation.id] = _made(compilation)
    return records[compilation.id]


def _made(compilation: Compilation) -> list[PeakRecord]:
    if compilation.kind not in _KINDS:
        return []
    try:
        first = compilation.peak_changes()
    except (LookupError, ValueError):  # no graph that runs; or a size that is not known
        return []
    devices = first.memory.devices
    others = [one for one in devices if one != first.counted.device] if len(devices) > 1 else []
    beside: list[str] = []
    data = compilation.data
    if data.log == NONE and not data.sizes:  # a log does not say what is saved
        with contextlib.suppress(LookupError):
            beside = compilation.beside_eager().sentences
    inductor: list[str] = []
    with contextlib.suppress(LookupError, ValueError):  # another backend; or a text that is no Python
        inductor = InductorMemory(first.memory, inductor_memory.texts(data.stages)).sentences
    return [
        PeakRecord(
            compilation.id,
            found.counted.peak.nbytes,
            [
                PeakChange(
                    one.kind, one.what, one.saves, one.peak, one.at, one.recompute_ms, one.source, list(one.values)
                )
                for one in found
            ],
            beside,
            inductor,
            found.counted.device,
        )
        for found in (first, *(compilation.peak_changes(device=one) for one in others))
    ]
