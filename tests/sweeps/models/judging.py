"""One model of the sweep: trained in eager, by torch's own backend and by ours; and what was recorded of ours."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import counters

import aotviz
from tests.oracle.progress import Row, stable

from . import language, science, vision  # noqa: F401 (fill the catalogue)
from .catalogue import MODELS, Model, declare_torchvisions_operators
from .training import Compiled, Kept, difference, train

declare_torchvisions_operators()
BACKENDS = {False: ("aot_eager", "eager"), True: ("inductor", "inductor")}  # torch.compile's, aotviz.compile's
LONGEST = 160  # characters of an error


def judged(name: str, by_inductor: bool, device: str = "cpu", beside_torch: bool = True) -> Row:
    """A row: `{"skipped": why}`, or what torch and ours gave, "equal", "close", "wrong" or "raised", and why."""
    model = MODELS[name]
    try:
        expected, again = (train(model, lambda thing: thing, device) for _ in range(2))
    except Exception as error:  # its package is not here, or it puts tensors on the CPU
        return {"skipped": f"eager raises {type(error).__name__}: {error}"}
    if difference(expected, again)[0] not in ("equal", "close" if device != "cpu" else "equal"):
        return {"skipped": f"eager differs from eager: {difference(expected, again)[1]}"}
    theirs, ours = BACKENDS[by_inductor]
    options = {"fallback_random": True} if by_inductor else None  # the random numbers that eager draws
    compiled: list[Any] = []

    def by_torch(module: Any) -> Any:
        return torch.compile(module, backend=theirs, options=options)

    def by_aotviz(module: Any) -> Any:
        compiled.append(aotviz.compile(module, backend=ours, options=options))
        return compiled[-1]

    row: Row = {"torch": _outcome(model, expected, by_torch, device)} if beside_torch else {}
    row["ours"] = _outcome(model, expected, by_aotviz, device)
    row["graphs"] = counters["stats"]["unique_graphs"]
    row["breaks"] = sum(counters["graph_break"].values())
    row["recording"] = _kept(compiled[-1].recording)
    return row


def _outcome(model: Model, expected: Kept, compiled: Compiled, device: str) -> Row:
    torch._dynamo.reset()
    counters.clear()
    try:
        status, why = difference(expected, train(model, compiled, device))
    except Exception as error:
        error = getattr(error, "inner_exception", error)  # Dynamo's own says only whose it was
        lines = [line for line in str(error).strip().splitlines() if line.strip()] or [""]
        status, why = "raised", stable(f"{type(error).__name__}: {lines[0]}")[:LONGEST]
    return {"status": status, "why": why}


def _kept(recording: aotviz.Recording) -> Row:
    """What the recording is like once it was saved, loaded and exported; and what it says."""
    errors = [compilation.data.error for compilation in recording if compilation.data.error is not None]
    refused = [error.message for error in errors if error.ran_in_eager]
    found: Row = {"compilations": len(recording), "refused": refused, "said": []}
    with tempfile.TemporaryDirectory() as folder:
        path, page = Path(folder) / "model.aotviz", Path(folder) / "model.html"
        for what, step in _uses(recording, path, page):
            try:
                found["said"] += step() or []
            except Exception as error:
                found["error"] = f"{what}: {type(error).__name__}: {str(error)[:LONGEST]}"
                return found
        found["bytes"] = os.path.getsize(path)
    return found


def _uses(recording: aotviz.Recording, path: Path, page: Path) -> list[tuple[str, Callable[[], Any]]]:
    uses = [
        ("save", lambda: recording.save(path)),
        ("explain", lambda: [str(aotviz.load(path).explain())]),
        ("recompiles", lambda: [str(aotviz.load(path).recompiles())]),
    ]
    if importlib.util.find_spec("anywidget"):  # else the workbench is not installed
        uses.append(("to_html", lambda: aotviz.load(path).to_html(page)))
    return uses
