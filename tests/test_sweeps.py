"""How the results of a sweep become a section of docs/parity.md."""

from __future__ import annotations

import pytest

from tests.parity.sections import models
from tests.sweeps import page

FOUND = {
    "title": "Tea",
    "about": "Cups compared with cups.",
    "made_by": "make sweep-tea",
    "tables": [{"title": "Cups", "columns": ["cup", "ml"], "rows": [["small | white", 90], ["large", 250]]}],
}


def test_a_sweeps_results_become_a_section_after_those_of_make_parity(tmp_path):
    path = tmp_path / "parity.md"
    path.write_text(f"# Parity\n\n## {models.TITLE}\n\nold\n")
    page.save("tea", FOUND, tmp_path / "results", path)
    text = path.read_text()
    assert text.index(f"## {models.TITLE}\n\nold\n") < text.index("## Tea\n\nCups compared with cups.")
    assert "| cup | ml |\n| --- | ---: |\n| small \\| white | 90 |\n| large | 250 |" in text
    page.save("tea", {**FOUND, "about": "Cups."}, tmp_path / "results", path)
    assert path.read_text() == text.replace("Cups compared with cups.", "Cups.")


@pytest.mark.parametrize("found", page.load(), ids=lambda found: found["made_by"])
def test_the_page_shows_the_results_that_are_kept(found):
    assert page.section_text(found).strip() in page.PAGE.read_text(), "run `python -m tests.sweeps.page`"
