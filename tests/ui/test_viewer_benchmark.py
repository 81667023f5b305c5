"""The benchmark of the graph view runs, and measures what it says. No test here looks at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks import groups, viewer


@pytest.mark.slow
def test_the_viewer_is_measured_in_a_browser() -> None:
    with ThreadPoolExecutor(1) as thread:  # another thread: this one may be in the loop of another test's browser
        found = thread.submit(viewer.run, rounds=1, sizes=(200,), seconds=0.2).result()
    quantities = [row.case.removeprefix("200 nodes: ") for row in found.rows]
    assert quantities[0] == "first paint"
    assert set(viewer.TARGETS) <= set(quantities)
    assert all(0 < row.figure == row.values["main thread"] and row.values["clock"] > 0 for row in found.rows)


@pytest.mark.slow
def test_groups_are_opened_in_a_browser() -> None:
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(groups.run, rounds=1, nodes=5_000).result()
    typical, slowest, large, _ = found.rows
    assert found.settings["openings"] == 20
    assert 0 < typical.figure <= slowest.figure
    assert large.case.startswith("5,000 nodes: a view of ")
    assert large.figure > 0
