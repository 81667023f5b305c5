"""Run a section's cases in a child process, and keep a line of JSON for each, so that a run can be gone on with.

A case that kills its process is noted as "crashed", and the next child goes on behind it.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from .cases import Case, Row, section, skipped

Rows = dict[str, Row]


def progress_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.jsonl"


def finished(log: Path) -> Rows:
    """key -> row. A case that was begun and never finished killed its process."""
    rows: Rows = {}
    if log.exists():
        for line in log.read_text().splitlines():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue  # the line being written when the process died
            rows[row["key"]] = row
    return {k: {"key": k, "crashed": True} if row.get("begun") else row for k, row in rows.items()}


def unfinished_groups(name: str, rows: Rows) -> list[str]:
    return [group for group in section(name).groups() if f"{group} all" not in rows]


def worth_another_look(row: Row) -> bool:
    """What `--retry` judges once more: all that was judged and is not equal, or killed its process."""
    return bool(row.get("crashed")) or ("ours" in row and row["ours"]["status"] != "equal")


def walk(name: str, log: Path, seconds: float | None, retry: bool) -> None:
    """Judge what is not judged yet. Runs in the child."""
    done = finished(log)
    again = {k for k, row in done.items() if worth_another_look(row)} if retry else set()
    stale = {key.split("#")[0] for key in again}
    done = {k: row for k, row in done.items() if k not in again and k.removesuffix(" all") not in stale}
    until = time.monotonic() + seconds if seconds else None
    with log.open("a") as lines:

        def write(row: Row) -> None:
            lines.write(json.dumps(row) + "\n")
            lines.flush()

        for group in section(name).groups():
            if f"{group} all" in done:
                continue
            torch.manual_seed(0)
            random.seed(0)
            for case in _cases(name, group):
                if case.key in done:
                    continue
                if until and time.monotonic() > until:
                    return
                write({"key": case.key, "begun": True})
                write({"key": case.key, **_judged(case)})
            write({"key": f"{group} all", "group": True})


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


def walk_in_child(name: str, folder: Path, arguments: list[str]) -> int:
    """Children, one after the other, until one of them ends by itself. Returns that one's exit code."""
    retry = ["--retry"] if "--retry" in arguments else []
    command = [sys.executable, "-m", "tests.parity", "--child", "--folder", str(folder), "--section", name]
    command += [a for a in arguments if a != "--retry"]
    while True:
        code = subprocess.run([*command, *retry], check=False).returncode
        if code >= 0:
            return code
        print(
            f"{name}: the child was ended by {signal.Signals(-code).name}; going on behind that case", file=sys.stderr
        )
        if -code in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            return code
        retry = []  # a second child must not repeat the first one's work
