"""docs/next-release.md says what was measured, and what is measured is what a program compiles to."""

from __future__ import annotations

import pytest

from tests import next_release
from tests.next_release import Row

pytestmark = pytest.mark.usefixtures("clean_dynamo")
OLD, NEW = "2.13.0", "2.15.0"


def test_the_page_is_made_of_what_was_measured() -> None:
    known = next_release.stored()
    assert len(known[OLD]) > 200
    assert next_release.PAGE.read_text() == next_release.page(OLD, NEW, known)


def test_a_program_is_measured_by_its_recording() -> None:
    row = next_release.of_program("plain_arithmetic")
    assert (row.ours, row.torchs) == ("equal", "equal")
    assert row.compilations >= 1
    assert row.operators


def test_a_page_counts_what_differs_and_names_its_programs() -> None:
    before = {name: Row("equal", "wrong", 1, 8, {"aten.mul": 1, "aten.sin": 1}) for name in ("a", "b", "c", "gone")}
    after = dict.fromkeys(("a", "b"), before["a"])
    after["b"] = Row("equal", "equal", 2, 12, {"aten.mul": 2})
    after["c"] = Row("equal", "wrong", 1, 8, {"aten.mul": 2})
    text = next_release.page("1", "2", {"1": before, "2": after})
    assert "1 of the 3 programs have the same" in text
    assert "1 more ended under one of the two." in text
    assert "| torch's own | 0 | 1 |" in text
    assert "| torch: wrong → torch: equal | 1 | `b` |" in text
    assert "| 1 → 2 | 1 | `b` |" in text
    assert "| 8 → 12 | 1 | `b` |" in text
    assert "| `aten.mul` | 0 | 2 | `b`, `c` |" in text
    assert "| `aten.sin` | 2 | 0 | `b`, `c` |" in text
