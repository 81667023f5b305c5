"""The results of the sweeps, as sections of docs/parity.md.

A sweep calls `save(name, found)`. `found` is plain JSON:

    {
        "title": "Models of many packages",          # the section's heading
        "about": "What is compared with what.",      # Markdown
        "made_by": "make sweep-models",
        "tables": [{"title": "Models", "columns": ["model", "result"], "rows": [["resnet", "equal"], …]}, …],
    }

A table's `title` may be "", for one that needs no heading. Numbers stand to the right. Sections come after those of
`make parity`, in the order of their files' names.

python -m tests.sweeps.page        # write the page from the files again
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.parity.report import cell, replaced
from tests.parity.sections import SECTIONS

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[2] / "docs" / "parity.md"

Found = dict[str, Any]


def save(name: str, found: Found, folder: Path = RESULTS, page: Path = PAGE) -> None:
    """Keep what the sweep `name` found, and put it into the page."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(as_text(found))
    write(folder, page)


def as_text(found: Found) -> str:
    """A file's text."""
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def load(folder: Path = RESULTS) -> list[Found]:
    """What every sweep found."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def write(folder: Path = RESULTS, page: Path = PAGE) -> None:
    """Replace every sweep's section; the other sections stay."""
    text = page.read_text() if page.exists() else ""
    for found in load(folder):
        text = replaced(text, found["title"], section_text(found), titles(folder))
    page.write_text(text)


def titles(folder: Path = RESULTS) -> list[str]:
    """The headings of the page's sections, in order: those of `make parity`, then the sweeps'."""
    from tests.parity.cases import section  # with torch's table of operators: seconds, which only the page costs

    return [*(section(name).TITLE for name in SECTIONS), *(found["title"] for found in load(folder))]


def section_text(found: Found) -> str:
    lines = [f"## {found['title']}", "", found["about"].strip(), "", f"Made by `{found['made_by']}`.", ""]
    for table in found["tables"]:
        if table["title"]:
            lines += [f"### {table['title']}", ""]
        lines += [*_table(table["columns"], table["rows"]), ""]
    return "\n".join(lines).rstrip() + "\n"


def _table(columns: list[str], rows: list[list[Any]]) -> list[str]:
    numbers = [all(isinstance(row[k], (int, float)) for row in rows) for k in range(len(columns))]
    lines = [_line(columns), _line(["---:" if is_number else "---" for is_number in numbers])]
    return [*lines, *(_line(row) for row in rows)]


def _line(values: list[Any]) -> str:
    return f"| {' | '.join(cell(str(value)) for value in values)} |"


if __name__ == "__main__":
    write()
