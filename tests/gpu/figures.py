"""The parts of `make gpu`, and benchmarks/results/gpu.json, which holds what they found in the form of a benchmark.

A part gives its rows one after the other. The rows of parts that were not run stay as they are in the file.
"""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as tree
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

import aotviz.frontends.backend  # noqa: F401 (torch.compile knows the names then, though aotviz is not installed)
from benchmarks import results
from benchmarks.measure import ratio
from benchmarks.results import Row
from tests.oracle.progress import finished
from tests.sweeps.models.__main__ import is_behind

from . import DEVICE

ROOT = Path(__file__).parents[2]
ABOUT = "on a GPU: the tests of tests/gpu, op_db, the models of `make sweep-models`, and a training step"
FIGURE = "times, memory: ours / torch; tests, operators, models: the share that is right"
ROUNDS = 60
PAIRS = (("aotviz", "inductor"), ("aotviz_eager", "aot_eager"))
RIGHT = ("equal", "details", "close")
PROCESSES = max(1, (os.cpu_count() or 1) * 3 // 4)
Judged = Iterator[tuple[Row, bool]]  # a row, and whether something in it is wrong


def gather(parts: Sequence[str], folder: Path | None, limit_s: float | None = None) -> int:
    """Run the parts, print and write what they found. 1 if something is wrong. The tests or the sweep of
    a part end after `limit_s` seconds; `step` takes no notice."""
    folder = folder or results.FOLDER
    path = folder / "gpu.json"
    before = results.read(path) if path.exists() else None
    rows = {row.case: row for row in before.rows} if before else {}
    kept = before.environment.items() if before else ()
    devices = {key: device for key, device in kept if key.startswith("device of ")}
    worst = 0
    for part in parts:
        rows = {case: row for case, row in rows.items() if not case.startswith(f"{part}: ")}
        devices[f"device of {part}"] = torch.cuda.get_device_name() if torch.cuda.is_available() else DEVICE
        for row, wrong in PARTS[part](limit_s):
            rows[row.case] = row
            worst = worst or int(wrong)
            whole = results.result("gpu", ABOUT, FIGURE, list(rows.values()), {"rounds": ROUNDS})
            whole.environment.update(devices)  # another part may have run on another
            results.write(whole, folder)  # after each row: a machine that is lent may be taken back
    print(results.table(results.read(path)))
    return worst


def tests(limit_s: float | None) -> Judged:
    """The tests of this folder, and those elsewhere that want a GPU."""
    with tempfile.TemporaryDirectory() as kept:
        report = Path(kept) / "junit.xml"
        chosen = ["tests/gpu", *(f"tests/test_{name}.py" for name in ("random_state", "rng", "backend", "wrapper"))]
        options = ["-v", "--tb=short", "-p", "no:cacheprovider", "--show-capture=no", f"--junitxml={report}"]
        if importlib.util.find_spec("xdist"):
            options += ["-n", str(PROCESSES)]
        code = _run("pytest", *options, *chosen, limit_s=limit_s)
        count = counted(report) if report.exists() else dict.fromkeys(("passed", "failed", "skipped"), 0.0)
    run = count["passed"] + count["failed"]
    yield Row("tests: pass", count["passed"] / run if run else 0.0, None, count, "tests"), code != 0


def _run(module: str, *arguments: str, limit_s: float | None) -> int:
    """The exit status of `python -m module arguments`, which is ended with its children after `limit_s` seconds."""
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "2"}  # of each of PROCESSES
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def counted(report: Path) -> dict[str, float]:
    """How many tests passed, failed and were skipped, by pytest's report."""
    suites = list(tree.parse(report).iter("testsuite"))
    total, failures, errors, skipped = (
        sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    )
    failed = failures + errors
    return {"passed": float(total - failed - skipped), "failed": float(failed), "skipped": float(skipped)}


def operators(limit_s: float | None) -> Judged:
    """Forward and backward of samples of op_db, by aot_function."""
    given = ["--samples", "2"] if DEVICE == "cuda" else ["--every", "60", "--samples", "1"]
    found, code = _swept("tests.oracle.sweep_ops", "operators", *given, limit_s=limit_s)
    yield _shares("operators: op_db", found, "samples"), code != 0  # torch is right where ours is not, or a crash


def models(limit_s: float | None) -> Judged:
    """The sweep of models: those whose packages are here."""
    yield from _trained("models: graphs run as they are", "as they are", limit_s)


