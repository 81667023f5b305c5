"""Ten lines about aliasing, compiled: what the pictures of the workbench show, and what they are compared on.

The recording is real, but for what differs from run to run and from machine to machine: times, versions, folders.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import torch
from msgspec.structs import replace

import aotviz
from aotviz.recording.schema import CompilationData, RecordingData, StageRecord
from tests.ui.fixture import FixtureRecording

FOLDER = str(Path(__file__).parent)
STAGE_NS = 40_000_000


def puzzle(w, same, a, b, steps):
    a.mul_(2)  # a and b overlap, so b changes too
    steps.add_(1)
    y = (w * same).sin() + b.sum()  # w and same are one tensor
    v = y.exp().view(-1)
    return v[2:6], y.t(), b[1:], a


def recording() -> FixtureRecording:
    """Of one call with gradients, its backward run."""
    torch._dynamo.reset()  # or Dynamo counts the programs of earlier tests, and the names here would say so
    compiled = aotviz.compile(puzzle, backend="eager")
    w, memory = torch.ones(2, 4, requires_grad=True), torch.arange(8.0)
    out = compiled(w, w, memory[:5], memory[3:], torch.zeros((), dtype=torch.int64))
    out[0].sum().backward()
    return FixtureRecording(settled(compiled.recording.data))


def settled(data: RecordingData) -> RecordingData:
    """The recording without what no two runs have in common."""
    text = msgspec.json.encode(data).decode().replace(FOLDER, "project").replace("<aotviz ", "<").replace("<0 ", "<")
    data = msgspec.json.decode(text, type=RecordingData)
    versions = {"aotviz": "0.1.0", "torch": "2.13.0", "python": "3.11"}
    return replace(data, producer=versions, compilations=[_settled(compilation) for compilation in data.compilations])


def _settled(compilation: CompilationData) -> CompilationData:
    stages = [_timed(stage, number) for number, stage in enumerate(compilation.stages)]
    wrapper = compilation.wrapper and replace(compilation.wrapper, filename="<aotviz puzzle>")
    return replace(compilation, stages=stages, wrapper=wrapper, started_unix_ns=1_790_000_000_000_000_000)


def _timed(stage: StageRecord, number: int) -> StageRecord:
    elapsed = STAGE_NS if stage.changed else STAGE_NS // 1000
    return replace(stage, started_ns=number * STAGE_NS, elapsed_ns=elapsed)
