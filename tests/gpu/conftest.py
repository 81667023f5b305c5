"""Skips what needs a GPU where there is none, and starts every test from a clean Dynamo and the same seed."""

from __future__ import annotations

from pathlib import Path

import pytest

import aotviz.frontends.backend  # noqa: F401 (torch.compile knows the names then, though aotviz is not installed)

from . import DEVICE, THERE


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent != Path(__file__).parent:
            continue
        if not THERE:
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))
        elif DEVICE == "cpu" and "on_a_gpu" in item.name:
            item.add_marker(pytest.mark.skip(reason="means nothing on a CPU"))


@pytest.fixture(autouse=True)
def afresh(clean_dynamo):
    """Every test here."""
