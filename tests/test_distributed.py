"""Two ranks that train: a few of the programs that `make sweep-distributed` runs in full."""

from __future__ import annotations

import pytest

import aotviz
from tests.distributed.ranks import EAGER, Ranks
from tests.parity.sections.distributed import judged, recorded

SECONDS = 300.0


@pytest.fixture(scope="module")
def ranks():
    with Ranks(world=2) as two:
        yield two


@pytest.mark.xdist_group("ranks")
@pytest.mark.parametrize("program", ["DDP", "FSDP2, per layer", "FSDP2, loss and logits"])
def test_ranks_train_as_in_eager(ranks, program):
    expected = ranks.train(program, EAGER, SECONDS)
    found = ranks.train(program, "aotviz_eager", SECONDS)
    assert judged(found, expected, 0.0) == ("equal", ""), ranks.said(0)
    assert len(expected[0].steps) == 3
    first, second = map(recorded, found)
    assert first == second != []


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
    import torch

    return torch.ones(2 + rank)
