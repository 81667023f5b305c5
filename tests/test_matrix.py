"""`make matrix`: its figures are those of the reports that it reads, and docs/releases.md has them."""

from __future__ import annotations

from pathlib import Path

from tests import matrix

REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_views" name="test_a"/>
<testcase classname="tests.test_views" name="test_b[x @ y]@test_views.py"><failure message="no"/></testcase>
<testcase classname="tests.test_rng" name="test_c"><skipped message="needs a GPU"/></testcase>
<testcase classname="" name="tests.test_gone"><error message="collection failure"/></testcase>
</testsuite></testsuites>"""


def test_a_test_that_raises_before_it_begins_has_failed_too():
    assert matrix.outcomes(REPORT) == (1, 1, ["::tests.test_gone", "tests.test_views::test_b[x @ y]"])


def test_programs_are_counted_for_each_candidate():
    rows = [{"key": str(n), **{name: {"standing": "equal"} for name in matrix.CANDIDATES}} for n in range(3)]
    rows[2]["ours"] = {"standing": "refused"}
    counted = matrix.tallies(rows)
    assert counted["ours"] == {"equal": 2, "refused": 1}
    assert counted["torch"] == {"equal": 3}


def test_the_page_has_the_stored_figures():
    assert Path("docs/releases.md").read_text() == matrix.page(matrix.stored())


def test_the_page_names_the_files_of_what_failed():
    figures = matrix.Figures(
        "2.14.1-3.11", "abc", 7, 1, ["tests.ui.test_overview::test_a", "tests.ui.test_overview::test_b"]
    )
    text = matrix.page({figures.pair: figures})
    assert "| 2.14.1 | 3.11 | 7 | 2 | 1 | 0 |" in text
    assert "- `tests/ui/test_overview.py`: 2\n" in text
