"""A watch that begins after all was compiled says so, and no watch speaks of a log that nobody has."""

from __future__ import annotations

import re

import pytest
import torch

import aotviz

pytestmark = pytest.mark.usefixtures("clean_dynamo")


def add(x):
    return x + 1


def test_a_watch_that_begins_too_late_says_what_was_compiled_before_and_what_to_do() -> None:
    compiled = torch.compile(add, backend="eager")
    compiled(torch.ones(3))
    with aotviz.watch() as recording:
        compiled(torch.ones(3))
    (note,) = recording.notes
    assert note.startswith("1 function was compiled before the watch began. ")
    assert recording.explain().sentences == [note]
    assert recording.overview().headline == f"Nothing was compiled. {note}"
    assert recording.overview().healthy
    with aotviz.watch() as recording:  # as the note says
        torch.compiler.reset()
        compiled(torch.ones(3))
    assert len(recording) == 1
    assert not recording.notes


def test_a_note_goes_when_something_is_compiled_and_comes_with_what_is_saved(tmp_path) -> None:
    torch.compile(add, backend="eager")(torch.ones(3))
    with aotviz.watch() as recording:
        before = list(recording.notes)
        recording.save(tmp_path / "late.aotviz")
        torch.compile(lambda x: x * 2, backend="eager")(torch.ones(3))
        assert before
        assert not recording.notes
    assert aotviz.load(tmp_path / "late.aotviz").notes == before


def test_a_watch_over_nothing_has_no_note() -> None:
    with aotviz.watch() as recording:
        pass
    assert not recording.notes


def test_what_a_watch_explains_speaks_of_no_log() -> None:
    def broken(x, scale):
        y = x * scale
        torch._dynamo.graph_break()
        return y + 1

    with aotviz.watch() as recording:
        for backend in ("inductor", "aotviz_eager"):
            compiled = torch.compile(broken, backend=backend)
            for scale in (2.0, 3.0):
                compiled(torch.ones(3, requires_grad=True), scale).sum().backward()
    told = [str(recording.explain()), *(str(recording.explain(one.id)) for one in recording)]
    assert all(told)
    assert not [text for text in told if re.search(r"\blogs?\b", text)]
