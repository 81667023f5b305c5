"""Reading torch's logs: aotviz beside tlparse, on one log of 100 MB, and on those of 64 ranks, of 10 MB each.

The log is made of the real ones in tests/corpus, again and again, each time with other compile ids, other file names
and so other texts, as one long job would write it. Each contestant is a process of its own, from its start to its
end; what it used of the processor and of memory is asked of the system when it ends. A second reading finds the
index that the first has left; the two are compared by the call alone, without starting Python and importing aotviz.

No two ranks have a text in common, which is the most work and memory. (The ranks of a job share most.) aotviz reads
them in as many processes as there are processors, whose times are added up; so are their peaks of memory, as if all had
theirs at once. tlparse makes its report of all ranks.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests import corpus

from .measure import ratio
from .results import Result, Row, result

NBYTES = 100_000_000
RANKS, RANK_NBYTES = 64, 10_000_000
RANK_MEMORY = 4 / 6.4  # 64 ranks of 100 MB are to be read within 4 GB
READ = """
import sys, time, aotviz
read = aotviz.read_trace
began = time.process_time()
recording = read(sys.argv[1])
print(time.process_time() - began, len(recording))
"""
READ_RANKS = """
import resource, sys
import aotviz
from aotviz.logs.processes import cpus
recording = aotviz.read_trace(sys.argv[1], index=False, jobs=cpus())
kilobytes = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(kilobytes[0] + kilobytes[1] * cpus(), len(recording))
"""
# Starts a process and says what it used. Linux counts the memory of whoever started a process as the process's own, so
# this small one stands between it and the benchmark, which has imported torch.
LAUNCH = """
import os, sys, time
began = time.monotonic()
_, status, used = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
print(used.ru_utime + used.ru_stime, time.monotonic() - began, used.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""
FRAME = re.compile(rb'"frame_id": (\d+)')
COMPILE_ID = re.compile(rb'"compile_id": "(\d+)/')
FRAMES_A_COPY = 100  # more than any log of the corpus has


@dataclass(frozen=True)
class Run:
    """What one process used."""

    cpu_s: float
    wall_s: float
    peak_bytes: int
    output: str


def write_log(path: Path, nbytes: int, first: int = 0) -> tuple[int, int]:
    """A log of about `nbytes` bytes, from copy `first` on; returns (its size, the number of the next copy)."""
    left_out = [*corpus.folder("ranks").glob("*_rank_1_*"), *corpus.folder("ranks_diverge").iterdir()]
    logs = [log.read_bytes() for log in corpus.logs() if log not in left_out]
    written, copy = 0, first
    with open(path, "wb") as file:
        while written < nbytes:
            content = one_copy(logs[copy % len(logs)], copy)
            file.write(content)
            written += len(content)
            copy += 1
    return written, copy


def one_copy(content: bytes, copy: int) -> bytes:
    """A log with ids and texts of its own, checksums and all."""
    shift = copy * FRAMES_A_COPY
    content = FRAME.sub(lambda match: b'"frame_id": %d' % (int(match[1]) + shift), content)
    content = COMPILE_ID.sub(lambda match: b'"compile_id": "%d/' % (int(match[1]) + shift), content)
    content = content.replace(b"corpus/", b"corpus/of%d/" % copy).replace(b'"rank": 0, ', b"")
    records = []
    for record in re.split(rb"\n(?!\t)", content.removesuffix(b"\n")):
        head, newline, payload = record.partition(b"\n")
        if newline:
            digest = hashlib.md5(payload.replace(b"\n\t", b"\n").removeprefix(b"\t"), usedforsecurity=False).hexdigest()
            head = re.sub(rb'"has_payload": "[0-9a-f]{32}"', b'"has_payload": "%s"' % digest.encode(), head)
        records.append(head + newline + payload)
    return b"\n".join(records) + b"\n"


def tlparse() -> Path | None:
    """Where tlparse is: beside this Python, or on the PATH."""
    found = shutil.which("tlparse", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    return Path(found) if found else None


def run_process(command: list[str], environment: dict[str, str]) -> Run:
    """Raises subprocess.CalledProcessError for a process that fails."""
    started = [sys.executable, "-I", "-S", "-c", LAUNCH, *command]
    done = subprocess.run(started, env=os.environ | environment, capture_output=True, text=True, check=True)
    cpu_s, wall_s, peak = done.stderr.splitlines()[-1].split()
    return Run(float(cpu_s), float(wall_s), int(peak) * (1 if sys.platform == "darwin" else 1024), done.stdout)


def run(
    rounds: int = 5, nbytes: int = NBYTES, ranks: int = RANKS, rank_nbytes: int = RANK_NBYTES, rank_rounds: int = 3
) -> Result:
    tool = str(tlparse() or "tlparse")
    theirs: list[Run] = []
    first: list[Run] = []
    second: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="aotviz-") as folder:
        log = Path(folder, "trace.log")
        size, _ = write_log(log, nbytes)
        ours = [sys.executable, "-c", READ, str(log)]
        for number in range(rounds):
            environment = {"AOTVIZ_CACHE_DIR": str(Path(folder, f"cache{number}"))}
            first.append(run_process(ours, environment))
            second.append(run_process(ours, environment))
            out = str(Path(folder, "out"))
            theirs.append(run_process([tool, str(log), "-o", out, "--overwrite", "--no-browser"], {}))
    calls = [[float(done.output.split()[0]) for done in runs] for runs in (first, second)]
    rows = [
        Row(
            "reading, against tlparse",
            ratio([done.cpu_s for done in first], [done.cpu_s for done in theirs]),
            0.5,
            {"ours": median(done.cpu_s for done in first), "tlparse": median(done.cpu_s for done in theirs)},
            "CPU s",
        ),
        Row(
            "reading again, against reading",
            ratio(calls[1], calls[0]),
            0.1,
            {"first": median(calls[0]), "again": median(calls[1])},
            "CPU s",
        ),
        memory("memory of reading, against the log", first, size, 2.0),
        memory("memory of reading again", second, size, 2.0),
        memory("memory of tlparse", theirs, size, None),
        *of_ranks(tool, rank_rounds, ranks, rank_nbytes),
    ]
    compilations = first[0].output.split()[1]
    about = f"a TORCH_TRACE log of {size / 1e6:.0f} MB and {compilations} compilations, read by aotviz and by tlparse"
    about += f"; and logs of {ranks} ranks"
    settings = {"rounds": rounds, "bytes": size, "ranks": ranks, "rank_bytes": rank_nbytes, "rank_rounds": rank_rounds}
    return result("trace_reading", about, "ratio", rows, settings)


def of_ranks(tool: str, rounds: int, ranks: int, nbytes: int) -> list[Row]:
    ours: list[Run] = []
    theirs: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="aotviz-") as folder:
        logs = Path(folder, "job")
        logs.mkdir()
        size = copy = 0
        for rank in range(ranks):
            written, copy = write_log(logs / f"dedicated_log_torch_trace_rank_{rank}_x.log", nbytes, copy)
            size += written
        out = str(Path(folder, "out"))
        for _ in range(rounds):
            ours.append(run_process([sys.executable, "-c", READ_RANKS, str(logs)], {}))
            theirs.append(run_process([tool, str(logs), "-o", out, "--all-ranks-html", "--no-browser"], {}))
            shutil.rmtree(out)
    peak = median(int(done.output.split()[0]) * (1 if sys.platform == "darwin" else 1024) for done in ours)
    theirs_peak = median(done.peak_bytes for done in theirs)
    times = [median(done.cpu_s for done in runs) / ranks for runs in (ours, theirs)]
    return [
        Row(
            f"{ranks} ranks, against tlparse",
            ratio([done.cpu_s for done in ours], [done.cpu_s for done in theirs]),
            0.5,
            {"ours, per rank": times[0], "tlparse, per rank": times[1]},
            "CPU s",
        ),
        Row(
            f"memory of {ranks} ranks, against their logs",
            peak / size,
            RANK_MEMORY,
            {"ours, per rank": peak / ranks / 1e6, "log": size / ranks / 1e6},
            "MB",
        ),
        Row(
            f"memory of tlparse for {ranks} ranks",
            theirs_peak / size,
            None,
            {"peak": theirs_peak / 1e6, "logs": size / 1e6},
            "MB",
        ),
    ]


def memory(case: str, runs: list[Run], size: int, target: float | None) -> Row:
    peak = median(done.peak_bytes for done in runs)
    return Row(case, peak / size, target, {"peak": peak / 1e6, "log": size / 1e6}, "MB")
