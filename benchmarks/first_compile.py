"""The first compilation of a process: what a person waits for who calls a compiled function once.

Each measurement is a process of its own that has imported torch and compiles a small training step, forward and
backward. CPU time of the process counts, with all that it imports on the way; the imports of torch itself do not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from statistics import median

from .measure import ratio
from .results import Result, Row, result

PROGRAM = """
import time, torch

def step(x, w):
    return (x @ w).relu().sum()

x, w = torch.ones(4, 3), torch.ones(3, 3, requires_grad=True)
torch.set_num_threads(1)
begun = time.process_time()
{compile}
compiled(x, w).backward()
print(time.process_time() - begun)
"""
THEIRS = "compiled = torch.compile(step, backend={backend!r})"
OURS = "import aotviz; compiled = aotviz.compile(step, backend={backend!r})"
CASES = (  # name, torch's backend, ours, target
    ("graphs run in eager", "aot_eager", "eager", 1.0),
    ("Inductor, with the graphs in its cache", "inductor", "inductor", None),
)


def seconds(compile: str) -> float:
    """CPU time of one first compilation, in seconds, in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM.format(compile=compile)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TORCHINDUCTOR_AUTOGRAD_CACHE": "0", "AOTVIZ_CACHE_DIR": "off"},
    )
    return float(ran.stdout)


def run(rounds: int = 9, cases: Sequence[tuple[str, str, str, float | None]] = CASES) -> Result:
    rows = []
    for name, theirs, ours, target in cases:
        contestants = {"torch": THEIRS.format(backend=theirs), "ours": OURS.format(backend=ours)}
        times: dict[str, list[float]] = {who: [] for who in contestants}
        for round_ in range(rounds + 1):
            for who, program in contestants.items():
                took = seconds(program)
                if round_:  # the first one fills the file system's cache, and Inductor's
                    times[who].append(took)
        medians = {who: median(found) for who, found in times.items()}
        rows.append(Row(name, ratio(times["ours"], times["torch"]), target, medians, "s"))
    about = "CPU time of the first compilation of a process: a small training step, forward and backward, recorded"
    return result("first_compile", about, "ours / torch", rows, {"rounds": rounds})
