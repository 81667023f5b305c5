"""The benchmark of the graph view runs, and measures what it says. No test here looks at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from benchmarks import viewer


def test_the_viewer_is_measured_in_a_browser() -> None:
    with ThreadPoolExecutor(1) as thread:  # another thread: this one may be in the loop of another test's browser
        found = thread.submit(viewer.run, rounds=1, sizes=(200,), seconds=0.2).result()
    quantities = [row.case.removeprefix("200 nodes: ") for row in found.rows]
    assert quantities[0] == "first paint"
    assert set(viewer.TARGETS) <= set(quantities)
    assert all(0 < row.figure == row.values["main thread"] and row.values["clock"] > 0 for row in found.rows)
