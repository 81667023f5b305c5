"""`%aotviz watch` in a notebook: what it shows, and what it says of a wrong line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from aotviz.reading.recording import Recording


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    torch._dynamo.reset()
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "aotviz")
    yield shell
    shell.run_line_magic("unload_ext", "aotviz")
    InteractiveShell.clear_instance()


COMPILE = "import torch\nf = torch.compile(lambda x: x.sin(), backend='eager')\ny = f(torch.ones(3))\n"


def test_a_cell_under_the_magic_shows_its_recording_and_keeps_it(shell: Any) -> None:
    with capture_output() as shown:
        done = shell.run_cell(f"%%aotviz watch\n{COMPILE}")
    assert done.success
    recording = shell.user_ns["recording"]
    assert isinstance(recording, Recording)
    assert [c.id for c in recording] == ["0/0"]
    assert shell.user_ns["y"].shape == (3,)
    assert "dynamo" in shown.outputs[-1].data["text/plain"]


def test_a_cell_that_fails_fails_and_is_recorded(shell: Any) -> None:
    with capture_output():
        done = shell.run_cell(f"%%aotviz watch mine\n{COMPILE}1 / 0\n")
    assert isinstance(done.error_in_exec, ZeroDivisionError)
    assert len(shell.user_ns["mine"]) == 1


def test_on_and_off_watch_what_is_between(shell: Any) -> None:
    shell.run_line_magic("aotviz", "watch on")
    shell.run_cell(COMPILE)
    assert len(shell.user_ns["recording"]) == 1
    recording = shell.run_line_magic("aotviz", "watch off")
    assert recording is shell.user_ns["recording"]
    shell.run_cell("g = torch.compile(lambda x: x.cos(), backend='eager')(torch.ones(3))")
    assert len(recording) == 1


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("", "%%aotviz watch"),
        ("wach on", "no command 'wach'"),
        ("watch", "on or off is missing"),
        ("watch maybe", "on or off is missing"),
        ("watch off", "no watch is on"),
        ("watch on a b", "is not a variable name"),
        ("watch on 1x", "is not a variable name"),
    ],
)
def test_a_wrong_line_is_answered_with_what_is_right(shell: Any, line: str, answer: str) -> None:
    with pytest.raises(UsageError, match=answer):
        shell.run_line_magic("aotviz", line)


def test_a_second_watch_is_refused_by_name_and_unloading_ends_the_first(shell: Any) -> None:
    shell.run_line_magic("aotviz", "watch on first")
    with pytest.raises(UsageError, match="already on, as 'first'"):
        shell.run_line_magic("aotviz", "watch on")
    watching = shell.magics_manager.registry["AotvizMagics"].watching
    shell.run_line_magic("unload_ext", "aotviz")
    assert not watching.on
    shell.run_line_magic("load_ext", "aotviz")
