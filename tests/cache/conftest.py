"""What tests of the cache share."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cache.redis_server import Server, installed

HANG_SECONDS = 20


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    installed()
    running = Server(tmp_path)
    yield running
    running.kill()


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder below one that is sticky and open to all. Other users may enter it: pytest's own folders are private."""
    outer = Path(tempfile.mkdtemp(dir="/tmp"))
    outer.chmod(0o755)
    yield outer
    shutil.rmtree(outer)


@pytest.fixture
def no_hang() -> Iterator[None]:
    """What waits for a FIFO would wait for ever: an alarm ends the test."""

    def ended(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, ended)
    signal.alarm(HANG_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
