"""One browser for all UI tests, and the folder that their screenshots go to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.ui import browser as finder

# Of what is to come sooner or later. Five seconds, Playwright's own, are too few where others use the machine too.
expect.set_options(timeout=30_000)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with finder.browser() as instance:
        yield instance


@pytest.fixture(scope="session")
def screenshots() -> Path:
    folder = Path(__file__).parent / "screenshots"
    folder.mkdir(exist_ok=True)
    return folder
