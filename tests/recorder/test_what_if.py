"""Another cut of the same joint graph, beside the one that runs."""

from __future__ import annotations

import gc

import pytest
import torch

import aotviz
from aotviz.ir.partition_functions import named
from aotviz.reading.recording import Compilation
from aotviz.recording import progress

MIN_CUT = "min_cut_rematerialization_partition"


def chain(x: torch.Tensor) -> torch.Tensor:
    return x.sin().cos().sum()


def compiled(**options: object):
    f = aotviz.compile(chain, backend="eager", **options)
    f(torch.ones(8, requires_grad=True))
    return f


def kept(compilation: Compilation) -> int:
    return int(compilation.saved_tensors.saved_bytes.sum())


def test_another_partitioner_keeps_less_and_computes_again() -> None:
    f = compiled(partition_fn=named("default_partition"))
    here = f.recording[0]
    there = here.what_if(partition_fn=MIN_CUT)
    assert (kept(here), kept(there)) == (64, 32)
    assert (len(here.recomputed), len(there.recomputed)) == (0, 1)
    assert there.graph("backward").nodes.name.tolist() != here.graph("backward").nodes.name.tolist()


def test_what_it_shows_is_what_compiling_so_would_run() -> None:
    f = compiled()
    there = f.recording[0].what_if(partition_fn=MIN_CUT)
    really = aotviz.compile(chain, backend="eager", partition_fn=named(MIN_CUT))
    really(torch.ones(8, requires_grad=True))
    assert there.saved_tensors.name.tolist() == really.recording[0].saved_tensors.name.tolist()
    assert there.graph("backward").code == really.recording[0].graph("backward").code


def test_a_memory_budget_is_kept() -> None:
    f = aotviz.compile(lambda x, w: ((x @ w).relu() @ w).relu().sum(), backend="eager", partition_fn=named(MIN_CUT))
    f(torch.ones(8, 8, requires_grad=True), torch.ones(8, 8, requires_grad=True))
    here = f.recording[0]
    assert kept(here.what_if(memory_budget=0.0)) <= kept(here.what_if(memory_budget=1.0))
    assert len(here.what_if(memory_budget=0.0).recomputed) > len(here.what_if(memory_budget=1.0).recomputed)


def test_the_program_and_its_recording_stay_as_they_are() -> None:
    f = compiled()
    x = torch.ones(8, requires_grad=True)
    before = f.recording[0].graph("joint").code
    f.recording[0].what_if(partition_fn=MIN_CUT)
    assert len(f.recording) == 1
    assert f.recording[0].graph("joint").code == before
    f(x).backward()
    (wanted,) = torch.autograd.grad(chain(x), x)
    assert torch.allclose(x.grad, wanted)


def test_an_inference_graph_says_that_it_keeps_nothing() -> None:
    f = aotviz.compile(chain, backend="eager")
    f(torch.ones(8))
    with pytest.raises(LookupError, match="an inference graph, which saves nothing"):
        f.recording[0].what_if(memory_budget=0.5)


def test_a_function_that_is_gone_is_missed_by_name() -> None:
    with aotviz.record() as recording:
        f = compiled()
    del f
    torch._dynamo.reset()  # which keeps the programs of each function
    gc.collect()
    with pytest.raises(LookupError, match="The function of this recording no longer exists"):
        recording[0].what_if(partition_fn=MIN_CUT)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"partition_fn": "best"}, "no partitioner 'best'"), ({"memory_budget": 2}, "between 0 and 1, not 2")],
)
def test_bad_wishes_are_named(changes: dict[str, object], message: str) -> None:
    f = compiled()
    with pytest.raises(ValueError, match=message):
        f.recording[0].what_if(**changes)


def test_who_follows_compilations_is_not_told_of_the_answer() -> None:
    f = compiled()
    compilation = f.recording[0]
    heard: list[object] = []
    progress.listen(heard.append)
    try:
        before = {one.progress().number for one in progress.compilations()}
        compilation.what_if(partition_fn="default_partition")
        assert heard == []
        assert {one.progress().number for one in progress.compilations()} <= before
    finally:
        progress.unlisten(heard.append)
