"""Explaining a bad log: the time against the number of recompiles, and beside tlparse where it is installed.

The logs are those of real jobs (recompiling.py). Each contestant is a process of its own, from its start to its end:
`aotviz explain` without what an earlier reading left, and tlparse, which writes its pages. Their CPU times are those
of the user's side and of the system's, as the system tells them.

Torch writes into each recompile's record a line for each earlier program, so that a log grows with the square of its
recompiles. Where tlparse is not installed, the figure is the time of a log of 50 recompiles, and has no target.

The logs of 64 ranks are real ones, again and again, the same on all ranks, up to the end, where one rank runs another
collective. The figure is the time of all processes together, more than what passes on an idle machine.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median

from tests import corpus

from . import recompiling
from .measure import ratio
from .results import Result, Row, result
from .trace_reading import Run, one_copy, run_process, tlparse, write_log

COUNTS = (50, 200, 1000)
RANKS, APART, RANK_NBYTES = 64, 37, 10_000_000
MINUTE = 60.0
MOST, MANY = 2.0, 1000  # times tlparse's time, of that many recompiles: of few, starting Python takes most


def run(
    rounds: int = 5,
    counts: tuple[int, ...] = COUNTS,
    kinds: tuple[str, ...] = (),
    ranks: int = RANKS,
    rank_nbytes: int = RANK_NBYTES,
    rank_rounds: int = 1,
) -> Result:
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
    rows += _of_ranks(rank_rounds, ranks, rank_nbytes)
    against = "tlparse" if theirs else f"ours of {counts[0]}"
    about = f"`aotviz explain` of logs of many recompiles, from start to end, against {against}"
    settings = {"rounds": rounds, "ranks": ranks, "rank_bytes": rank_nbytes, "rank_rounds": rank_rounds}
    return result("explain", about, "ratio", rows, settings)


def _of_ranks(rounds: int, ranks: int, nbytes: int) -> list[Row]:
    """Of a job whose ranks do the same, one runs another collective: from start to end, until it is named."""
    with tempfile.TemporaryDirectory(prefix="aotviz-") as folder:
        logs = Path(folder, "job")
        logs.mkdir()
        apart = min(APART, ranks - 1)
        size = sum(_rank(logs, rank, nbytes, 2 if rank == apart else 0) for rank in range(ranks))
        took: dict[str, list[Run]] = {"explain": [], "report": []}
        for number in range(rounds):
            environment = {"AOTVIZ_CACHE_DIR": str(Path(folder, f"cache{number}"))}
            for command in took:
                rest = ["-o", str(Path(folder, "page.html")), "--force"] if command == "report" else []
                done = run_process([sys.executable, "-m", "aotviz", command, str(logs), *rest], environment)
                took[command].append(done)
                if command == "explain":
                    assert f"Rank {apart} is the first that runs other collectives" in done.output, done.output
                shutil.rmtree(environment["AOTVIZ_CACHE_DIR"], ignore_errors=True)
    return [
        Row(
            f"`{name}` of {ranks} ranks, in minutes",
            median(done.cpu_s for done in found) / MINUTE,
            1.0,
            {
                "ours": median(done.cpu_s for done in found),
                "wall s": median(done.wall_s for done in found),
                "logs, MB": size / 1e6,
            },
            "CPU s",
        )
        for name, found in took.items()
    ]


def _rank(folder: Path, rank: int, nbytes: int, real: int) -> int:
    """The log of a rank: what all ranks have in common, and then that of a rank of a real job."""
    path = folder / f"dedicated_log_torch_trace_rank_{rank}_x.log"
    _, copy = write_log(path, nbytes)
    (log,) = corpus.folder("ranks_diverge").glob(f"*_rank_{real}_*")
    with open(path, "ab") as file:
        file.write(one_copy(log.read_bytes().replace(b'"rank": %d, ' % real, b""), copy))
    return path.stat().st_size


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
