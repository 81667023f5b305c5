"""The benchmarks run, and say what they found in one form. No test here looks at a time."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from torch._functorch.aot_autograd import aot_module as torch_aot_module
from torch._functorch.partitioners import default_partition

import aotviz
from aotviz.frontends.functions import aot_module
from benchmarks import __main__ as command
from benchmarks import (
    cache_miss,
    calls,
    compiled_autograd,
    compiling,
    diffing,
    explaining,
    first_compile,
    measure,
    opening,
    recording,
    results,
    step,
    step_models,
    subclasses,
    trace_reading,
    warm_start,
    watching,
)
from tests import processes
from tests.graphs_made import graphs_made


@pytest.fixture
def one_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of a benchmark share one import of torch: what they measure is not looked at."""

    def run(command: list[str], env: dict[str, str], **_: Any) -> processes.Done:
        return processes.run(command[command.index("-c") :], env)

    for module in (warm_start, first_compile):
        monkeypatch.setattr(module, "subprocess", SimpleNamespace(run=run))


@pytest.mark.slow
def test_a_warm_start_is_measured_beside_torchs_own(one_import: None) -> None:
    small = "equal blocks, compiled apart"
    whole, _, entry, kept, beside = warm_start.run(rounds=1, layers=(1,), others=(), models=(small, small)).rows
    assert set(whole.values) == {"Dynamo", "torch", "ours"}
    sides = {f"{who}{how}" for who in ("torch", "ours") for how in ("", warm_start.KEPT)}
    assert {*kept.values} == {*beside.values} == sides
    assert 0 < entry.values["ours"] < 50_000


@pytest.mark.slow
def test_the_time_in_the_cache_is_a_part_of_the_first_step(one_import: None) -> None:
    (row,) = cache_miss.run(rounds=1, layers=(1,), model="equal blocks, compiled apart").rows
    assert set(row.values) == {"cached", "uncached", "in the cache"}
    assert 0 < row.values["in the cache"] < row.values["cached"]


@pytest.mark.slow
def test_every_kind_of_call_is_measured_beside_torch_and_eager() -> None:
    found = calls.run(rounds=1, repeats=1)
    through_dynamo = ["aotviz.compile, inference", "aotviz.compile, training forward"]
    assert [row.case for row in found.rows] == [case.name for case in calls.CASES] + through_dynamo
    assert all(set(row.values) == {"eager", "torch", "ours"} for row in found.rows)
    assert all(row.figure > 0 for row in found.rows)


@pytest.mark.slow
def test_a_first_compilation_is_measured_in_processes_of_their_own(one_import: None) -> None:
    (row,) = first_compile.run(1, first_compile.CASES[:1]).rows
    assert set(row.values) == {"torch", "ours"}
    assert row.figure > 0


@pytest.mark.slow
def test_a_whole_backward_is_measured_beside_torch_and_eager() -> None:
    small = "a chain of linear layers"  # torch takes half a minute for what it captures of a GPT-2
    found = compiled_autograd.run(2, [small], layers=1, batch=4, step_layers=1, backend="eager", seconds=1)
    cases = [row.case for row in found.rows]
    assert cases[:2] == [f"{small}: capture", f"{small}: a replay, beside its graph"]
    assert [case.startswith("peak memory") for case in cases[2:4]] == [True, True]
    assert [case.startswith("GPT-2, 1 layers") for case in cases[4:]] == [True, True]
    assert {frozenset(row.values) for row in found.rows[-2:]} == {frozenset({"alone", "whole"})}
    assert all(row.figure > 0 for row in found.rows)


@pytest.mark.slow
def test_calls_with_subclasses_are_measured_with_and_without_making_them() -> None:
    found = subclasses.run(rounds=1, repeats=1)
    assert len(found.rows) == 2 * len(subclasses.CASES)
    assert all(set(row.values) == {"eager", "torch", "ours", "making"} for row in found.rows)


def test_a_stubbed_graph_runs_nothing_and_keeps_its_layout() -> None:
    compiled: list[object] = []

    def counting(graph_module: object, examples: object) -> object:
        compiled.append(graph_module)
        return calls.stub(graph_module, examples)

    first, second = calls.tensors(False, False)
    function = calls.aot_function(calls.product, counting)
    once, again = function(first, second), function(second, first)
    assert once.shape == calls.SHAPE
    assert again is once, "a stub hands out the same tensors whatever it is given"
    assert len(compiled) == 1


@pytest.mark.slow
@pytest.mark.parametrize("compile", [aot_module, torch_aot_module], ids=["ours", "torch"])
def test_a_compilation_that_was_measured_is_freed(compile: Callable[..., Any]) -> None:
    step = compiling.Step(compile, *compiling.training_step(1), partition_fn=default_partition)
    with graphs_made() as graphs:
        step()
    assert graphs, "the graphs of the compilation were seen"
    step.compiled = None
    gc.collect()
    assert not list(graphs)


@pytest.mark.slow
def test_compile_time_has_a_row_a_partitioner_and_a_row_a_stage() -> None:
    whole, stages = compiling.run(rounds=1, layers=1)
    assert [row.case for row in whole.rows] == list(compiling.PARTITIONERS)
    first = [row for row in stages.rows if row.case.startswith("default partition: ")]
    assert {"metadata", "joint", "partition", "lower backward"} <= {row.case.split(": ")[1] for row in first}
    assert sum(row.figure for row in first) == pytest.approx(1)


