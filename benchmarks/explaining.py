"""Explaining a bad log: the time against the number of recompiles, and beside tlparse where it is installed.

The logs are those of real jobs (recompiling.py). Each contestant is a process of its own, from its start to its end:
`aotviz explain` without what an earlier reading left, and tlparse, which writes its pages. Their CPU times are those
of the user's side and of the system's, as the system tells them.

Torch writes into each recompile's record a line for each earlier program, so that a log grows with the square of its
recompiles. Where tlparse is not installed, the figure is the time of a log of 50 recompiles, and has no target.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median

from . import recompiling
from .measure import ratio
from .results import Result, Row, result
from .trace_reading import Run, run_process, tlparse

COUNTS = (50, 200, 1000)
MOST, MANY = 2.0, 1000  # times tlparse's time, of that many recompiles: of few, starting Python takes most


def run(rounds: int = 5, counts: tuple[int, ...] = COUNTS, kinds: tuple[str, ...] = ()) -> Result:
    theirs = tlparse()
    rows = []
    for kind in kinds or tuple(kind.__name__ for kind in recompiling.KINDS):
        times: dict[int, dict[str, list[float]]] = {}
        sizes: dict[int, int] = {}
        for count in counts:
            with tempfile.TemporaryDirectory(prefix="aotviz-") as folder:
                log = _log(kind, count, Path(folder, "log"))
                sizes[count] = log.stat().st_size
                times[count] = _times(log, rounds, theirs, Path(folder))
        for count, spent in times.items():
            values = {name: median(seconds) for name, seconds in spent.items()} | {"log, MB": sizes[count] / 1e6}
            beside = spent.get("tlparse", times[counts[0]]["ours"])
            target = MOST if "tlparse" in spent and count >= MANY else None
            rows.append(Row(f"{kind}, {count} recompiles", ratio(spent["ours"], beside), target, values, "CPU s"))
    against = "tlparse" if theirs else f"ours of {counts[0]}"
    about = f"`aotviz explain` of logs of many recompiles, from start to end, against {against}"
    return result("explain", about, "ratio", rows, {"rounds": rounds})


def _log(kind: str, count: int, folder: Path) -> Path:
    folder.mkdir()
    run_process([sys.executable, "-m", "benchmarks.recompiling", kind, str(count)], {"TORCH_TRACE": str(folder)})
    (log,) = folder.iterdir()
    return log


def _times(log: Path, rounds: int, theirs: Path | None, folder: Path) -> dict[str, list[float]]:
    ours: list[Run] = []
    others: list[Run] = []
    for number in range(rounds):
        environment = {"AOTVIZ_CACHE_DIR": str(folder / f"cache{number}")}
        ours.append(run_process([sys.executable, "-m", "aotviz", "explain", str(log)], environment))
        if theirs is not None:
            out = str(folder / "out")
            others.append(run_process([str(theirs), str(log), "-o", out, "--overwrite", "--no-browser"], {}))
    found = {"ours": [done.cpu_s for done in ours]}
    return found | ({"tlparse": [done.cpu_s for done in others]} if others else {})
