"""What a section is made of: cases, each of which judges itself and leaves a row.

A row is plain JSON, either `{"skipped": why}` or

    {"ours": {"status": ..., "cause": ...}, "torch": {"status": ..., "cause": ...}, "worse": bool, "better": bool}

where a status is "equal", "details", "wrong" or "raised" against eager. `worse` says that torch is right and ours is
not. A cause is a label under which failures of one kind fall together; it must be the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from tests.oracle.compare import CANDIDATES, Candidate, Trial
from tests.oracle.progress import Row
from tests.oracle.sweep_ops import Samples, judge_sample

from .report import BOTH
from .sections import SECTIONS


@dataclass(frozen=True)
class Case:
    """One comparison; `key` is unique in its section and the same in every run."""

    key: str
    judge: Callable[[], Row]


def section(name: str) -> ModuleType:
    """The module of a section, by its name in SECTIONS."""
    if name not in SECTIONS:
        raise SystemExit(f"there is no section {name!r}; there are {', '.join(SECTIONS)}")
    return import_module(f"tests.parity.sections.{name}")


def skipped(key: str, why: str) -> Case:
    """A case that is listed and not run."""
    return Case(key, lambda: {"skipped": why})


def program_case(key: str, program: Trial | str, table: Mapping[str, Callable[[], Candidate]] = CANDIDATES) -> Case:
    """A program of `tests.oracle`, judged through `table["ours"]` and `table["torch"]`; a string says why not."""
    return Case(key, lambda: judge_sample(program, BOTH, table))


def op_cases(op: Any) -> Iterator[Case]:
    """Every float32 sample of an OpInfo: its tensors are the arguments, and all else is closed over."""
    for key, program in Samples(op):
        yield program_case(key, program)
