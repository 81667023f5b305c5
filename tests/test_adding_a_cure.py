"""docs/adding-a-cure.md shows a cure as it stands in the code. Its program is run with those of all cures."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_page_shows_the_code_as_it_stands() -> None:
    page = (ROOT / "docs" / "adding-a-cure.md").read_text(encoding="utf-8")
    shown = re.findall(r"`((?:aotviz|tests)/\S+\.py)`:\n\n```python\n(.*?)```", page, re.DOTALL)
    assert len(shown) == 3
    for name, code in shown:
        assert code in (ROOT / name).read_text(encoding="utf-8"), name


def test_the_page_shows_its_line_of_the_page_of_cures() -> None:
    page = (ROOT / "docs" / "adding-a-cure.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (line,) = (text for language, text in blocks if not language)
    assert line in (ROOT / "docs" / "cures.md").read_text(encoding="utf-8")
