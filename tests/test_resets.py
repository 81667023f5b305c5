"""Dynamo counts from 0/0 again after a reset: compilations before and after it stay apart, live and in logs."""

from __future__ import annotations

import gc
import json
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import aotviz
from aotviz.live.watched import Place, WatchedLog, read_lines
from aotviz.reading.recording import Recording
from aotviz.recording import progress
from tests.explain.logs import logged

X = torch.ones(3)


def one(x, n=1):
    return x.sin() * n


def two(x, n=1):
    return x.cos() - n


def three(x, n=1):
    return x.tan() + n


pytestmark = pytest.mark.usefixtures("clean_dynamo")


def each_after_a_reset(backend: str = "eager") -> None:
    for function in (one, two, three):
        compiled = torch.compile(function, backend=backend, dynamic=False)
        compiled(X)
        if function is not one:
            compiled(X, 2)
        torch._dynamo.reset()


@pytest.fixture(params=["watch", "log"])
def recorded(request, tmp_path: Path) -> Recording:
    """The same program as a watch sees it, and as a file of TORCH_TRACE has it."""
    if request.param == "watch":
        with aotviz.watch() as recording:
            each_after_a_reset()
        return recording
    return logged(each_after_a_reset, tmp_path)


def test_compilations_of_one_compile_id_are_told_apart(recorded: Recording) -> None:
    assert [(c.id, c.compile_id, c.name) for c in recorded] == [
        ("0/0", "0/0", "one"),
        ("reset 1: 0/0", "0/0", "two"),
        ("reset 1: 0/1", "0/1", "two"),
        ("reset 2: 0/0", "0/0", "three"),
        ("reset 2: 0/1", "0/1", "three"),
    ]
    graphs = [set(c.graph("dynamo").nodes.target) for c in recorded]
    assert [word for graph in graphs for word in ("sin", "cos", "tan") if word in graph] == [
        "sin", "cos", "cos", "tan", "tan",
    ]  # fmt: skip
    assert any("torch._dynamo.reset() was called 2 times" in note for note in recorded.notes)


def test_each_recompile_is_blamed_on_the_line_of_its_own_function(recorded: Recording) -> None:
    table = recorded.recompiles().set_index("compilation")
    assert list(table.index) == ["reset 1: 0/1", "reset 2: 0/1"]
    assert list(table.function) == ["two", "three"]
    assert list(table.earlier) == ["reset 1: 0/0", "reset 2: 0/0"]
    assert list(table.code) == ["return x.cos() - n", "return x.tan() + n"]
    lines = [function.__code__.co_firstlineno + 1 for function in (two, three)]
    assert list(table.place) == [f"{__file__}:{line}" for line in lines]
    assert list(table.same_cause) == [1, 1]
    title = str(recorded.explain()).split(";")[0]
    assert title == "5 compilations of 3 functions, 2 of them recompiles"
    assert "first compilation of `three`" in str(recorded.explain("reset 2: 0/0"))


def test_the_timeline_and_the_costs_are_those_of_each(recorded: Recording) -> None:
    with pytest.raises(LookupError, match="ask for one of 0/0, reset 1: 0/0, reset 1: 0/1, reset 2: 0/0"):
        recorded.explain("nothing")
    assert len(recorded.timeline("reset 1: 0/0")) > 3
    events = recorded.events
    assert sorted(set(events[events.name == "dynamo"].compilation)) == sorted(c.id for c in recorded)


def test_one_function_that_is_compiled_again_after_a_reset_counts_once() -> None:
    with aotviz.watch() as recording:
        for _ in range(3):
            torch.compile(one, backend="eager")(X)
            torch._dynamo.reset()
    assert str(recording.explain()).startswith("3 compilations of 1 function;")
    assert len(recording.recompiles()) == 0


def test_our_own_backend_keeps_functions_of_one_name_apart() -> None:
    with aotviz.record() as recording:
        for function in (lambda x: x.sin(), lambda x: x.cos()):
            torch.compile(function, backend="aotviz_eager")(X)
            torch._dynamo.reset()
    assert [c.name for c in recording] == ["<lambda> [0/0]", "<lambda> [0/0]"]
    assert str(recording.explain()).startswith("2 compilations of 2 functions;")
    assert len({c.outline.frame for c in recording}) == 2


def test_a_recompile_is_not_compared_with_a_program_from_before_a_reset_that_nobody_watched() -> None:
    watch = aotviz.watch()
    with watch:
        torch.compile(one, backend="eager", dynamic=False)(X)
    torch._dynamo.reset()
    compiled = torch.compile(two, backend="eager", dynamic=False)
    compiled(X)
    with watch as recording:
        compiled(X, 2)
    assert [(c.id, c.name) for c in recording] == [("0/0", "one"), ("reset 1: 0/1", "two")]
    assert recording.compilations[0].outline.frame != recording.compilations[1].outline.frame
    (row,) = recording.recompiles().itertuples()
    assert (row.function, row.earlier, row.code) == ("two", "0/0", "return x.cos() - n")
    assert any(note.startswith("reset 1: 0/0 was compiled before the watch began") for note in recording.notes)


