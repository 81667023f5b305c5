"""The parts of `make gpu`, and benchmarks/results/gpu.json, which holds what they found in the form of a benchmark.

A part gives its rows, or raises; the rows of parts that were not run stay as they are in the file.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as tree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

import aotviz.frontends.backend  # noqa: F401 (torch.compile knows the names then, though aotviz is not installed)
from benchmarks import results
from benchmarks.results import Row

from . import DEVICE

ROOT = Path(__file__).parents[2]
ABOUT = "on a GPU: the tests of tests/gpu, the models of `make sweep-models`, and the time of a training step"
FIGURE = "times: ours / torch; tests, models: the share that is right"
ROUNDS = 60
PAIRS = (("aotviz", "inductor"), ("aotviz_eager", "aot_eager"))


def gather(parts: Sequence[str], folder: Path | None) -> int:
    """Run the parts, print and write what they found. 1 if something is wrong."""
    folder = folder or results.FOLDER
    path = folder / "gpu.json"
    rows = list(results.read(path).rows) if path.exists() else []
    worst = 0
    for part in parts:
        found = PARTS[part]()
        rows = [row for row in rows if not row.case.startswith(f"{part}: ")] + found.rows
        worst = worst or int(found.wrong)
        whole = results.result("gpu", ABOUT, FIGURE, rows, {"rounds": ROUNDS})
        whole.environment["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else DEVICE
        results.write(whole, folder)  # after each part: a machine that is lent may be taken back
    print(results.table(results.read(path)))
    return worst


@dataclass(frozen=True)
class Part:
    rows: list[Row]
    wrong: bool


def tests() -> Part:
    """The tests of this folder, and those elsewhere that want a GPU."""
    with tempfile.TemporaryDirectory() as kept:
        report = Path(kept) / "junit.xml"
        chosen = ["tests/gpu", "tests/test_random_state.py", "tests/test_backend.py", "tests/test_wrapper.py"]
        options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        code = subprocess.run([sys.executable, "-m", "pytest", *options, *chosen], cwd=ROOT, check=False).returncode
        count = counted(report)
    run = count["passed"] + count["failed"]
    return Part([Row("tests: pass", count["passed"] / run if run else 0.0, None, count, "tests")], code != 0)


def counted(report: Path) -> dict[str, float]:
    """How many tests passed, failed and were skipped, by pytest's report."""
    suites = list(tree.parse(report).iter("testsuite"))
    total, failures, errors, skipped = (
        sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    )
    failed = failures + errors
    return {"passed": float(total - failed - skipped), "failed": float(failed), "skipped": float(skipped)}


def models() -> Part:
    """The sweep of models: those whose packages are here."""
    log = ROOT / ".sweeps" / f"models-{DEVICE}.jsonl"
    command = [sys.executable, "-m", "tests.sweeps.models", "--device", DEVICE, "--log", str(log), "--out"]
    subprocess.run([*command, str(log.with_suffix(".json"))], cwd=ROOT, check=False)
    found = [json.loads(line) for line in log.read_text().splitlines()]
    judged = [row for row in found if "ours" in row]
    rows = []
    for title, chosen in (
        ("models: graphs run as they are", [row for row in judged if not row["key"].endswith(" on Inductor")]),
        ("models: Inductor", [row for row in judged if row["key"].endswith(" on Inductor")]),
    ):
        right = {who: [row[who]["status"] in ("equal", "close") for row in chosen] for who in ("ours", "torch")}
        values = {who: float(sum(found)) for who, found in right.items()} | {"judged": float(len(chosen))}
        rows.append(Row(title, sum(right["ours"]) / len(chosen) if chosen else 0.0, None, values, "models"))
    return Part(rows, any(row["ours"]["status"] in ("wrong", "raised") for row in judged))


def step() -> Part:
    """The time of a training step, the GPU's work included, ours and torch's in turns."""
    try:
        from benchmarks.step_models import MODELS
    except ImportError:
        print("benchmarks/step_models.py is not here: step times are left out")
        return Part([], False)
    rows = [_timed(name, *MODELS[name](), *pair) for name in MODELS for pair in PAIRS]
    return Part(rows, False)


def _timed(name: str, module: torch.nn.Module, batch: dict[str, Any], ours: str, theirs: str) -> Row:
    batch = {key: value.to(DEVICE) for key, value in batch.items()}
    module.to(DEVICE)
    torch._dynamo.reset()
    compiled = {backend: torch.compile(module, backend=backend) for backend in (ours, theirs)}
    times: dict[str, list[float]] = {backend: [] for backend in compiled}
    order = random.Random(0)
    for number in range(ROUNDS + 3):
        for backend in order.sample(list(compiled), 2):
            began = _now()
            compiled[backend](**batch)[0].backward()
            module.zero_grad()
            if number >= 3:  # those before compile, and warm the caches
                times[backend].append(_now() - began)
    ratios = [mine / other for mine, other in zip(times[ours], times[theirs], strict=True)]
    values = {"ours": median(times[ours]), "torch": median(times[theirs])}
    return Row(f"step: {name}, {ours} / {theirs}", median(ratios), None, values, "ms")


def _now() -> float:
    """Milliseconds, once the GPU has done what it was given."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() * 1e3


PARTS = {"tests": tests, "models": models, "step": step}
