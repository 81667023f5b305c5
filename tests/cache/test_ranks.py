"""Ranks that train find what the ranks of an earlier job compiled."""

from __future__ import annotations

from typing import Any

import pytest

import aotviz
from tests.distributed.ranks import EAGER, Found, Ranks
from tests.parity.sections.distributed import judged

FOUND = [
    *("DDP", "DDP, several buckets", "DDP, no_sync", "FSDP2, per layer", "FSDP2, activation checkpointing"),
    *("tensor parallel", "DTensor"),
]
SECONDS = 300.0


@pytest.fixture(scope="module", params=[pytest.param("two jobs", marks=pytest.mark.slow)])
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[Found]]]:
    """By program: what the ranks of three jobs found. The first is not compiled, the others share a cache."""
    found: dict[str, list[list[Found]]] = {program: [] for program in FOUND}
    with Ranks(2, tmp_path_factory.mktemp("cache")) as ranks:
        for program, results in found.items():
            results += [ranks.train(program, backend, SECONDS) for backend in (EAGER, "aotviz.compile: eager")]
        ranks.kill()
        for program, results in found.items():
            results.append(ranks.train(program, "aotviz.compile: eager", SECONDS))
        # The ranks' files go with their folder.
        return {program: [[_with_lookups(one) for one in job] for job in results] for program, results in found.items()}


def _with_lookups(found: Found) -> Any:
    lookups = aotviz.load(found.recording).cache_lookups if found.recording else None
    return found, [] if lookups is None else list(zip(lookups["outcome"], map(str, lookups["reason"]), strict=True))


@pytest.mark.parametrize("program", FOUND)
def test_both_jobs_train_as_in_eager(jobs: Any, program: str) -> None:
    eager, first, second = ([found for found, _ in job] for job in jobs[program])
    assert len(eager[0].steps) == 3
    assert judged(first, eager, 0.0) == ("equal", "")
    assert judged(second, eager, 0.0) == ("equal", "")


@pytest.mark.parametrize("program", FOUND)
def test_each_rank_of_the_second_job_finds_what_the_first_compiled(jobs: Any, program: str) -> None:
    _, first, second = jobs[program]
    for (_, before), (_, now) in zip(first, second, strict=True):
        assert len(now) == len(before) > 0
        assert {outcome for outcome, _ in now} == {"hit"}, now


def test_each_part_of_a_graph_that_ddp_splits_is_found_by_itself(jobs: Any) -> None:
    assert all(len(lookups) > 1 for job in jobs["DDP, several buckets"][1:] for _, lookups in job)
