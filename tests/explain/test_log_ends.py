"""A process that is killed while it compiles leaves a log that does not say why: `explain` says where it ends."""

from __future__ import annotations

import os
import re
import textwrap
from pathlib import Path

import pytest
import torch
import torch._functorch.config

import aotviz
from aotviz.explain import answers, key_parts
from tests import corpus, processes
from tests.explain.logs import logged, recording

KILLED = """
    import os, signal, sys, torch

    def backend(graph, inputs):
        if any(getattr(one, "ndim", 0) == 2 for one in inputs):
            {how}
        return graph

    @torch.compile(backend=backend)
    def step(x):
        return x.sin() + 1

    step(torch.ones(3))
    step(torch.ones(3, 3))
"""


def run(folder: Path, how: str) -> str:
    code = folder / "job.py"
    code.write_text(textwrap.dedent(KILLED.format(how=how)))
    processes.run([code], os.environ | {"TORCH_TRACE": str(folder / "log")})
    return str(aotviz.read_trace(folder / "log", index=False).explain())


def test_a_killed_process_is_told_with_the_compilation_and_the_step_in_which_it_died(tmp_path: Path) -> None:
    told = " ".join(run(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)").split())
    assert "- The log ends in the middle of `step [0/1]`, in `backend_compile`. The process was" in told
    assert f"{tmp_path}/job.py:9" in told


def test_a_compilation_that_raised_did_not_end_in_the_middle(tmp_path: Path) -> None:
    told = run(tmp_path, "raise ValueError('not supported')")
    assert "failed because the backend" in told
    assert "in the middle" not in told


@pytest.mark.parametrize("name", corpus.names())
def test_no_log_of_a_whole_run_ends_in_the_middle(name: str) -> None:
    assert not [text for text in recording(name).explain().sentences if "in the middle of" in text]


def test_a_log_that_was_cut_is_told_to_end_where_it_was_cut(tmp_path: Path) -> None:
    (log,) = corpus.folder("training").iterdir()
    text = log.read_text()
    at = text.index('"name": "Scheduler.codegen"', text.index('"frame_compile_id": 1'))
    (tmp_path / "trace.log").write_text(text[: text.index("\nV", at) + 1])
    first = aotviz.read_trace(tmp_path, index=False).explain().points[0]
    assert "in the middle of `forward [0/1]`, while its kernels were generated and built (`Scheduler.codegen`)" in (
        first.text
    )
    assert first.failed


def test_of_two_ranks_the_one_whose_log_ends_is_first_and_the_other_is_not_said_to_wait(tmp_path: Path) -> None:
    def program() -> None:
        step = torch.compile(lambda x, n: x * n, backend="aot_eager")
        step(torch.ones(3), 2)
        step(torch.ones(3), 3)

    torch._dynamo.reset()
    logged(program, tmp_path)
    text, job = (tmp_path / "trace.log").read_text(), tmp_path / "job"
    job.mkdir()
    cut = text.index("\nV", text.index("create_aot_dispatcher_function")) + 1
    (job / "dedicated_log_torch_trace_rank_0_a.log").write_text(text[:cut])
    (job / "dedicated_log_torch_trace_rank_1_b.log").write_text(text)
    points = aotviz.read_trace(job, index=False).explain().points
    assert points[0].text.startswith("The log of rank 0 ends in the middle of `<lambda> [0/0]`, in AOTAutograd")
    assert not [point for point in points if "next collective" in point.text]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("run", ["backward", "no backward", "inference"])
def test_a_training_that_never_ran_backward_is_told_so(tmp_path: Path, backend: str, run: str) -> None:
    def program() -> None:
        torch._dynamo.reset()
        x = torch.ones(3, requires_grad=run != "inference")
        with torch._functorch.config.patch(enable_autograd_cache=False):  # of a hit, torch does not log the backward
            result = torch.compile(torch.sin, backend=backend)(x)
        if run == "backward":
            result.sum().backward()

    first = logged(program, tmp_path).explain().sentences[0]
    assert "This log shows no fault in compiling" in first
    assert (run == "no backward") == ("or the job ended before it" in first)


def test_a_backward_that_takes_sizes_is_compiled_at_once_and_nothing_is_said_of_it(tmp_path: Path) -> None:
    def program() -> None:
        torch._dynamo.reset()
        layer = torch.nn.Linear(3, 3)
        torch.compile(layer, backend="aot_eager", dynamic=True)(torch.ones(4, 3)).sum().backward()

    explained = logged(program, tmp_path).explain()
    assert "This log shows no fault in compiling" in explained.sentences[0]
    assert "no backward" not in str(explained).lower()


def test_settings_of_aotautograd_are_compared(tmp_path: Path) -> None:
    facts = []
    for budget in (0.5, 1.0):
        folder = tmp_path / str(budget)
        folder.mkdir()

        def program(budget: float = budget) -> None:
            torch._dynamo.reset()
            with torch._functorch.config.patch(activation_memory_budget=budget):
                torch.compile(torch.sin, backend="aot_eager")(torch.ones(3, requires_grad=True))

        facts.append(answers.facts_of(logged(program, folder)))
    first, second = (key_parts.settings(one, 0) for one in facts)
    assert {name for name in first if first[name] != second[name]} == {
        "torch._functorch.config.activation_memory_budget"
    }


@pytest.mark.parametrize("backend", ["aot_eager", "aotviz_eager"])
def test_a_watch_in_which_nothing_went_wrong_says_so_first_and_what_took_the_time(backend: str) -> None:
    torch._dynamo.reset()
    with aotviz.watch() as watch:
        torch.compile(torch.sin, backend=backend)(torch.ones(3))
    first, second = watch.explain().sentences
    assert first.startswith("Nothing went wrong while this was watched: no graph broke")
    spent = watch.overview().times
    assert spent["AOTAutograd"] > 0  # of our backend, its own stages
    assert re.search(rf"of compiling: .*{'backend' if backend == 'aotviz_eager' else 'AOTAutograd'} \d", second)
    assert watch.explain().title.startswith("1 compilation of 1 function")
    took = next(row.seconds for row in watch.timeline().itertuples() if row.depth == 0)
    assert watch.overview().seconds <= 1.1 * took  # the two records of our backend are counted once
