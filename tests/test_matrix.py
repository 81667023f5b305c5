"""`make matrix`: its figures are those of the reports that it reads, and docs/releases.md has them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import torch

from aotviz.ir import torchs_settings
from aotviz.torch_private import versions
from tests import matrix

REPORT = """<testsuites><testsuite time="61.6">
<testcase classname="tests.test_views" name="test_a"/>
<testcase classname="tests.test_views" name="test_b[x @ y]@test_views.py"><failure message="no"/></testcase>
<testcase classname="tests.test_rng" name="test_c"><skipped message="needs a GPU"/></testcase>
<testcase classname="" name="tests.test_gone"><error message="collection failure"/></testcase>
</testsuite></testsuites>"""


def test_a_test_that_raises_before_it_begins_has_failed_too():
    assert matrix.outcomes(REPORT) == (1, 1, ["::tests.test_gone", "tests.test_views::test_b[x @ y]"])
    assert matrix.lasted(REPORT) == 62


def test_the_figures_of_some_files_join_those_of_others_and_replace_their_own():
    before = matrix.Figures(
        "2.15.0-3.11", "abc", 9, 0, ["tests.test_rng::test_c", "tests.test_old::test_d"],
        files={"tests/test_rng.py": [5, 0], "tests/test_old.py": [4, 0]},
    )  # fmt: skip
    found = matrix.Figures("2.15.0-3.11", "def", 1, 1, ["tests.test_views::test_b[x @ y]"])
    joined = matrix.joined(before, found, REPORT, ["tests/test_views.py", "tests/test_rng.py"])
    assert joined.files == {"tests/test_old.py": [4, 0], "tests/test_rng.py": [0, 1], "tests/test_views.py": [1, 0]}
    assert (joined.passed, joined.skipped) == (5, 1)
    assert joined.failed == ["tests.test_old::test_d", "tests.test_views::test_b[x @ y]"]
    assert "| 2.15.0 | 3.11 | 3 | 5 | 2 | 1 |  | 0 |" in matrix.page({joined.pair: joined})


def test_programs_are_counted_for_each_candidate():
    rows = [{"key": str(n), **{name: {"standing": "equal"} for name in matrix.CANDIDATES}} for n in range(3)]
    rows[2]["ours"] = {"standing": "refused"}
    counted = matrix.tallies(rows)
    assert counted["ours"] == {"equal": 2, "refused": 1}
    assert counted["torch"] == {"equal": 3}


def test_the_page_has_the_stored_figures():
    assert Path("docs/releases.md").read_text() == matrix.page(matrix.stored())


def test_the_page_lists_each_feature_of_the_newest_releases():
    new = {name for name, since in versions.SINCE.items() if since >= (2, 14)}
    assert len(new) >= 4
    assert not [name for name in new if name not in matrix.NEWS]


@pytest.mark.skipif(torch.__version__[:4] != "2.13", reason="the page compares with torch 2.13")
def test_what_the_page_calls_new_is_not_in_torch_2_13_and_what_it_calls_old_is():
    folder = Path(torch.__file__).parent / "_functorch" / "_aot_autograd"
    rows, _, old = matrix.NEWS.partition("Not new")
    for text, there in ((rows, False), (old, True)):
        files = re.findall(r"`(\w+\.py)`", text)
        assert files
        assert {(folder / name).exists() for name in files} == {there}
    assert not hasattr(torch.compiler, "precompile")
    assert "options" in inspect.signature(torch.compiler.nested_compile_region).parameters
    assert "enable_complex_wrapper" in torchs_settings.WARNED["torch._functorch.config"]


def test_the_page_names_the_files_of_what_failed():
    figures = matrix.Figures(
        "2.14.1-3.11", "abc", 7, 1, ["tests.ui.test_overview::test_a", "tests.ui.test_overview::test_b"], seconds=300
    )
    text = matrix.page({figures.pair: figures})
    assert "| 2.14.1 | 3.11 | all | 7 | 2 | 1 | 5 | 0 |" in text
    assert "- `tests/ui/test_overview.py`: 2\n" in text
