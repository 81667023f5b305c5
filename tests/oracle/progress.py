"""Long runs of cases, some of which may end their process: a line of JSON a case, so that a run can be gone on with.

Before a case, a line says that it is started; its row comes after. A child process does the work. One that a case
killed is followed by another, which goes on behind that case. So is one that was ended because its case took too long.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Rows = dict[str, Row]


class Log:
    """The file of rows, open for adding to it."""

    def __init__(self, path: Path) -> None:
        self.lines = path.open("a")

    def add(self, row: Row) -> None:
        self.lines.write(json.dumps(row) + "\n")
        self.lines.flush()

    def judge(self, key: str, case: Callable[[], Row], limit_s: int = 0) -> None:
        """Run a case that gives its row. After `limit_s` seconds, if that is not 0, this process ends."""
        self.add({"key": key, "started": True})

        def give_up(number: int, _: object) -> None:
            self.add({"key": key, "crashed": True, "limit_s": limit_s})
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

        if limit_s:
            signal.signal(signal.SIGALRM, give_up)
            signal.alarm(limit_s)
        row = case()
        signal.alarm(0)
        self.add({"key": key, **row})


def finished(path: Path) -> Rows:
    """key -> row. A case that was started and never finished killed its process."""
    rows: Rows = {}
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue  # the line being written when the process died
            rows[row["key"]] = row
    return {k: {"key": k, "crashed": True} if row.get("started") else row for k, row in rows.items()}


def stable(text: str) -> str:
    """`text` without what differs between two machines: addresses and paths."""
    return re.sub(r"(?:/[\w.+-]+){2,}|0x[0-9a-f]+", "…", text)


def run_children(module: str, arguments: Sequence[str]) -> int:
    """`python -m module arguments --child`, again and again until one ends by itself. Returns that one's exit code."""
    command = [sys.executable, "-m", module, *arguments, "--child"]
    while True:
        code = subprocess.run(command, check=False).returncode
        if code >= 0:
            return code
        print(f"the child was ended by {signal.Signals(-code).name}; going on behind that case", file=sys.stderr)
        if -code in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            return code
        command = [a for a in command if a != "--retry"]  # a second child must not repeat the first one's work


def run_side_by_side(module: str, arguments: Sequence[str], processes: int) -> int:
    """`run_children` in several processes at once, each with its `--share`. They add to the same file."""

    def run_share(number: int) -> int:
        return run_children(module, [*arguments, "--share", f"{number}/{processes}"])

    with ThreadPoolExecutor(processes) as pool:
        return max(pool.map(run_share, range(processes)), key=abs)


def shared(cases: Sequence[Any], share: str) -> Sequence[Any]:
    """The cases of a share.

    >>> shared("abcde", "1/2")
    'bd'
    """
    number, processes = map(int, share.split("/"))
    return cases[number::processes]
