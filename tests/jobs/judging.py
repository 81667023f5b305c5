"""Hold what `explain` and `open` say first of a job's log against what was noted before the job was run."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from pathlib import Path

import aotviz
from tests.jobs.running import Job


@dataclasses.dataclass(frozen=True)
class Told:
    title: str  # of `explain`, which counts
    first: str  # its first point
    fix: str  # its first cure
    source: str  # "recompiles.py:22    optimizer.step()", as it stands with it
    headline: str  # what `open` shows first
    cause: str  # and the first cause under it
    cause_source: str
    healthy: bool

    @classmethod
    def of(cls, log: Path) -> Told:
        recording = aotviz.read_trace(log, index=False)
        explained, overview = recording.explain(), recording.overview()
        rows = list(overview.causes.itertuples())
        cause = rows[0] if rows else None
        return cls(
            explained.title,
            explained.sentences[0] if explained.sentences else "",
            explained.fix,
            explained.source,
            overview.headline,
            cause.title if cause else "",
            f"{cause.place} {cause.code}" if cause else "",
            overview.healthy,
        )


def wrong(job: Job, told: Told) -> list[str]:
    """What is not as it was noted; an empty list if all is."""
    if job.healthy:
        found = [] if told.healthy else [f"not told to be healthy: {told.headline}"]
        return found + [f"nothing of {words!r}" for words in _missing(job.noted.get("notice", []), str(told))]
    found = [f"the first point has no {words!r}" for words in _missing(job.noted["says"], told.first + told.source)]
    found += [f"its cure has no {words!r}" for words in _missing(job.noted["cure_says"], told.fix)]
    if (marked := job.marked()) and not _at(marked, told.source):
        found.append(f"the place is {told.source.split('   ')[0] or 'not told'}, not {' or '.join(marked)}")
    opened = " ".join((told.headline, told.cause, told.cause_source))
    found += [f"the overview has no {words!r}" for words in _missing(job.noted["says"], opened)]
    return found


def cure_failed(job: Job, faulty: Counter[str], cured: Counter[str]) -> list[str]:
    """What the cure should have made fewer and did not; an empty list if it did, or if there is nothing to count."""
    gone = job.noted.get("gone", "none")
    if gone == "none" or cured[gone] <= job.noted["at_most"] < faulty[gone]:
        return []
    return [f"{gone}: {faulty[gone]} → {cured[gone]}, and the cure should leave {job.noted['at_most']} at most"]


def _missing(wanted: list[str], text: str) -> list[str]:
    return [words for words in wanted if not any(word in text for word in words.split("|"))]


def _at(marked: list[str], source: str) -> bool:
    return any(re.search(rf"{re.escape(place)}\b", source) for place in marked)
