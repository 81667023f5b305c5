"""The sentences of docs/overview.md are those that the Overview of each job says."""

from __future__ import annotations

import re

from tests.ui.fixture import ROOT
from tests.ui.overview_images import FOLDER, JOBS, SETTINGS


def test_each_job_says_the_sentence_of_the_page() -> None:
    text = (ROOT / "docs" / "overview.md").read_text(encoding="utf-8")
    said = re.findall(r"^The Overview's sentence: (.*)$", text, re.M)
    assert said == [made().overview().headline for made in JOBS.values()]
    shown = re.findall(r"images/(overview-\S+\.png)", text)
    assert sorted(shown) == sorted(
        f"overview-{name}-{width}-{scheme}.png" for name in JOBS for width, scheme in SETTINGS
    )
    assert all((FOLDER / name).exists() for name in shown)
