"""Several processes share a store, and are killed at any moment: what one reported saved is there, whole."""

from __future__ import annotations

import random
import selectors
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotviz.cache.store import Store
from tests.cache import worker
from tests.tiers import slow

PROCESSES = 8
LINES_A_LIFE = 60  # about as many operations as a process does before it is killed

Process = subprocess.Popen[bytes]


class Workers:
    """Processes that run tests/cache/worker.py, and what they said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self.started = 0
        self._errors = folder.with_suffix(".errors").open("w+b")
        self._selector = selectors.DefaultSelector()

    def start(self, *options: str) -> None:
        self.started += 1
        command = [sys.executable, "-m", "tests.cache.worker", str(self.folder), str(self.started), *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._errors)
        assert process.stdout is not None
        self._selector.register(process.stdout, selectors.EVENT_READ, process)

    def speak(self) -> Iterator[Process]:
        """Wait until some have written a line, and give each of them after it has been read."""
        for event, _ in self._selector.select():
            process: Process = event.data
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.endswith(b"\n"), self.errors()
            self.lines.append(line.decode().rstrip())
            yield process

    def kill(self, process: Process) -> None:
        assert process.stdout is not None
        self._selector.unregister(process.stdout)
        process.send_signal(signal.SIGKILL)
        # What it said before it ended counts, but for half a line.
        self.lines.extend(line.decode().rstrip() for line in process.stdout if line.endswith(b"\n"))
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()

    def kill_all(self) -> None:
        for event in list(self._selector.get_map().values()):
            self.kill(event.data)

    def end(self) -> None:
        """Leave nothing behind, even after a test that failed."""
        for event in self._selector.get_map().values():
            event.data.kill()
            event.data.wait()
        self._selector.close()
        self._errors.close()

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    made = Workers(tmp_path / "cache")
    yield made
    made.end()


@pytest.mark.parametrize("operations", [1_000, slow(10_000)])
def test_nothing_that_was_reported_saved_is_lost_or_torn(operations: int, workers: Workers) -> None:
    chance = random.Random(operations)
    for _ in range(PROCESSES):
        workers.start()
    while len(workers.lines) < operations:
        for process in workers.speak():
            if chance.random() < 1 / LINES_A_LIFE:
                workers.kill(process)
                workers.start()
    workers.kill_all()

    assert workers.errors() == ""
    assert workers.started > PROCESSES + operations / LINES_A_LIFE / 2, "too few were killed"
    store = Store(workers.folder)
    reported = {tuple(line.split(" ", 3)[1:]) for line in workers.lines if line != "found"}
    for key, variant, name in reported:
        kept = {entry.variant: entry for entry in store.entries(key)}
        assert store.part(kept[variant], name) == worker.data(key, variant, name)
    assert len(reported) > operations / 10
    assert store.verify().damaged == []
    assert not list(workers.folder.glob("*.damaged"))


@pytest.mark.parametrize("deletions", [15, slow(150)])
def test_a_folder_deleted_again_and_again_gives_nothing_wrong(deletions: int, workers: Workers) -> None:
    for _ in range(4):
        workers.start("--tolerant")
    for deletion in range(deletions):
        while len(workers.lines) < 40 * (deletion + 1):
            for _ in workers.speak():
                pass
        shutil.rmtree(workers.folder, ignore_errors=True)
    workers.kill_all()
    assert workers.errors() == ""
    unavailable = [line for line in workers.lines if line.startswith("unavailable")]
    assert len(unavailable) < len(workers.lines) / 10, unavailable
