"""Jobs of two ranks, as a program: `python -m tests.cures.jobs_of_ranks FOLDER` leaves the logs of JOB in FOLDER/JOB.

Every rank is a fork of this process, which has imported torch. The functions only multiply matrices, for which Inductor
generates no C++.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config
import torch._inductor.debug
import torch.distributed as dist

UNEVEN, EVEN, APART, FIRST, HASTY, PATIENT = "uneven", "even", "apart", "first", "hasty", "patient"
SKIPS, NEUTRAL = "skips", "neutral"
PRINTS, COMPUTES, OUTSIDE = "prints", "computes", "outside"
JOBS = (UNEVEN, EVEN, APART, FIRST, HASTY, PATIENT, SKIPS, NEUTRAL, PRINTS, COMPUTES, OUTSIDE)
COMPILES = 3.0  # seconds


@torch.compile
def step(x: torch.Tensor) -> torch.Tensor:
    return x @ x.T


@torch.compile
def square(x: torch.Tensor) -> torch.Tensor:
    return x @ x


@torch.compile
def cube(x: torch.Tensor) -> torch.Tensor:
    return x @ x @ x


@torch.compile
def evaluate(x: torch.Tensor) -> torch.Tensor:
    return x.T @ x


@torch.compile
def reduced(x: torch.Tensor, twice: bool) -> torch.Tensor:
    y = x @ x
    dist.all_reduce(y)
    if twice:
        dist.all_reduce(y)
    return y @ x


@torch.compile
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x @ x.T


@torch.compile(backend="aot_eager")
def losses(text: torch.Tensor, image: torch.Tensor | None) -> torch.Tensor:
    total = text.square().mean()
    dist.all_reduce(total)
    if image is not None:
        shown = image.square().mean()
        dist.all_reduce(shown)
        total = total + shown
    return total


def without_an_image(rank: int, neutral: bool) -> None:
    """Rank 1 has no image in its second batch, and so no second collective, or takes zeros in place of it."""
    image = torch.ones(2, 3)
    losses(torch.ones(3), image)
    if rank == 0:
        losses(torch.ones(3), image)
        return
    losses(torch.ones(3), torch.zeros(2, 3) if neutral else None)
    if not neutral:
        dist.all_reduce(torch.ones(()))  # the partner of rank 0's second one


def without_caches(rank: int, uneven: bool) -> None:
    """Rank 1 differs in sizes, in the order of two functions, in a collective and in a function that it alone calls, or
    in nothing."""
    torch.compiler.config.force_disable_caches = True
    other = uneven and rank == 1
    with torch._inductor.debug.record_and_log_graph_execution_order():
        step(torch.ones(4, 3))
        step(torch.ones(5 if other else 4, 3))
        doubled(torch.ones(5 if other else 4, 3))
        for run in (cube, square) if other else (square, cube):
            run(torch.ones(3, 3))
    reduced(torch.ones(3, 3), other)
    if other:
        evaluate(torch.ones(3, 3))
    if uneven and rank == 0:
        dist.all_reduce(torch.ones(3, 3))  # the partner of rank 1's second one


def with_caches(rank: int, first: bool) -> None:
    """Rank 0 compiles before rank 1, in the same folder, or each has a folder of its own."""
    if not first:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] += str(rank)
    for turn in range(2):
        if turn == rank:
            square(torch.ones(3, 3))
        dist.barrier()


class Watched(torch.nn.Module):
    """Rank 0 keeps an eye on what it computes, within its forward or after it."""

    def __init__(self, rank: int, job: str) -> None:
        super().__init__()
        self.rank, self.prints, self.computes = rank, job == PRINTS, job == COMPUTES

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x @ x
        if self.rank == 0 and self.prints:
            print(y.shape)
        if self.computes and self.rank == 0:
            y.mean()
        return y @ x


def watched_on_rank_0(rank: int, job: str) -> None:
    model = Watched(rank, job)
    y = torch.compile(model, backend="aot_eager")(torch.ones(3, 3))
    if rank == 0:
        print(y.shape)


def slowly(graph: Any, inputs: Any) -> Any:
    time.sleep(COMPILES)
    return graph


@torch.compile(backend=slowly)
def validate(x: torch.Tensor) -> torch.Tensor:
    return x @ x.T


def rank_0_validates(rank: int, patience: float) -> None:
    """Rank 0 alone compiles something, for which rank 1 waits."""
    group = dist.new_group(timeout=timedelta(seconds=patience))
    if rank == 0:
        validate(torch.ones(3, 3))
    dist.barrier(group=group)


def run_rank(job: str, rank: int, folder: Path) -> None:
    os.environ |= {"TORCH_TRACE": str(folder / job), "TORCHINDUCTOR_CACHE_DIR": str(folder / f"cache-{job}")}
    torch._logging._internal.LOG_TRACE_HANDLER = None
    torch._logging._internal._init_logs()
    torch._inductor.config.log_tlparse = True
    store = dist.FileStore(str(folder / f"store-{job}"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    if job in (UNEVEN, EVEN):
        without_caches(rank, job == UNEVEN)
    elif job in (SKIPS, NEUTRAL):
        without_an_image(rank, job == NEUTRAL)
    elif job in (PRINTS, COMPUTES, OUTSIDE):
        watched_on_rank_0(rank, job)
    elif job in (HASTY, PATIENT):
        rank_0_validates(rank, COMPILES / 3 if job == HASTY else 20 * COMPILES)
    else:
        with_caches(rank, job == FIRST)
    dist.barrier()


def statuses(children: list[int]) -> list[bool]:
    """Which ranks failed. As a launcher does, it ends the others when one has failed."""
    failed: list[bool] = []
    while children:
        child, status = os.wait()
        children.remove(child)
        failed.append(status != 0 and True not in failed)
        for other in children if failed[-1] else ():
            os.kill(other, signal.SIGKILL)
    return failed


def main(folder: Path) -> int:
    failed = 0
    for job in JOBS:
        (folder / job).mkdir()
        children = []
        for rank in range(2):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    run_rank(job, rank, folder)
                    status = 0
                finally:
                    sys.stderr.flush()
                    os._exit(status)
            children.append(child)
        failed += sum(statuses(children)) > (job == HASTY)
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
