"""The line of a long compilation: in a terminal, in a notebook, and nowhere else."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import nbformat
import pytest
import torch
from nbclient import NotebookClient

import aotviz
from aotviz.recording import progress, progress_line
from aotviz.recording.progress_line import Line

LONG = """
import threading
import torch, aotviz
from aotviz.recording import progress_line

progress_line.AFTER_S, progress_line.EVERY_S = 0.0, 0.01
seen = threading.Event()
text = progress_line.Line._text
def told(line):
    made = text(line)
    if "partition" in made:
        seen.set()
    return made
progress_line.Line._text = told

def partition(*args, **kwargs):
    assert seen.wait(60), "the line never said that it partitions"
    return torch_partition(*args, **kwargs)

from functorch.compile import default_partition as torch_partition
{edit}
def loss(x):
    return x.sin().sum()
f = aotviz.aot_function(loss, fw_compiler=lambda graph, inputs: graph, partition_fn=partition)
f(torch.ones(3, requires_grad=True))
"""


def in_a_terminal(program: str, **environment: str) -> str:
    """What a program writes to a stderr that is a pseudo-terminal."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stderr=theirs,
        env={**os.environ, "AOTVIZ_PROGRESS": "", "TERM": "xterm", **environment},
    )
    os.close(theirs)
    written = b""
    try:
        while piece := os.read(ours, 4096):
            written += piece
    except OSError:  # how the end of a pseudo-terminal is told
        pass
    os.close(ours)
    assert child.wait() == 0, written.decode()
    return written.decode()


def test_a_terminal_has_one_line_which_is_taken_away_at_the_end() -> None:
    written = in_a_terminal(LONG.format(edit=""))
    first, *shown, last = written.split(progress_line.CLEAR)
    assert (first, last) == ("", "")
    words = re.compile(r"aotviz: compiling loss · partition \(\d+ stages done\) · \d+ s")
    assert any(map(words.fullmatch, shown)), shown
    assert "\n" not in written


@pytest.mark.parametrize("environment", [{"AOTVIZ_PROGRESS": "0"}, {"RANK": "1"}, {"TERM": "dumb"}])
def test_it_can_be_switched_off(environment: dict[str, str]) -> None:
    assert in_a_terminal(LONG.format(edit="seen.set()"), **environment) == ""


def test_a_log_has_no_line_unless_it_is_asked_for() -> None:
    for asked, expected in (("", []), ("1", ["aotviz: compiling loss", "aotviz: compiled loss"])):
        environment = {**os.environ, "AOTVIZ_PROGRESS": asked}
        program = LONG.format(edit="" if asked else "seen.set()")
        done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, env=environment, check=True)
        assert [line.partition(" · ")[0] for line in done.stderr.decode().splitlines()] == expected


def test_a_notebook_has_one_output_which_says_at_the_end_how_long_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AOTVIZ_PROGRESS")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(f"{LONG.format(edit='')};")])  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=300).execute()
    (output,) = [one for one in notebook.cells[0].outputs if one.output_type == "display_data"]
    assert output.data["text/plain"].startswith("aotviz: compiled loss · ")


class Shown:
    """An output that keeps what it is given."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.ended: list[str] = []
        self.is_shown = threading.Event()

    def show(self, text: str) -> None:
        self.texts.append(text)
        self.is_shown.set()

    def end(self, text: str) -> None:
        self.ended.append(text)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Line]]:
    monkeypatch.setattr(progress_line, "AFTER_S", 0.0)
    monkeypatch.setattr(progress_line, "EVERY_S", 0.01)
    lines: list[Line] = []

    def made(shown: Any, kernels: Callable[[], int] = lambda: 0) -> Line:
        lines.append(Line(kernels, lambda: shown))
        progress.listen(lines[-1].hear)
        return lines[-1]

    yield made
    for line in lines:
        progress.unlisten(line.hear)
        line.stop()


def test_kernels_are_counted_from_the_beginning_of_the_line(heard: Callable[..., Line]) -> None:
    shown, kernels = Shown(), [40]

    def slow(graph: Any, inputs: Any) -> Any:
        kernels[0] += 3
        shown.is_shown.clear()
        assert shown.is_shown.wait(60)
        return graph

    heard(shown, lambda: kernels[0])
    aotviz.aot_function(lambda x: x * 2, fw_compiler=slow)(torch.ones(3))
    assert any("· lower" in text and "3 kernels generated" in text for text in shown.texts)
    assert len(shown.ended) == 1
    assert "3 kernels generated" in shown.ended[0]


def test_a_watch_shows_the_rest_after_a_graph_break_in_words_and_ends(heard: Callable[..., Line]) -> None:
    shown = Shown()

    def slow(graph: Any, inputs: Any) -> Any:
        shown.is_shown.clear()
        assert shown.is_shown.wait(60)
        return graph

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    torch._dynamo.reset()
    heard(shown)
    with aotviz.watch():
        torch.compile(broken, backend=slow)(torch.ones(3))
    named = {text.partition(" · ")[0].removeprefix("aotviz: compiling ") for text in shown.texts}
    line = broken.__code__.co_firstlineno + 2
    assert named == {"broken", f"the rest of broken after line {line}"}
    assert shown.ended[-1].startswith(f"aotviz: compiled the rest of broken after line {line} · ")


def test_a_backward_of_aotviz_inside_a_compilation_of_torch_does_not_run_on(heard: Callable[..., Line]) -> None:
    torch._dynamo.reset()
    line = heard(Shown())
    with aotviz.watch():
        step = torch.compile(lambda x: (x.sin() * x).sum(), backend="aotviz")
        step(torch.ones(3, requires_grad=True)).backward()
    assert not line._running


def test_an_output_that_fails_does_not_break_a_compilation(heard: Callable[..., Line]) -> None:
    class Closed(Shown):
        def show(self, text: str) -> None:
            super().show(text)
            raise ValueError("I/O operation on closed file")

    shown = Closed()

    def slow(graph: Any, inputs: Any) -> Any:
        assert shown.is_shown.wait(60)
        return graph

    heard(shown)
    assert aotviz.aot_function(lambda x: x * 2, fw_compiler=slow)(torch.ones(3)).tolist() == [2, 2, 2]
    assert len(shown.texts) == 1


def test_a_long_text_is_cut_to_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream = io.StringIO()
    progress_line.Terminal(stream).show("aotviz: compiling a long name")
    assert stream.getvalue() == f"{progress_line.CLEAR}aotviz: compiling …"
