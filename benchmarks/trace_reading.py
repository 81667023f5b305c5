"""Reading torch's logs: aotviz beside tlparse, on one log of 100 MB.

The log is made of the real ones in tests/corpus, again and again, each time with other compile ids, other file names
and so other texts, as one long job would write it. Each contestant is a process of its own, from its start to its
end; what it used of the processor and of memory is asked of the system when it ends. A second reading finds the
index that the first has left; the two are compared by the call alone, without starting Python and importing aotviz.
"""

from __future__ import annotations

import hashlib
import os
import re
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
TLPARSE = Path(sys.executable).parent / "tlparse"
READ = """
import sys, time, aotviz
read = aotviz.read_trace
began = time.process_time()
recording = read(sys.argv[1])
print(time.process_time() - began, len(recording))
"""
# Starts a process and says what it used. Linux counts the memory of whoever started a process as the process's own, so
# this small one stands between it and the benchmark, which has imported torch.
LAUNCH = """
import os, sys
_, status, used = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""
FRAME = re.compile(rb'"frame_id": (\d+)')
COMPILE_ID = re.compile(rb'"compile_id": "(\d+)/')
FRAMES_A_COPY = 100  # more than any log of the corpus has


@dataclass(frozen=True)
class Run:
    """What one process used."""

    cpu_s: float
    peak_bytes: int
    output: str


def write_log(path: Path, nbytes: int) -> int:
    """A log of about `nbytes` bytes; returns how many."""
    logs = [log.read_bytes() for log in corpus.logs() if "rank_1" not in log.name]
    written = copy = 0
    with open(path, "wb") as file:
        while written < nbytes:
            content = one_copy(logs[copy % len(logs)], copy)
            file.write(content)
            written += len(content)
            copy += 1
    return written


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


def run_process(command: list[str], environment: dict[str, str]) -> Run:
    """Raises subprocess.CalledProcessError for a process that fails."""
    started = [sys.executable, "-I", "-S", "-c", LAUNCH, *command]
    done = subprocess.run(started, env=os.environ | environment, capture_output=True, text=True, check=True)
    cpu_s, peak = done.stderr.splitlines()[-1].split()
    return Run(float(cpu_s), int(peak) * (1 if sys.platform == "darwin" else 1024), done.stdout)


def run(rounds: int = 5, nbytes: int = NBYTES) -> Result:
    theirs: list[Run] = []
    first: list[Run] = []
    second: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="aotviz-") as folder:
        log = Path(folder, "trace.log")
        size = write_log(log, nbytes)
        ours = [sys.executable, "-c", READ, str(log)]
        for number in range(rounds):
            environment = {"AOTVIZ_CACHE_DIR": str(Path(folder, f"cache{number}"))}
            first.append(run_process(ours, environment))
            second.append(run_process(ours, environment))
            out = str(Path(folder, "out"))
            theirs.append(run_process([str(TLPARSE), str(log), "-o", out, "--overwrite", "--no-browser"], {}))
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
    ]
    compilations = first[0].output.split()[1]
    about = f"a TORCH_TRACE log of {size / 1e6:.0f} MB and {compilations} compilations, read by aotviz and by tlparse"
    return result("trace_reading", about, "ratio", rows, {"rounds": rounds, "bytes": size})


def memory(case: str, runs: list[Run], size: int, target: float | None) -> Row:
    peak = median(done.peak_bytes for done in runs)
    return Row(case, peak / size, target, {"peak": peak / 1e6, "log": size / 1e6}, "MB")
