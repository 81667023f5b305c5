"""The flame graph of the compile time adds up to it, and has the modules and lines of the program."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import aotviz
from aotviz.explain import flame
from aotviz.explain.answers import facts_of
from aotviz.recording.findings import TimeFrame


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).relu()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.h = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.h:
            x = block(x)
        return x * 2


@pytest.fixture(scope="module")
def recording() -> aotviz.Recording:
    step = aotviz.compile(Model())
    step(torch.ones(2, 4)).sum().backward()
    return step.recording


def above(frames: list[TimeFrame], at: int) -> list[str]:
    """The names of the frames around one, the innermost first."""
    names, depth = [], frames[at].depth
    for frame in reversed(frames[:at]):
        if frame.depth < depth:
            names.append(frame.name)
            depth = frame.depth
    return names


def test_the_frames_are_the_modules_by_path_with_equal_blocks_as_one(recording: aotviz.Recording) -> None:
    frames = flame.frames(facts_of(recording))
    names = [frame.name for frame in frames]
    assert above(frames, names.index("inner")) == ["h.*"]
    assert {frame.name: frame.kind for frame in frames if frame.kind} == {"h.*": "Block", "inner": "Linear"}
    line = names.index("return self.inner(x).relu()", names.index("h.*"))
    assert "h.*" in above(frames, line)
    assert frames[line].place.startswith(__file__)
    assert frames[line].ids == [one.id for one in recording.compilations]


def test_the_outermost_frames_add_up_to_the_time_of_compiling(recording: aotviz.Recording) -> None:
    frames = flame.frames(facts_of(recording))
    total = recording.compile_time().seconds.sum()
    assert total > 0
    assert sum(frame.seconds for frame in frames if frame.depth == 0) == pytest.approx(total, rel=0.01)
    by_module = recording.compile_time(by="module").set_index("module").seconds
    (inner,) = (frame for frame in frames if frame.name == "inner")
    assert inner.seconds == pytest.approx(by_module["h.*.inner"])


def test_where_nothing_was_compiled_there_is_no_frame() -> None:
    with aotviz.record() as made:
        pass
    assert flame.frames(facts_of(made)) == []
