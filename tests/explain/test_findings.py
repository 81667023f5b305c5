"""What pages show of the explanations is made once for each state of a recording."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import aotviz
from aotviz.explain import answers, recompiles
from aotviz.reading.recording import Recording
from aotviz.recording.holders import Replaceable
from aotviz.widgets import parts

Recorder = Callable[[], contextlib.AbstractContextManager[Recording]]


@pytest.fixture
def explained(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One entry for each time that a whole recording is explained."""
    made: list[Any] = []
    overall = answers.overall

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        return overall(*arguments)

    monkeypatch.setattr(answers, "overall", counted)
    return made


def look(recording: Recording) -> None:
    """Ask for what a page asks for when it opens or refreshes."""
    for what in (["index"], ["rows", "overview"], ["rows", "why"]):
        parts.packed(recording, what)


@pytest.mark.parametrize(("recorder", "backend"), [(aotviz.watch, "eager"), (aotviz.record, "aotviz_eager")])
def test_requests_between_two_compilations_explain_once(recorder: Recorder, backend: str, explained: list[Any]) -> None:
    torch._dynamo.reset()
    step = torch.compile(lambda x, n: x * n, backend=backend, dynamic=False)
    with recorder() as recording:
        for compilations in (1, 2, 3):
            step(torch.ones(2), compilations)
            look(recording)
            look(recording)
            assert len(explained) == compilations
            assert len(recording.overview().functions) == 1
            assert answers.findings(recording).why == answers.with_differences(recording).why
            assert len(answers.findings(recording).why) == compilations - 1
    assert len(explained) == 3


def test_after_requests_at_the_same_time_nothing_is_explained_again(explained: list[Any]) -> None:
    torch._dynamo.reset()
    with aotviz.watch() as recording:
        torch.compile(lambda x: x * 2, backend="eager")(torch.ones(2))
    barrier = threading.Barrier(4)

    def ask() -> None:
        barrier.wait()
        look(recording)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = len(explained)
    assert 1 <= made <= 4  # no lock is held, so those that ask at the same time may each make them
    look(recording)
    assert len(explained) == made


def test_a_recording_in_place_of_another_is_explained() -> None:
    one, two = (aotviz.compile(fn, backend="eager") for fn in (torch.sin, torch.cos))
    for each in (one, two):
        each(torch.ones(2))
    content = Replaceable(one.recording.data)
    recording = Recording(content)
    before = recording.overview().functions.name.tolist()
    content.replace(two.recording.data)
    assert before != recording.overview().functions.name.tolist()


def test_a_page_with_its_text_analyses_the_recompiles_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    analysed = recompiles._find
    monkeypatch.setattr(recompiles, "_find", lambda facts: found.append(facts) or analysed(facts))
    torch._dynamo.reset()
    step = torch.compile(lambda x, n: x * n, backend="eager", dynamic=False)
    with aotviz.watch() as recording:
        for n in range(4):
            step(torch.ones(2), n)
    recording.to_html(tmp_path / "page.html")
    assert "All recompiles" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert len(found) == 1
