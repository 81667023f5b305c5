"""A page of docs/ as a notebook: its text, its Python as cells where page_runs.py found that it runs, what it prints.

It can be read before it runs, because a cell has the output that the page shows, and it can be read away from the
site: pictures are inside, and a link to another page is only its text. Whatever is not Python that runs (pieces,
commands of a shell, other outputs) stays in the text as it is: the commands need files and programs of the reader's.
The last cell shows the recording of the page as a live workbench.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from page_runs import Run, Shown

from tests import page_examples

ABOUT = """\
*This notebook is the page `docs/{page}.md` of aotviz {version}. Its cells run as they are, from top to bottom, where
aotviz is installed with torch and JupyterLab: `pip install '.[torch,jupyter]'` in a checkout. Python that is not a cell
needs files or programs of yours.*"""
STAND_IN = "# Stand-ins for what is yours: put your own here.\n"
LAST = "## What this page records\n\n`{expression}`, of “{heading}”, in the workbench:"
PICTURE = re.compile(r"!\[([^\]]*)\]\((images/[\w.-]+)\)")
LINK = re.compile(r"(?<!!)\[((?:!\[[^\]]*\]\([^)]*\)|[^\]\[])+)\]\((?!\w+://)[^)\s]+\)")

Cell = dict[str, Any]


def as_notebook(page: str, name: str, run: Run, folder: Path, version: str) -> str:
    """The text of the file. `name` is the page's, without ".md"; `folder` is where its pictures are found."""
    about = ABOUT.format(page=name, version=version)
    cells = [*_cells(page, run)]
    title, _, rest = cells[0]["source"].partition("\n")
    cells[0]["source"] = f"{title}\n\n{about}\n{rest}"
    cells += [*_workbench(run.shown)] if run.shown else []
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
        if cell["cell_type"] == "markdown":
            _make_readable_anywhere(cell, folder)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def _cells(page: str, run: Run) -> Iterator[Cell]:
    printed = page_examples.printing(page)
    text, begins = "", 0
    for at, found in enumerate(page_examples.FENCED.finditer(page)):
        text += page[begins : found.start()]
        begins = found.end()
        if at in run.cells:
            yield from _markdown(text)
            text = ""
            if run.cells[at]:
                yield _code(STAND_IN + run.cells[at])
            yield _code(found[2], printed.get(at, ""))
        elif at - 1 not in run.cells or at - 1 not in printed:
            text += found[0]
    yield from _markdown(text + page[begins:])


def _workbench(shown: Shown) -> Iterator[Cell]:
    yield from _markdown(LAST.format(expression=shown.expression, heading=shown.heading))
    yield _code(shown.expression)


def _markdown(text: str) -> Iterator[Cell]:
    if text.strip():
        yield {"cell_type": "markdown", "metadata": {}, "source": text.strip()}


def _code(source: str, printed: str = "") -> Cell:
    outputs = [{"output_type": "stream", "name": "stdout", "text": printed}] if printed else []
    cell = {"cell_type": "code", "metadata": {}, "execution_count": None}
    return {**cell, "source": source.strip("\n"), "outputs": outputs}


def _make_readable_anywhere(cell: Cell, folder: Path) -> None:
    """Put pictures into the cell, and leave of a link only its text, unless it leads to the web."""
    attachments = {}
    parts = re.split(r"(^```.*?^```)", cell["source"], flags=re.DOTALL | re.MULTILINE)
    for at in range(0, len(parts), 2):
        parts[at] = LINK.sub(r"\1", parts[at])
        for _, path in PICTURE.findall(parts[at]):
            content = base64.b64encode((folder / path).read_bytes()).decode()
            attachments[Path(path).name] = {"image/png": content}
        parts[at] = PICTURE.sub(lambda found: f"![{found[1]}](attachment:{Path(found[2]).name})", parts[at])
    cell["source"] = "".join(parts)
    if attachments:
        cell["attachments"] = attachments
