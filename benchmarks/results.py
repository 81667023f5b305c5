"""What a benchmark found: one JSON file and one table each, both of the same rows.

A row's `figure` is a ratio, a share or a count, as the result's `figure` says, and is what a target is set for.
`values` are the medians behind it, in `unit`: they hold for the machine and the moment, the figure for longer.
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import msgspec
import torch

import aotviz

FOLDER = Path(__file__).parent / "results"


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    case: str
    figure: float
    target: float | None  # the figure is to be at most this
    values: dict[str, float]  # contestant or quantity -> median
    unit: str  # of the values
    interval: tuple[float, float] | None = None  # where the figure lies, at 95 %, if that was asked

    @property
    def met(self) -> bool | None:
        """Whether the figure meets its target. One with an interval misses it where all of that lies above."""
        if self.target is None:
            return None
        return (self.figure if self.interval is None else self.interval[0]) <= self.target


class Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    about: str  # what is measured, in one sentence
    figure: str  # what the rows' figures are, e.g. "ours / torch"
    rows: list[Row]
    settings: dict[str, int]
    environment: dict[str, str]
    finished_unix_seconds: float


def result(name: str, about: str, figure: str, rows: list[Row], settings: dict[str, int]) -> Result:
    """A Result that says where and when it was found."""
    environment = {
        "aotviz": aotviz.__version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": str(os.cpu_count()),
    }
    return Result(name, about, figure, rows, settings, environment, time.time())


def write(found: Result, folder: Path = FOLDER) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found.name}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    return path


def read(path: Path) -> Result:
    """Raises msgspec.ValidationError for a file that is not a Result."""
    return msgspec.json.decode(path.read_bytes(), type=Result)


def table(found: Result) -> str:
    """The rows as text, the values in the columns of their names."""
    names = list(dict.fromkeys(name for row in found.rows for name in row.values))
    header = ["", *names, "unit", found.figure, "target", ""]
    lines = [header]
    for row in found.rows:
        values = [_number(row.values[name]) if name in row.values else "" for name in names]
        target = "" if row.target is None else f"<= {row.target:g}"
        verdict = {None: "", True: "met", False: "MISSED"}[row.met]
        figure = f"{row.figure:.3f}"
        if row.interval is not None:
            figure += f" ({row.interval[0]:.3f} to {row.interval[1]:.3f})"
        lines.append([row.case, *values, row.unit, figure, target, verdict])
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    text = [found.about]
    for line in lines:
        numbers = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        text.append("  ".join([line[0].ljust(widths[0]), *numbers]).rstrip())
    return "\n".join(text)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
