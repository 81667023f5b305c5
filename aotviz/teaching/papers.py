"""What a student hands in: the answers, as JSON that anyone can read. Nothing in it is run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from aotviz.explain.explanation import counted
from aotviz.recording.strings import clean

MOST_NESTED = 20  # lists in lists, of an answer


@dataclass(frozen=True)
class Paper:
    """The answers of one student."""

    course: str
    student: str
    answers: Mapping[str, Mapping[str, Any]]  # puzzle -> question -> answer

    def of(self, puzzle: str) -> Mapping[str, Any]:
        """The answers to the questions of a puzzle."""
        return self.answers.get(puzzle, {})


def write(path: str | os.PathLike[str], paper: Paper) -> str:
    """Write a paper, and say in words what was written."""
    content = {"course": paper.course, "student": paper.student, "answers": paper.answers}
    Path(path).write_text(json.dumps(content, indent=1, default=sorted), encoding="utf-8")  # sets become lists
    count = sum(map(len, paper.answers.values()))
    return f"{counted(count, 'answer')} of {paper.student} to {paper.course!r}, in {os.fspath(path)}"


def read(path: str | os.PathLike[str], course: str) -> Paper:
    """Read a paper. Raises ValueError if the file is no paper of that course."""
    try:
        paper = msgspec.convert(json.loads(Path(path).read_text(encoding="utf-8")), Paper)
        if any(_depth(answer) > MOST_NESTED for of_one in paper.answers.values() for answer in of_one.values()):
            raise ValueError(f"an answer is nested more than {MOST_NESTED} deep")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{os.fspath(path)} is no paper that Course.hand_in wrote: {error!r}") from error
    if paper.course != course:
        raise ValueError(f"{os.fspath(path)} is a paper of {paper.course!r}, and not of {course!r}")
    return replace(paper, student=clean(paper.student))


def _depth(answer: Any) -> int:
    """How many lists are in one another."""
    level, depth = [answer], 0
    while level := [part for one in level if isinstance(one, list) for part in (*one, None)]:
        depth += 1
    return depth
