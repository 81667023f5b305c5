"""One rank found its program in the cache and another did not: executed with two processes, and with the cure."""

from __future__ import annotations

import json
import os
from pathlib import Path

import aotviz
from aotviz.explain.cures import rank_cures
from aotviz.reading.recording import Recording
from tests import processes

RANK = """
import json, sys, time
import torch, torch.distributed as dist
import aotviz

rank, world, folder, cache, late = sys.argv[1:]
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=int(rank), world_size=int(world))

def step(x):
    return (x.sin() * 2).cos()

total = aotviz.compile(step, backend="eager", cache=cache)(torch.ones(3))
time.sleep(float(late) * int(rank))
times = [time.monotonic()]
dist.all_reduce(total)
times.append(time.monotonic())
json.dump(times, open(f"{folder}/{rank}.json", "w"))
dist.destroy_process_group()
"""


def run(folder: Path, caches: list[str], late: float = 0) -> tuple[Recording, list[list[float]]]:
    """What the ranks logged, and when each came to a collective behind the compiled function and went on."""
    folder.mkdir()
    (folder / "rank.py").write_text(RANK)
    environment = os.environ | {"TORCH_TRACE": str(folder / "log")}
    ranks = [[folder / "rank.py", number, len(caches), folder, cache, late] for number, cache in enumerate(caches)]
    done = processes.at_once(ranks, environment)
    assert [one.returncode for one in done] == [0] * len(caches), done
    times = [json.loads((folder / f"{number}.json").read_text()) for number in range(len(caches))]
    return aotviz.read_trace(folder / "log", index=False), times


def test_a_rank_that_found_its_program_waits_for_one_that_did_not_and_one_cache_cures_it(tmp_path: Path) -> None:
    warm, cold = str(tmp_path / "warm"), str(tmp_path / "cold")
    run(tmp_path / "first", [warm, warm])
    apart, times = run(tmp_path / "apart", [warm, cold], late=0.5)
    (point,) = (point for point in apart.explain().points if "in the cache" in point.text and point.kind == "ranks")
    assert point.text.startswith(
        "Rank 0 found `step` in the cache, rank 1 did not and had to compile. Rank 0 waits for"
    )
    assert "at the next collective" in point.text
    assert rank_cures.ONE_CACHE in point.fix.cures
    (_, went_on), (arrived, _) = times
    assert went_on >= arrived  # rank 0 waited until rank 1 was there, as the sentence says
    one, _ = run(tmp_path / "one", [warm, warm])
    assert not any("did not and had to compile" in text for text in one.explain().sentences)
    assert {row.outcome for row in one.cache_misses().itertuples()} == {"hit"}
