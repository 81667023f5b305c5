"""A watch sees what torch.compile does in this process, in whichever thread, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._logging import trace_structured
from torch._logging._internal import LazyTraceHandler, TorchLogsFormatter

import aotviz
from aotviz.live import structured_trace
from aotviz.live.watched import Place, WatchedLog, read_lines
from aotviz.live.watched_progress import WatchedCompilation
from aotviz.recording import progress

LOGGER = logging.getLogger("torch.__trace")


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch._dynamo.reset()
    yield
    assert structured_trace._tap not in LOGGER.handlers, "a watch was left on"


def compiled(fn: Any = lambda x: (x.sin() * x).sum(), backend: str = "eager") -> Any:
    return torch.compile(fn, backend=backend)


def weights() -> torch.Tensor:
    return torch.ones(3, requires_grad=True)


def test_every_stage_of_a_stock_compilation_is_shown() -> None:
    with aotviz.watch() as recording:
        compiled(backend="aot_eager")(weights()).backward()
    (compilation,) = recording
    assert compilation.kind == "training"
    roles = {role for stage in compilation.data.stages for role in stage.graphs}
    assert roles == {"dynamo", "joint", "forward", "backward"}
    nodes = compilation.graph("forward").nodes
    assert "aten.sin.default" in set(nodes.target)
    line = nodes.set_index("target").source_line["aten.sin.default"]
    assert line == f"{__file__}:{compiled.__code__.co_firstlineno}"
    assert set(compilation.diff("joint", "partition").change) >= {"kept"}


def test_inductors_graphs_and_code_are_shown() -> None:
    with aotviz.watch() as recording:
        compiled(lambda x: x.sin() + 1, backend="inductor")(torch.ones(3))
    (compilation,) = recording
    assert "aten.sin.default" in set(compilation.graph("inference").nodes.target)
    assert any("def call" in text for stage in compilation.data.stages for text in stage.code.values())


def test_the_recording_grows_while_the_watch_is_on() -> None:
    with aotviz.watch() as recording:
        assert len(recording) == 0
        f = compiled()
        f(torch.ones(3))
        assert [c.id for c in recording] == ["0/0"]
        f(torch.ones(3, 2))
        assert [c.id for c in recording] == ["0/0", "0/1"]
    f(torch.ones(3, dtype=torch.int64))
    assert len(recording) == 2


def test_calls_of_what_is_compiled_write_nothing() -> None:
    watch = aotviz.watch()
    with watch:
        f = compiled()
        f(torch.ones(3))
        before = watch._log.revision
        for _ in range(50):
            f(torch.ones(3))
        assert watch._log.revision == before


def test_with_the_watch_torchs_logger_is_as_it_was() -> None:
    other = logging.NullHandler()
    LOGGER.addHandler(other)
    LOGGER.disabled = True
    handlers = list(LOGGER.handlers)
    try:
        with contextlib.suppress(ZeroDivisionError), aotviz.watch() as recording:
            compiled()(torch.ones(3))
            _ = 1 / 0
        assert LOGGER.handlers == handlers
        assert LOGGER.disabled
        assert len(recording) == 1
    finally:
        LOGGER.disabled = False
        LOGGER.removeHandler(other)


def test_a_program_that_disables_its_logs_is_watched_all_the_same() -> None:
    logging.disable(logging.CRITICAL)
    try:
        with aotviz.watch() as recording:
            compiled()(torch.ones(3))
    finally:
        logging.disable(logging.NOTSET)
    assert len(recording) == 1


def test_the_first_record_is_not_lost_when_torchs_own_handler_takes_itself_off() -> None:
    lazy = LazyTraceHandler(None)
    LOGGER.addHandler(lazy)
    with aotviz.watch() as recording:
        compiled()(torch.ones(3))
    assert lazy not in LOGGER.handlers, "torch's handler has gone, as it does without a watch"
    assert recording.events.name.tolist()[0] == "dynamo"
    assert (recording.events.duration_us >= 0).all()


def test_what_is_kept_is_what_torch_writes_into_its_files() -> None:
    stream = io.StringIO()
    file = logging.StreamHandler(stream)
    file.setFormatter(TorchLogsFormatter(trace=True))
    watch = aotviz.watch()
    LOGGER.addHandler(file)
    try:
        with watch:
            compiled(backend="aot_eager")(weights()).backward()
    finally:
        LOGGER.removeHandler(file)
    ours = [item for item in records(watch._log.read_on(Place())[0].decode()) if not seeded(item)]
    theirs = [item for item in records(stream.getvalue()) if not seeded(item)]
    assert ours == theirs


def records(text: str) -> list[tuple[str, Any, str]]:
    """(line of torch, JSON, text) of each record."""
    found = []
    for piece in text.removesuffix("\n").replace("\n\t", "\0").split("\n"):
        line, _, payload = piece.partition("\0")
        prefix, _, head = line.partition("] ")
        found.append((prefix.split(" ")[-1].rpartition("site-packages/")[2], json.loads(head), payload))
    return found


def seeded(item: tuple[str, Any, str]) -> bool:
    return "str" in item[1] or item[1].get("artifact", {}).get("name") == "torch_version"


def test_a_watch_and_torch_trace_both_get_everything(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, aotviz\n"
        "f = torch.compile(lambda x, n: x * n, backend='eager')\n"
        "f(torch.ones(3), 1)\n"
        "with aotviz.watch() as recording:\n"
        "    f(torch.ones(3), 2)\n"
        "f(torch.ones(3), 2.5)\n"
        "print([c.id for c in recording], recording.notes)\n"
    )
    environment = {"TORCH_TRACE": str(tmp_path / "trace"), "PYTHONPATH": str(Path(aotviz.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("['0/1'] ['0/0 was compiled before the watch began")
    (log,) = (tmp_path / "trace").glob("*.log")
    whole = read_lines(log.read_bytes())
    assert [c.id for c in whole] == ["0/0", "0/1", "0/2"]


def test_watches_may_be_nested_and_overlap() -> None:
    f = compiled()
    outer, inner = aotviz.watch(), aotviz.watch()
    outer.start()
    f(torch.ones(3))
    inner.start()
    f(torch.ones(3, 2))
    outer.stop()
    f(torch.ones(3, dtype=torch.int64))
    inner.stop()
    assert [c.id for c in outer.recording] == ["0/0", "0/1"]
    assert [c.id for c in inner.recording] == ["0/1", "0/2"]


def test_compilations_of_other_threads_are_seen() -> None:
    def work() -> None:
        compiled()(torch.ones(3))
        aotviz.compile(lambda x: x.cos(), backend="eager")(torch.ones(3))

    with aotviz.watch() as recording:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert [c.graph("dynamo").nodes.target.tolist()[1] for c in recording if c.compile_id == "0/0"] == ["sin"]
    assert "aten.cos.default" in set(recording[-1].graph("inference").nodes.target)


def test_what_aotviz_compiles_is_in_the_same_recording() -> None:
    with aotviz.watch() as recording:
        compiled(backend="aotviz_eager")(weights()).backward()
    own = recording[-1]
    assert own.wrapper is not None
    assert "link" in own.stages.stage.tolist()
    loaded = aotviz.Recording(recording.data)
    assert [c.id for c in loaded] == [c.id for c in recording]
    assert loaded[-1].graph("joint").code == own.graph("joint").code
    assert loaded[0].graph("dynamo").code == recording[0].graph("dynamo").code


def test_a_recompile_of_a_function_that_was_compiled_before_says_what_is_not_known() -> None:
    f = compiled(lambda x, n: x * n)
    f(torch.ones(3), 2)
    with aotviz.watch() as recording:
        f(torch.ones(3), 3)
    assert recording.notes == ["0/0 was compiled before the watch began: its graphs and guards are not known"]
    (reason,) = recording.data.recompiles[0].reasons
    assert reason.earlier == "0/0"
    assert "n == 2" in recording.data.strings[reason.guard].replace("L['n']", "n")


def test_a_graph_break_and_a_failure_in_the_compiler_are_seen() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x.sin()

    def failing(graph: Any, inputs: Any) -> Any:
        raise ValueError("no such kernel")

    with aotviz.watch() as recording:
        compiled(broken)(torch.ones(3))
        with pytest.raises(Exception, match="no such kernel"):
            torch.compile(lambda x: x.cos(), backend=failing)(torch.ones(3))
    assert len(recording.graph_breaks) == 1
    assert "no such kernel" in " ".join(recording.metrics.fail_reason)


def test_a_recording_is_saved_and_shown_as_any_other(tmp_path: Path) -> None:
    with aotviz.watch() as recording:
        compiled(backend="aot_eager")(weights()).backward()
    recording.save(tmp_path / "a.aotviz")
    loaded = aotviz.load(tmp_path / "a.aotviz")
    assert str(loaded) == str(recording)
    assert loaded[0].graph("joint").code == recording[0].graph("joint").code
    recording.to_html(tmp_path / "a.html")
    assert "0/0" in repr(loaded[0])


def test_a_watch_keeps_the_newest_within_its_bounds() -> None:
    watch = aotviz.watch(max_bytes=200_000)  # some five times what the newest takes, which stays
    f = compiled(lambda x, n: x * len(n))
    with watch as recording:
        for n in ("a", "b", "c", "d", "e", "f", "g"):
            f(torch.ones(3), n)
    assert watch._log.nbytes <= 200_000
    assert recording.dropped > 0
    assert len(recording) >= 1
    with pytest.raises(ValueError, match="at least one byte"):
        aotviz.watch(max_bytes=0)


def test_a_watch_that_fails_ends_with_a_warning_and_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: WatchedLog, *args: Any) -> None:
        raise OSError("out of memory")

    with aotviz.watch() as recording:
        monkeypatch.setattr(WatchedLog, "receive", fail)
        with pytest.warns(RuntimeWarning, match="stopped watching because of an error .OSError: out of memory"):
            result = compiled()(torch.ones(3))
    assert result.shape == ()
    assert len(recording) == 0


def test_a_watch_that_is_on_is_not_begun_again() -> None:
    watch = aotviz.watch()
    with watch, pytest.raises(RuntimeError, match="already on"):
        watch.start()
    assert "off" in repr(watch)


def test_odd_records_are_kept_as_torch_would_write_them() -> None:
    log = WatchedLog()
    log.receive(1.5, 7, "a.py:1", {"odd": {1, 2}, "nan": float("nan"), ("a",): 3, "f": torch.float32}, "half \ud800")
    log.receive(1.5, 7, "a.py:1", {"artifact": {"name": "x", "encoding": "string"}, "stack": []}, "tab\n\ttab")
    found = read_lines(log.read_on(Place())[0])
    assert found.outline.logs[0].bad_lines == 0
    assert found.texts[found.outline.artifacts[1].text] == "tab\n\ttab"


def test_a_backward_of_ours_that_is_compiled_later_ends_in_the_panel_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOGGER, "handlers", [])  # without pytest's: nothing but the watch reads torch's log

    def passes(graph: torch.fx.GraphModule, _: Any) -> Any:
        trace_structured("inductor_output_code", payload_fn=lambda: graph.code)
        return graph.forward

    states = []

    def heard(compilation: progress.Compilation) -> None:
        if isinstance(compilation, WatchedCompilation):
            states.append((compilation.progress().state, compilation.progress().stage))

    compiled_step = aotviz.compile(lambda x: (x.sin() * x).sum(), backend=passes, cache=False)
    with aotviz.watch():
        progress.listen(heard)
        try:
            loss = compiled_step(weights())
            assert states[-1] == ("done", "lower")
            loss.backward()
        finally:
            progress.unlisten(heard)
    assert ("running", "lower") in states[states.index(("done", "lower")) :]
    assert states[-1] == ("done", "lower")
