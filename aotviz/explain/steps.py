"""The memory of the last training step of a recording, which the workbench shows in the view of memory.

A page that talks to a kernel asks for it when the user chooses it. A page that is written for a browser without a
kernel has it, up to `MOST_NODES` nodes.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable

from aotviz.recording import step_memory, step_pieces, step_record
from aotviz.recording.compilation import Compilation
from aotviz.recording.findings import StepRecord
from aotviz.recording.holders import Recorded
from aotviz.recording.schema import NONE

MOST_NODES = 100_000

_reads: weakref.WeakKeyDictionary[Recorded, dict[str, tuple[int, bool]]] = weakref.WeakKeyDictionary()
_known: weakref.WeakKeyDictionary[Recorded, tuple[Hashable, StepRecord | None]] = weakref.WeakKeyDictionary()


def is_there(recording: Recorded) -> bool:
    """Whether the recording seems to have a step in pieces: a forward, and its captured backward or an optimizer step,
    or a forward of several graphs.

    It is asked at each revision, so no plan is made here, and each compilation is read once.
    """
    own = [one for one in recording.compilations if one.outline.log == NONE and one.outline.error is None]
    if not any(one.kind == "training" for one in own):
        return False
    if any(one.kind == step_pieces.CAPTURED for one in own):
        return True
    known = _reads.setdefault(recording, {})
    return len(own) > 1 and any(_is_a_further_piece(one, known) for one in own)


def _is_a_further_piece(one: Compilation, known: dict[str, tuple[int, bool]]) -> bool:
    """Whether it is an optimizer step, or the graph after a break."""
    if known.get(one.id, (NONE,))[0] != one.revision:
        is_one = one.kind == "inference" and step_pieces.reads_gradients(one)
        known[one.id] = one.revision, is_one or bool(step_pieces.handed(one).of_call)
    return known[one.id][1]


def of(recording: Recorded) -> StepRecord | None:
    """The last step; None if there is none, or if its memory cannot be planned."""
    if not is_there(recording):
        return None
    revision = recording.revision
    known = _known.get(recording)
    if known is None or known[0] != revision:
        known = _known[recording] = revision, _made(recording.compilations)
    return known[1]


def _made(compilations: list[Compilation]) -> StepRecord | None:
    try:
        memory = step_memory.of(compilations, ())
    except (LookupError, ValueError):  # pieces that are missing, or a size that is not known
        return None
    return step_record.record(memory) if len(memory.rows) <= MOST_NODES else None
