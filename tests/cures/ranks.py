"""Ranks that differ, and ranks that do not: two processes with gloo, whose logs are read (jobs_of_ranks.py)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import aotviz
from aotviz.explain.cures import cache_cures, rank_cures
from aotviz.explain.cures.registry import Cure
from aotviz.reading.recording import Recording
from tests.cures.jobs_of_ranks import (
    APART,
    COMPUTES,
    EVEN,
    FIRST,
    HASTY,
    JOBS,
    NEUTRAL,
    OUTSIDE,
    PATIENT,
    PRINTS,
    SKIPS,
    UNEVEN,
)
from tests.cures.programs import Calls, Effect, program

ROOT = Path(__file__).resolve().parents[2]


@cache
def jobs() -> dict[str, Recording]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.cures.jobs_of_ranks", folder]
        environment = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, cwd=ROOT, env=environment, timeout=300, capture_output=True)
        return {job: aotviz.read_trace(Path(folder) / job, index=False) for job in JOBS}


def of_ranks(fault: str, cure: Cure, says: str, *reports: str) -> Callable[[Calls], Calls]:
    """For a function that says which job has the fault, and which follows the advice."""

    def told(calls: Calls, cured: bool) -> Effect:
        recording = jobs()[str(calls(cured))]
        fixes = [*recording.rank_differences().fix, *(point.fix for point in recording.explain().points)]
        return Effect(int(any(fix and cure in fix.cures for fix in fixes)), "jobs with this fault", recording)

    return program(fault, cure, says, reports, told, first=False)


@of_ranks("a rank that runs one collective more", rank_cures.HANG, "Make the condition that selects them the same")
def one_collective_more(cured: bool) -> object:
    return EVEN if cured else UNEVEN


@of_ranks("a rank that has nothing for a collective", rank_cures.SKIPPED, "such as zeros of the usual shape")
def a_skipped_collective(cured: bool) -> object:
    return NEUTRAL if cured else SKIPS


@of_ranks(
    "a rank that calls two functions in another order",
    rank_cures.ORDER,
    "Call the compiled functions in the same order on all ranks",
)
def another_order(cured: bool) -> object:
    return EVEN if cured else UNEVEN


@of_ranks(
    "a rank with a batch of another size",
    rank_cures.SAME,
    "Give all ranks inputs with the same properties",
    "pytorch/pytorch#155558",
)
def another_batch_on_a_rank(cured: bool) -> object:
    return EVEN if cured else UNEVEN


@of_ranks(
    "a line that only one rank reaches and that breaks its graph",
    rank_cures.SOME_BREAK,
    "take this line, with its condition, out of the compiled function",
)
def a_print_on_a_rank(cured: bool) -> object:
    return OUTSIDE if cured else PRINTS


@of_ranks(
    "a rank that computes more, as its number says",
    rank_cures.CONDITION,
    "take what only some ranks do, with its condition, out of the compiled function",
)
def a_branch_on_the_rank(cured: bool) -> object:
    return OUTSIDE if cured else COMPUTES


@of_ranks("a function that one rank calls", rank_cures.CALLED, "Call `evaluate` on all ranks, or on none")
def a_function_of_one_rank(cured: bool) -> object:
    return EVEN if cured else UNEVEN


@of_ranks(
    "a cache that only some ranks find their programs in",
    rank_cures.ONE_CACHE,
    "or none",
    "pytorch/pytorch#193043",
    "karpathy/nanochat#722",
)
def a_cache_of_one_rank(cured: bool) -> object:
    return EVEN if cured else FIRST


@of_ranks(
    "processes that compile the same with caches apart",
    cache_cures.ONE_FIRST,
    "use the same TORCHINDUCTOR_CACHE_DIR for all processes",
    "pytorch/pytorch#96152",
)
def caches_apart(cured: bool) -> object:
    return FIRST if cured else APART


@of_ranks(
    "a function that one rank compiles while the other waits",
    rank_cures.ALONE,
    "give the group a longer timeout: `torch.distributed.new_group(timeout=timedelta(minutes=30))`",
)
def a_rank_that_does_not_wait(cured: bool) -> object:
    return PATIENT if cured else HASTY
