"""Eight processes share a store, and some of them are killed at any moment: what one reported saved is there, whole."""

from __future__ import annotations

import random
import selectors
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aotviz.cache.store import Store
from tests.cache import worker
from tests.tiers import slow

PROCESSES = 8
LINES_A_LIFE = 60  # about as many operations as a process does before it is killed


@pytest.mark.parametrize("operations", [1_000, slow(10_000)])
def test_nothing_that_was_reported_saved_is_lost_or_torn(operations: int, tmp_path: Path) -> None:
    chance = random.Random(operations)
    folder = tmp_path / "cache"
    errors = (tmp_path / "errors").open("w+b")
    selector = selectors.DefaultSelector()
    lines: list[str] = []
    lives = 0

    def start() -> None:
        nonlocal lives
        lives += 1
        command = [sys.executable, "-m", "tests.cache.worker", str(folder), str(lives)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout is not None
        selector.register(process.stdout, selectors.EVENT_READ, process)

    def kill(process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        selector.unregister(process.stdout)
        process.send_signal(signal.SIGKILL)
        # What it said before it ended counts, but for half a line.
        lines.extend(line.decode() for line in process.stdout if line.endswith(b"\n"))
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()

    for _ in range(PROCESSES):
        start()
    while len(lines) < operations:
        for event, _ in selector.select():
            process = event.data
            line = process.stdout.readline()
            assert line.endswith(b"\n"), (tmp_path / "errors").read_text()
            lines.append(line.decode())
            if chance.random() < 1 / LINES_A_LIFE:
                kill(process)
                start()
    for event in list(selector.get_map().values()):
        kill(event.data)

    errors.seek(0)
    assert errors.read() == b""
    assert lives > PROCESSES + operations / LINES_A_LIFE / 2, "too few were killed"
    store = Store(folder)
    reported = {tuple(line.split(" ", 3)[1:]) for line in lines if not line.startswith("found")}
    for key, variant, name in reported:
        kept = {entry.variant: entry for entry in store.entries(key)}
        assert store.part(kept[variant], name.rstrip()) == worker.data(key, variant, name.rstrip())
    assert len(reported) > operations / 10
    assert store.verify().damaged == []
    assert not list(folder.glob("*.damaged"))
