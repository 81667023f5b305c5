"""Two ranks that train: a few of the programs that `make sweep-distributed` runs in full."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_reduce

import aotviz
import aotviz.frontends.backend
from tests.distributed.ranks import EAGER, WHOLE, Ranks
from tests.parity.sections.distributed import judged, recorded
from tests.tiers import slow

SECONDS = 300.0


@pytest.fixture(scope="module")
def ranks():
    with Ranks(world=2) as two:
        yield two


@pytest.mark.every(2)
@pytest.mark.xdist_group("ranks")
@pytest.mark.parametrize(
    "program", ["DDP", "FSDP2, per layer", "FSDP2, loss and logits", "FSDP2, activation checkpointing"]
)
def test_ranks_train_as_in_eager(ranks, program):
    expected = ranks.train(program, EAGER, SECONDS)
    found = ranks.train(program, "aotviz.compile: eager", SECONDS)
    assert judged(found, expected, 0.0) == ("equal", ""), ranks.said(0)
    assert len(expected[0].steps) == 3
    first, second = map(recorded, found)
    assert first == second != []


@pytest.mark.xdist_group("ranks")
@pytest.mark.parametrize("backend", [EAGER, slow("aotviz.compile: eager")])
@pytest.mark.parametrize(
    "program",
    [
        "DDP",
        "DDP, reducer in Python",
        "FSDP2, per layer",
        *map(slow, ("FSDP2, whole", "FSDP2, accumulating", "tensor parallel", "pipeline, 1F1B", "DTensor")),
    ],
)
def test_ranks_whose_backwards_are_captured_train_as_in_eager(ranks, program, backend):
    expected = ranks.train(program, EAGER, SECONDS)
    found = ranks.train(program, f"{backend}{WHOLE}", SECONDS)
    assert judged(found, expected, 0.0) == ("equal", ""), ranks.said(0)
    captured = [one for one in aotviz.load(found[0].recording) if one.kind == "compiled autograd"]
    refused = {one.data.error.message for one in captured if one.data.error}
    if program == "DDP":  # its hooks are C++, which torch does not capture
        assert len(refused) == 1
        assert "C++ DDP Reducer" in refused.pop()
    else:
        assert captured
        assert not refused


@pytest.mark.slow  # it starts four processes anew
@pytest.mark.xdist_group("ranks")
def test_a_rank_that_fails_is_told_of_and_the_next_job_is_done(ranks):
    found = ranks.train("DDP", "no such backend", SECONDS)
    assert any("no such backend" in one.raised for one in found)
    assert all(one.raised for one in found)
    assert all(len(one.steps) == 3 and not one.raised for one in ranks.train("pipeline, GPipe", EAGER, SECONDS))
    assert ranks._processes
    ranks.kill()
    assert not ranks._processes


def test_the_recordings_of_ranks_are_one_recording(tmp_path):
    paths = []
    for rank in range(2):
        with aotviz.record() as recording:
            aotviz.compile(lambda x: (x * 2).sin(), backend="eager")(_ones(rank))
        recording.save(tmp_path / f"rank-{rank}.aotviz")
        paths.append(tmp_path / f"rank-{rank}.aotviz")
    both = aotviz.load(paths)
    assert [one.id for one in both] == ["rank 0: 0", "rank 1: 0"]
    assert [one.rank for one in both] == [0, 1]
    assert (
        both["rank 1: 0"].graph("inference").nodes["target"].tolist()
        == aotviz.load(paths[1])[0].graph("inference").nodes["target"].tolist()
    )
    both.save(tmp_path / "both.aotviz")
    assert aotviz.load(tmp_path / "both.aotviz").data.strings == both.data.strings


def _ones(rank):
    return torch.ones(2 + rank)


def side_by_side(folder, *programs):
    """What each rank recorded of its program, as one recording: a program is called with `compiled(function)`."""
    paths = []
    for rank, program in enumerate(programs):
        torch._dynamo.reset()
        with aotviz.record() as recording:
            program(lambda function: torch.compile(function, backend="aotviz_eager"))
        paths.append(folder / f"rank{rank}.aotviz")
        recording.save(paths[-1])
    torch._dynamo.reset()
    return aotviz.load(paths)


def test_ranks_that_recorded_the_same_have_no_differences(tmp_path):
    def step(compiled):
        compiled(lambda x: (x * 2).sin())(torch.ones(3, requires_grad=True)).sum().backward()

    both = side_by_side(tmp_path, step, step)
    assert len(both.rank_differences()) == 0
    assert len(both) == 2


def test_the_recordings_of_ranks_are_compared(tmp_path):
    def forward(x):
        return (x * 2).sin()

    def other(x):
        return x.exp()

    def first(compiled):
        compiled(forward)(torch.ones(3, requires_grad=True))

    def second(compiled):
        compiled(lambda x: x.cos())(torch.ones(2))  # so that Dynamo's numbers differ
        changed = compiled(type(forward)(other.__code__, globals(), "forward"))
        changed(torch.ones(3, requires_grad=True))

    table = side_by_side(tmp_path, first, second).rank_differences()
    assert set(table.kind) == {"compilation"}
    assert table.why.str.contains(r"Rank 1 compiled `<lambda>` \(.*test_distributed\.py:\d+\), rank 0 did not").any()

    def scaled_by(factor):
        def forward(x):
            return (x * factor).sin()

        return lambda compiled: compiled(forward)(torch.ones(3, requires_grad=True))

    (row,) = side_by_side(tmp_path, scaled_by(2), scaled_by(3)).rank_differences().to_dict("records")
    assert (row["kind"], row["compilations"]) == ("graph", ("rank 0: 0", "rank 1: 0"))
    assert "the joint graph differs: rank 0 has `mul = aten.mul.Tensor(primals_1, 2)`" in row["why"]


@pytest.fixture
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.xdist_group("ranks")
def test_other_collectives_in_the_recordings_of_ranks_are_told_first(tmp_path, one_rank):
    def rank_of(count):
        def reduce_loss(x):
            for _ in range(count):
                x = all_reduce(x.sin(), "sum", dist.group.WORLD)
            return x

        return lambda compiled: compiled(reduce_loss)(torch.ones(3))

    both = side_by_side(tmp_path, rank_of(1), rank_of(2))
    first = both.rank_differences().iloc[0]
    assert (first.kind, first.function) == ("collectives", "reduce_loss")
    assert "rank 0 runs `all_reduce`; rank 1 runs `all_reduce`, `all_reduce`" in first.why
    assert "different collectives" in " ".join(str(both.explain()).split())
