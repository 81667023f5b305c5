"""Whole compilations with one cache: many processes, of which some are killed, and a server that is killed."""

from __future__ import annotations

import json
import random
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from aotviz.cache.store import Store
from tests import processes
from tests.cache.compilations import PROGRAMS, work
from tests.cache.redis_server import Server

PROCESSES = 8
NUMBERS = range(PROGRAMS)


def lines(told: Path) -> list[dict[str, Any]]:
    """What a process has told; the last line of one that was killed may be cut."""
    whole = told.read_text().rpartition("\n")[0] if told.exists() else ""
    return [json.loads(line) for line in whole.splitlines()]


def finished(process: BaseProcess, told: Path) -> list[dict[str, Any]]:
    assert processes.wait(process) == 0
    return lines(told)


@pytest.mark.slow
def test_processes_that_compile_and_are_killed_leave_a_sound_cache(tmp_path: Path) -> None:
    folder, chance = str(tmp_path / "cache"), random.Random(0)
    running = []
    for number in range(PROCESSES):
        order = chance.sample(NUMBERS, PROGRAMS)
        running.append(
            (processes.start(work, folder, tmp_path / f"{number}.jsonl", order), tmp_path / f"{number}.jsonl")
        )
    killed, living = running[: PROCESSES // 2], running[PROCESSES // 2 :]
    for after, (process, told) in enumerate(killed, 2):
        while len(lines(told)) < after and process.is_alive():
            process.join(0.01)
        process.kill()
        process.join()
        assert process.exitcode == -9
    found = [line for process, told in living for line in finished(process, told)]
    found += [line for _, told in killed for line in lines(told)]
    last = finished(processes.start(work, folder, tmp_path / "last.jsonl", NUMBERS), tmp_path / "last.jsonl")
    assert [line for line in [*found, *last] if not line["equal"] or line["said"]] == []
    assert {outcome for line in found for outcome in line["outcomes"]} == {"hit", "miss"}
    assert [line["outcomes"] for line in last] == [["hit"]] * PROGRAMS
    checked = Store(Path(folder)).verify()
    assert (checked.entries, checked.damaged) == (PROGRAMS, [])


@pytest.mark.slow
def test_processes_share_by_a_server_and_its_end_costs_one_warning(server: Server, tmp_path: Path) -> None:
    numbers = range(8)

    def begun(name: str, **more: Any) -> tuple[BaseProcess, Path]:
        told = tmp_path / f"{name}.jsonl"
        return processes.start(work, str(tmp_path / name), told, numbers, server.url, **more), told

    first, second = (finished(*begun(name)) for name in ("first", "second"))
    assert [line["outcomes"] for line in first] == [["miss"]] * len(numbers)
    assert [line["outcomes"] for line in second] == [["hit"]] * len(numbers)
    go_on = processes.event()
    process, told = begun("third", go_on=go_on)
    while len(lines(told)) < len(numbers) // 2 and process.is_alive():
        process.join(0.01)
    server.kill()
    go_on.set()
    third = finished(process, told)
    assert [line["outcomes"] for line in third] == [["hit"]] * 4 + [["miss"]] * 4
    assert all(line["equal"] for line in [*first, *second, *third])
    assert [line["said"] for line in [*first, *second] if line["said"]] == []
    (said,) = [one for line in third for one in line["said"]]
    assert "is not used" in said
    assert "\n" not in said
    server.start()
