"""Which of a section's cases are judged in a run, and in which order; `tests/oracle/progress.py` keeps their rows."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from tests.oracle.progress import Log, Row, Rows, finished

from .cases import Case, section, skipped


def progress_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.jsonl"


def unfinished_groups(name: str, rows: Rows) -> list[str]:
    return [group for group in section(name).groups() if f"{group} all" not in rows]


def worth_another_look(row: Row) -> bool:
    """What `--retry` judges once more: all that was judged and is not equal, or killed its process."""
    return bool(row.get("crashed")) or ("ours" in row and row["ours"]["status"] != "equal")


def groups_from(name: str, first: str | None) -> list[str]:
    """The section's groups from `first` on, then those before it."""
    groups = section(name).groups()
    if first is not None and first not in groups:
        raise SystemExit(f"the section {name} has no group {first!r}")
    start = groups.index(first) if first is not None else 0
    return [*groups[start:], *groups[:start]]


def walk(name: str, log: Path, options: argparse.Namespace) -> None:
    """Judge what is not judged yet. Runs in the child."""
    done = finished(log)
    again = {k for k, row in done.items() if worth_another_look(row)} if options.retry else set()
    stale = {key.split("#")[0] for key in again}
    done = {k: row for k, row in done.items() if k not in again and k.removesuffix(" all") not in stale}
    until = time.monotonic() + options.seconds if options.seconds else None
    lines = Log(log)
    for group in groups_from(name, options.first):
        if f"{group} all" in done:
            continue
        torch.manual_seed(0)
        random.seed(0)
        for case in _cases(name, group):
            if case.key in done:
                continue
            if until and time.monotonic() > until:
                return
            lines.judge(case.key, partial(_judged, case))
        lines.add({"key": f"{group} all", "group": True})


def _cases(name: str, group: str) -> Iterator[Case]:
    """The group's cases; a case that says so where they can't be made."""
    try:
        yield from section(name).cases(group)
    except Exception as error:
        yield skipped(f"{group}#rest", f"its samples raise {type(error).__name__}")


def _judged(case: Case) -> Row:
    try:
        return case.judge()
    except Exception as error:
        return {"skipped": f"the comparison itself raises {type(error).__name__}"}
