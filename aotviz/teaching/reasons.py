"""Why a compiled program does what it does, in the words of its recording. Needs no torch.

A recording has a reason for each input and output that is treated specially, for each saved tensor, and for each
decision of a stage. Reasons that every compilation has, such as its guards, explain no puzzle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from aotviz.reading.recording import Recording
from aotviz.recording.compilation import Compilation

# Stages whose reasons are about memory, and not about how the program was captured, partitioned or compiled.
MEMORY = ("metadata", "dedupe", "synthetic bases", "subclasses")
PLENTY = 8  # reasons are read; more are in the Evidence tab


def reasons(recording: Recording, why: Collection[str]) -> list[str]:
    """The reasons of the named stages, each once, with `code` in backquotes.

    For "link" they are those of the lines of the wrapper that are about an input or an output.
    """
    found = [reason for compilation in recording for reason in _of(compilation, why)]
    return list(dict.fromkeys(found))[:PLENTY]


def _of(compilation: Compilation, why: Collection[str]) -> Iterator[str]:
    data = compilation.data
    if data.error is not None:
        yield f"stage {data.error.stage}: {data.error.message}"
    for because in data.because:
        yield f"compiled again: {because}"
    for stage in data.stages:
        if stage.name in why and stage.name != "link":
            yield from (f"stage {stage.name}: `{reason.subject}`: {reason.reason}" for reason in stage.evidence)
    if "link" in why and data.wrapper is not None:
        yield from (f"a line of the wrapper: {note.fact}" for note in data.wrapper.notes if note.subject)