def inductor(limit_s: float | None) -> Judged:
    """The same by Inductor."""
    yield from _trained("inductor: models", "by Inductor", limit_s)


def _trained(title: str, how: str, limit_s: float | None) -> Judged:
    given = ["--how", how, *([] if DEVICE == "cuda" else ["--only", "variational"])]
    found, _ = _swept("tests.sweeps.models", f"models-{how.replace(' ', '-')}", *given, limit_s=limit_s)
    wrong = any(row["ours"]["status"] not in RIGHT or is_behind(row) for row in found)
    yield _shares(title, found, "models"), wrong


def _swept(module: str, name: str, *given: str, limit_s: float | None) -> tuple[list[dict[str, Any]], int]:
    """The rows that a sweep judges, and its exit status."""
    log = ROOT / ".sweeps" / f"{name}-{DEVICE}.jsonl"
    log.parent.mkdir(exist_ok=True)
    kept = ["--out", str(log)] if name == "operators" else ["--log", str(log), "--out", str(log.with_suffix(".json"))]
    code = _run(module, "--device", DEVICE, "--processes", str(PROCESSES), *kept, *given, limit_s=limit_s)
    return [row for row in finished(log).values() if "ours" in row], code


def _shares(title: str, judged: Sequence[Mapping[str, Any]], unit: str) -> Row:
    right = {who: float(sum(row[who]["status"] in RIGHT for row in judged)) for who in ("ours", "torch")}
    values = right | {"judged": float(len(judged))}
    return Row(title, right["ours"] / len(judged) if judged else 0.0, None, values, unit)


def step(limit_s: float | None) -> Judged:
    """The time and the memory of a training step, the GPU's work included, ours and torch's in turns."""
    from benchmarks.step_models import MODELS

    if DEVICE == "cuda":
        for pair in PAIRS:
            yield from _compared("GPT-2 as published, 8 x 512, bf16", *_published(), *pair, cast=True)
    for name, made in MODELS.items():
        for pair in PAIRS:
            yield from _compared(name, *made(), *pair)


def _published() -> tuple[torch.nn.Module, dict[str, Any]]:
    """GPT-2 with its 124 million parameters, and 8 sequences of 512 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from benchmarks.step_models import LanguageModel

    config = GPT2Config()
    config.use_cache = False
    return LanguageModel(GPT2LMHeadModel(config)).train(), {"tokens": torch.randint(0, config.vocab_size, (8, 512))}


def _compared(
    name: str, module: torch.nn.Module, batch: dict[str, Any], ours: str, theirs: str, cast: bool = False
) -> Judged:
    batch = {key: value.to(DEVICE) for key, value in batch.items()}
    module.to(DEVICE)
    torch._dynamo.reset()
    compiled = {backend: torch.compile(module, backend=backend) for backend in (ours, theirs)}
    times: dict[str, list[float]] = {backend: [] for backend in compiled}
    peaks: dict[str, int] = dict.fromkeys(compiled, 0)
    order = random.Random(0)
    for number in range(ROUNDS + 3):
        for backend in order.sample(list(compiled), 2):
            peak, began = _Peak(), _now()
            with torch.autocast(DEVICE, torch.bfloat16, enabled=cast):
                loss = compiled[backend](**batch)[0]
            loss.backward()
            module.zero_grad()
            if number >= 3:  # those before compile, and warm the caches
                times[backend].append(_now() - began)
                peaks[backend] = max(peaks[backend], peak.bytes())
            del loss
    case = f"step: {name}, {ours} / {theirs}"
    values = {"ours": median(times[ours]), "torch": median(times[theirs])}
    yield Row(f"{case}, time", ratio(times[ours], times[theirs]), None, values, "ms"), False
    if DEVICE == "cuda":
        values = {"ours": peaks[ours] / 2**20, "torch": peaks[theirs] / 2**20}
        yield Row(f"{case}, memory", values["ours"] / values["torch"], None, values, "MiB"), False


class _Peak:
    """The most bytes that were allocated at one time since this was made, beyond those from before it."""

    def __init__(self) -> None:
        self.before = 0
        if DEVICE == "cuda":
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()

    def bytes(self) -> int:
        return torch.cuda.max_memory_allocated() - self.before if DEVICE == "cuda" else 0


def _now() -> float:
    """Milliseconds, once the GPU has done what it was given."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() * 1e3


PARTS = {"tests": tests, "operators": operators, "models": models, "inductor": inductor, "step": step}
