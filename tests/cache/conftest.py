"""What tests of the cache share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cache.redis_server import Server, installed


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    installed()
    running = Server(tmp_path)
    yield running
    running.kill()