def test_threads_compile_before_and_after_a_reset() -> None:
    def compile_in_a_thread(function) -> None:
        thread = threading.Thread(target=lambda: torch.compile(function, backend="eager")(X))
        thread.start()
        thread.join()

    with aotviz.watch() as recording:
        compile_in_a_thread(one)
        compile_in_a_thread(two)
        torch._dynamo.reset()
        compile_in_a_thread(three)
    assert [(c.id, c.name) for c in recording] == [("0/0", "one"), ("1/0", "two"), ("reset 1: 0/0", "three")]


def test_the_live_panel_lists_each() -> None:
    before = {one.progress().number for one in progress.compilations()}
    with aotviz.watch() as recording:
        each_after_a_reset()
        rows = sorted(row for one in progress.compilations() if (row := one.progress()).number not in before)
    assert [(row.name, row.kind) for row in rows] == [
        ("one", "torch 0/0"), ("two", "torch reset 1: 0/0"), ("two", "torch reset 1: 0/1"),
        ("three", "torch reset 2: 0/0"), ("three", "torch reset 2: 0/1"),
    ]  # fmt: skip
    assert len(recording) == 5


class Dynamos:
    """Stands for the object that Dynamo keeps while anything of a compilation may still run."""


def start(frame: int, number: int, name: str) -> dict[str, object]:
    stack = [{"line": 1, "name": name, "filename": 0}]
    return {"dynamo_start": {"stack": stack}, "frame_id": frame, "frame_compile_id": number, "attempt": 0}


def test_a_backward_that_is_compiled_after_a_reset_goes_to_its_own_forward() -> None:
    log, objects = WatchedLog(), [Dynamos(), Dynamos()]
    moments = [
        SimpleNamespace(compilation=one, code=lambda number=i: number, call=lambda: None)
        for i, one in enumerate(objects)
    ]
    ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    for moment, name in zip(moments, ("one", "two"), strict=True):
        log.receive(1.0, 7, "a.py:1", start(0, 0, name), None, moment)
    late = {"bwd_compilation_metrics": {"duration_us": 5}, **ids}
    log.receive(2.0, 7, "a.py:1", late, None, moments[0])
    found = read_lines(log.read_on(Place())[0])
    assert [c.name for c in found] == ["one", "two"]
    assert [record.origin.compilation for record in found.outline.metrics] == [0]
    assert b"bwd" in log.lines_of("0/None/0/0")
    del objects, moments, moment
    gc.collect()
    assert len(log._stretches._of) == 0, "nothing of Dynamo's is kept"


def test_a_log_that_names_another_function_under_a_known_number_was_reset(tmp_path: Path) -> None:
    log = WatchedLog()
    for number, name in ((0, "one"), (1, "one"), (2, "two"), (3, "two")):
        log.receive(1.0, 7, "a.py:1", {"artifact": {"name": "early"}, "frame_id": 0, "frame_compile_id": number}, "")
        log.receive(1.0, 7, "a.py:1", start(0, number, name), None)
    unmarked = log.read_on(Place())[0].replace(b', "aotviz_reset": 0', b"").replace(b', "aotviz_reset": 1', b"")
    (tmp_path / "a.log").write_bytes(unmarked)
    recording = aotviz.read_trace(tmp_path, index=False)
    assert [c.id for c in recording] == ["0/0", "0/1", "reset 1: 0/2", "reset 1: 0/3"]
    early = [artifact.origin.compilation for artifact in recording.data.artifacts if artifact.text >= 0]
    assert early == [0, 1, 2, 3], "what was said before the name is the compilation's too"


def test_processes_that_write_into_one_log_are_reset_each_for_itself(tmp_path: Path) -> None:
    lines = [
        (7, start(0, 0, "one")), (8, start(0, 0, "one")), (7, start(0, 0, "two")), (8, start(1, 0, "two")),
        (8, start(0, 1, "one")),
    ]  # fmt: skip
    text = "".join(f"V0701 12:00:00.000000 {process} a.py:1] {json.dumps(head)}\n" for process, head in lines)
    (tmp_path / "a.log").write_text(text)
    recording = aotviz.read_trace(tmp_path, index=False)
    assert [c.id for c in recording] == [
        "process 7: 0/0", "process 8: 0/0", "process 7, reset 1: 0/0", "process 8: 1/0", "process 8: 0/1",
    ]  # fmt: skip
    frames = [c.outline.frame for c in recording]
    assert frames == [0, 1, 2, 3, 1]
    assert "once in process 7:" in recording.notes[0]


def test_a_saved_recording_keeps_them_apart(tmp_path: Path, recorded: Recording) -> None:
    recorded.save(tmp_path / "kept.aotviz")
    assert str(aotviz.load(tmp_path / "kept.aotviz").explain()) == str(recorded.explain())
