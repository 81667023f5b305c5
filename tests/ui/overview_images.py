"""Pictures for docs/overview.md: what a person sees first of eight jobs.

`python -m tests.ui.overview_images` (also part of `make images`) writes docs/images/overview-*.png; with names, those
of these jobs. Look at each: in ten seconds it must be clear what is wrong, or that nothing is.
"""

from __future__ import annotations

import itertools
import linecache
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import aotviz
from aotviz.reading.recording import Recording
from tests.explain.logs import recording
from tests.ui import browser as finder
from tests.ui.fixture import ROOT
from tests.ui.palette import in_256_colours

FOLDER = ROOT / "docs" / "images"
SETTINGS = tuple(itertools.product((1280, 500), ("light", "dark")))  # the window's width in pixels, and the colours


PROGRAM = """\
import torch

def attention(x):
    scores = torch.zeros(1 << 23, 1 << 23)  # 256 TiB
    return x.exp().sum() + scores.sum()
"""


def out_of_memory() -> Recording:
    """A job that runs out of memory while a compiled program runs."""
    names: dict[str, Any] = {}
    linecache.cache["job.py"] = (len(PROGRAM), None, PROGRAM.splitlines(keepends=True), "job.py")
    exec(compile(PROGRAM, "job.py", "exec"), names)
    compiled = aotviz.compile(names["attention"], backend="eager", cache=False)
    try:
        compiled(torch.ones(1000, requires_grad=True))
    except RuntimeError:
        return compiled.recording
    raise AssertionError("no machine has 256 TiB of memory for one process")


RAISING = """\
import torch

def rows(table, at):
    return table.sin()[at] + 1
"""


def raised_in_a_watch() -> Recording:
    """A compiled program that raises an error of its own inside of a watch."""
    names: dict[str, Any] = {}
    linecache.cache["rows.py"] = (len(RAISING), None, RAISING.splitlines(keepends=True), "rows.py")
    exec(compile(RAISING, "rows.py", "exec"), names)
    watch = aotviz.watch()
    try:
        with watch:
            torch.compile(names["rows"], backend="aot_eager")(torch.ones(3), torch.tensor([7]))
    except IndexError:
        return watch.recording
    raise AssertionError("index 7 is within a table of 3 rows")


JOBS: dict[str, Callable[[], Recording]] = {
    "healthy": partial(recording, "cache_type_first"),
    "recompiling": partial(recording, "recompiles_values"),
    "breaking": partial(recording, "graph_breaks"),
    "missing": partial(recording, "cache_type_first", "cache_type_second"),
    "diverging": partial(recording, "ranks"),
    "exporting": partial(recording, "exports"),
    "out-of-memory": out_of_memory,
    "raising": raised_in_a_watch,
}


def main(wanted: Sequence[str] = tuple(JOBS)) -> None:
    with tempfile.TemporaryDirectory() as folder, finder.browser() as browser:
        for name in wanted:
            html = Path(folder) / f"{name}.html"
            JOBS[name]().to_html(html)
            for width, scheme in SETTINGS:
                page = browser.new_page(viewport={"width": width, "height": 620}, offline=True, color_scheme=scheme)
                page.goto(html.as_uri())
                page.get_by_role("tab", name="Overview").wait_for()
                page.wait_for_timeout(400)  # fonts and the drawing of the bar
                picture = in_256_colours(page.screenshot(), browser)
                (FOLDER / f"overview-{name}-{width}-{scheme}.png").write_bytes(picture)
                page.close()


if __name__ == "__main__":
    main(sys.argv[1:] or tuple(JOBS))