@pytest.mark.slow
def test_a_step_of_each_model_takes_no_more_memory_than_torchs() -> None:
    found = step.run(rounds=1, layers=1, backends=["aot_eager"])
    assert [row.case.split(",")[0] for row in found.rows[::2]] == list(step_models.MODELS)
    assert all(row.interval is not None for row in found.rows[::2])
    assert [(row.case, row.figure) for row in found.rows[1::2] if row.figure > 1.001] == []


def test_the_memory_of_a_step_is_the_most_that_lives_at_one_time() -> None:
    def step_of_three_megabytes() -> None:
        for _ in range(2):
            one = torch.ones(250_000)
            del one
        kept = [torch.ones(250_000) for _ in range(3)]
        kept.clear()

    assert step.peak_bytes(step_of_three_megabytes) == pytest.approx(3e6, rel=0.01)


def test_a_target_is_missed_where_the_whole_interval_lies_above_it() -> None:
    def met(figure: float, interval: tuple[float, float] | None) -> bool | None:
        return results.Row("a case", figure, 1.0, {}, "ms", interval).met

    assert [met(1.01, None), met(1.01, (0.99, 1.03)), met(1.01, (1.004, 1.02))] == [False, True, False]


@pytest.mark.slow
def test_recording_is_measured_in_time_and_bytes() -> None:
    found = recording.run(rounds=1, layers=1)
    assert {row.case.split(": ")[1] for row in found.rows} == {"time", "bytes a node"}
    assert all(0 < row.figure < 1 for row in found.rows if row.case.endswith("time"))


def test_reading_logs_is_measured_beside_tlparse(tmp_path: Path) -> None:
    found = trace_reading.run(1, 1_000_000, ranks=3, rank_nbytes=300_000, rank_rounds=1)
    assert found.rows[0].values.keys() == {"ours", "tlparse"}
    assert found.rows[5].case == "3 ranks, against tlparse"
    assert all(row.figure > 0 for row in found.rows)


@pytest.mark.slow
def test_explaining_is_measured_from_the_log_of_a_real_job_to_the_rank_that_differs() -> None:
    found = explaining.run(1, (3, 6), ("functions",), ranks=3, rank_nbytes=300_000)
    recompiles, ranks = found.rows[:2], found.rows[2:]
    assert [row.case for row in recompiles] == ["functions, 3 recompiles", "functions, 6 recompiles"]
    assert recompiles[1].values["log, MB"] > recompiles[0].values["log, MB"] > 0
    assert [row.case for row in ranks] == ["`explain` of 3 ranks, in minutes", "`report` of 3 ranks, in minutes"]
    assert all(row.values["wall s"] > 0 and row.values["logs, MB"] > 0.9 for row in ranks)
    assert all(row.figure > 0 for row in found.rows)


def test_the_log_that_is_read_is_whole_and_each_copy_has_compilations_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "trace.log"
    size, _ = trace_reading.write_log(path, 4_000_000)
    recording = aotviz.read_trace(path, index=False)
    assert size == path.stat().st_size >= 4_000_000
    assert recording.data.logs[0].bad == []
    frames = [int(c.compile_id.split("/")[0]) for c in recording if re.fullmatch(r"\d+/\d+", c.compile_id)]
    copies = {frame // trace_reading.FRAMES_A_COPY for frame in frames}
    assert len(copies) > 1  # an export has no frame
    texts = recording.artifacts[recording.artifacts.type == "dynamo_output_graph"].text
    assert all(any(f"corpus/of{copy}/" in text for text in texts) for copy in copies)


@pytest.mark.slow
def test_a_watch_is_measured_while_compiling_and_calling() -> None:
    found = watching.run(rounds=1, layers=1, backends=["aot_eager"])
    assert [row.case for row in found.rows] == ["compiling, aot_eager", f"{watching.CALLS:,} calls"]
    assert all(set(row.values) == {"plain", "watched"} for row in found.rows)


def test_results_are_read_back_and_foreign_files_are_refused(tmp_path: Path) -> None:
    row = results.Row("a case", 0.5, 0.4, {"ours": 1.0}, "µs")
    found = results.result("name", "about", "ours / torch", [row], {"rounds": 1})
    path = results.write(found, tmp_path)
    assert results.read(path) == found
    assert row.met is False
    assert "MISSED" in results.table(found)
    path.write_text('{"name": "name"}')
    with pytest.raises(msgspec.ValidationError, match="about"):
        results.read(path)


def test_the_ratio_is_a_median_over_rounds() -> None:
    assert measure.ratio([1.0, 2.0, 90.0], [2.0, 4.0, 9.0]) == 0.5


def test_an_unknown_benchmark_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["speed"])
    assert "no benchmark is called speed" in capsys.readouterr().err


def test_results_in_the_repository_are_of_this_form() -> None:
    for path in sorted(results.FOLDER.glob("*.json")):
        assert results.read(path).name == path.stem


def test_what_a_workbench_asks_for_on_opening_is_less_than_the_whole(tmp_path: Path) -> None:
    recording = opening.make(1, tmp_path / "step.aotviz")
    sent = opening.sent(recording)
    assert 0 < sent["on opening"] < sent["whole"]


def test_the_two_graphs_of_the_diff_benchmark_differ_where_it_says() -> None:
    (compilation,) = diffing.recording(1_000).data.compilations
    before, after = (graph.target for graph in compilation.graphs)
    changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    assert changed
    assert all(i % diffing.EVERY == 0 for i in changed)
    assert compilation.graphs[0].value == compilation.graphs[1].value
