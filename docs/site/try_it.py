"""The box "Try it" of each page: what the page records, opened in the workbench, and the page as a notebook.

While Sphinx reads the pages, each runs in a process of its own (page_runs.py), so that no page sees the state of
another. When all have run, their boxes are put where the pages have a mark. The page decides what its box holds:

- The page has Python that runs: a notebook, and the recording that the page makes, if it makes one.
- It makes no recording, but shows a picture of the gallery, or a picture of the gallery leads to it: the recording of
  that picture.
- It is in the part of the navigation about working on aotviz. Then its Python changes aotviz itself and runs only in a
  checkout: the box says which test runs it.
- Otherwise the page has no box.
"""

from __future__ import annotations

import html
import multiprocessing
import os
import re
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import page_notebooks
import page_runs
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

import aotviz
from tests import page_examples

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "try"  # of the site, with a notebook and a page of the workbench for each page
MARK = '<div class="try-it"></div>'
GALLERY = re.compile(r"\[!\[([^\]]*)\]\(images/([\w-]+)\.png\)\]\((\S+?)\.md")  # what it shows, picture, page about it
PICTURE = re.compile(r"images/([\w-]+)\.png")
ALONE = {  # a process of Inductor's does not start more of them, nor asks what the processor has
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_VEC_ISA_OK": "1",
}
PRELOADED = ["torch._inductor.compile_fx", "aotviz.frontends.compile", "tests.ui.gallery"]  # slower than most pages
logger = logging.getLogger(__name__)


class TryIt:
    """Sphinx's events, in their order. `without_own` are pages that have no notebook."""

    def __init__(self, without_own: Iterable[str]) -> None:
        self.without_own = {f"docs/{name}" for name in without_own}
        self.pool: ProcessPoolExecutor | None = None
        self.running: dict[str, Future[page_runs.Run]] = {}
        self.boxes: dict[str, str] = {}

    def setup(self, app: Sphinx) -> None:
        app.connect("env-before-read-docs", self.start)
        app.connect("source-read", self.mark)
        app.connect("env-updated", self.finish, priority=900)  # after the gallery, for which the main process has time
        app.connect("html-page-context", self.fill)
        app.connect("build-finished", self.stop)

    def start(self, app: Sphinx, env: BuildEnvironment, _names: list[str]) -> None:
        """Start all pages, those with most blocks first."""
        if app.builder.format != "html":
            return
        texts = {name: _text(env, name) for name in sorted(env.found_docs) if self.may_run(env, name)}
        for variable, value in ALONE.items():
            os.environ.setdefault(variable, value)
        ways = multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("forkserver" if "forkserver" in ways else "spawn")
        if "forkserver" in ways:
            context.set_forkserver_preload(PRELOADED)
        self.pool = ProcessPoolExecutor(os.cpu_count(), context, max_tasks_per_child=1)
        for name in sorted(texts, key=lambda name: -len(page_examples.blocks(texts[name]))):
            target = app.outdir / FOLDER / f"{_file(name)}.html"
            self.running[name] = self.pool.submit(page_runs.run_page, texts[name], target)

    def may_run(self, env: BuildEnvironment, name: str) -> bool:
        if not _is_page(env, name) or name in self.without_own:
            return False
        return any(page_runs.can_run(*block) for block in page_examples.blocks(_text(env, name)))

    def mark(self, app: Sphinx, name: str, source: list[str]) -> None:
        """Below the title is the place of the box."""
        if _is_page(app.env, name):
            title, end, rest = source[0].partition("\n")
            source[0] = f"{title}{end}\n{MARK}\n\n{rest}"

    def finish(self, app: Sphinx, env: BuildEnvironment) -> list[str]:
        """Write the notebooks and the boxes. Returns the pages with a box: they are written even if Sphinx has them."""
        if app.builder.format != "html":
            return []
        runs = {name: run for name in self.running if (run := self.run_of(name)) is not None}
        shown_by = _gallery(env)
        for name in sorted(filter(lambda name: _is_page(env, name), env.found_docs)):
            run = runs.get(name)
            if run is not None and run.cells:
                self.write_notebook(app, env, name, run)
            self.boxes[name] = self.box(env, name, run, shown_by.get(name, {}))
        return [name for name, box in self.boxes.items() if box]

    def run_of(self, name: str) -> page_runs.Run | None:
        try:
            return self.running[name].result()
        except Exception as error:
            logger.warning("an example does not run: %s: %s", type(error).__name__, error, location=name)
            return None

    def write_notebook(self, app: Sphinx, env: BuildEnvironment, name: str, run: page_runs.Run) -> None:
        target = app.outdir / FOLDER / f"{_file(name)}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        about = (_file(name), run, env.doc2path(name).parent, aotviz.__version__)
        target.write_text(page_notebooks.as_notebook(_text(env, name), *about), encoding="utf-8", newline="\n")

    def box(self, env: BuildEnvironment, name: str, run: page_runs.Run | None, pictures: dict[str, str]) -> str:
        """The HTML of a page's box, or ""."""
        up = "../" * name.count("/")
        rows = []
        if run is not None and run.shown is not None:
            rows.append(_own_recording(f"{up}{FOLDER}/{_file(name)}.html", run.shown))
        else:
            rows += [_row(f"{up}{at}", f"Open in the workbench: {html.escape(what)}") for at, what in pictures.items()]
        if run is not None and run.cells:
            rows.append(_notebook(up, f"{_file(name)}.ipynb"))
        if name in self.without_own and "\n```python\n" in _text(env, name):
            rows += _test(_file(name))
        return f'<div class="try-it"><p>Try it</p><ul>{"".join(rows)}</ul></div>' if rows else ""

    def fill(self, _app: Sphinx, name: str, _template: str, context: dict[str, Any], _tree: object) -> None:
        """Put the box in its place."""
        if "body" in context:
            context["body"] = context["body"].replace(MARK, self.boxes.get(name, ""))

    def stop(self, _app: Sphinx, _failure: Exception | None) -> None:
        """Also after an error of Sphinx's, or its process would wait for the pages."""
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)


def _is_page(env: BuildEnvironment, name: str) -> bool:
    """Whether it is one of docs/, and not the gallery, which opens its recordings itself."""
    return name.startswith("docs/") and name != "docs/gallery" and env.doc2path(name).suffix == ".md"


def _text(env: BuildEnvironment, name: str) -> str:
    return env.doc2path(name).read_text(encoding="utf-8")


def _file(name: str) -> str:
    """The name of a page's files: that of the page, as docs/ has no two pages of one name with Python."""
    return name.removeprefix("docs/").replace("/", "-")


def _gallery(env: BuildEnvironment) -> dict[str, dict[str, str]]:
    """For each page, the recordings of the gallery that belong to it: the address of each, and what it shows."""
    from tests.ui.gallery import PICTURES  # with torch: only where the gallery is written

    pages = {name: set(PICTURE.findall(_text(env, name))) for name in env.found_docs if _is_page(env, name)}
    found: dict[str, dict[str, str]] = {}
    for what, picture, about in GALLERY.findall(_text(env, "docs/gallery")):
        for name in {f"docs/{about}"} | {name for name, shown in pages.items() if picture in shown}:
            found.setdefault(name, {})[f"recordings/{PICTURES[picture].address}"] = what
    return found


def _own_recording(address: str, shown: page_runs.Shown) -> str:
    what = f"{_code(shown.expression)}, as the example in “{html.escape(shown.heading)}” leaves it. Nothing to install."
    return _row(address, "Open what this page records in the workbench", what)


def _notebook(up: str, file: str) -> str:
    """`make lab` begins in the checkout, in which `make docs` puts the site."""
    there = f"{_code('make lab')}, then {_code(f'build/site/{FOLDER}/')}"
    what = f"Its cells run as they are: {_code(f'jupyter lab {file}')}; in a checkout, {there}."
    return _row(f"{up}{FOLDER}/{file}", "Download this page as a notebook", what, "download")


def _test(file: str) -> list[str]:
    """The row of a page whose Python a test runs."""
    test = f"tests/test_{file.replace('-', '_')}.py"
    if not (ROOT / test).exists():
        return []
    command = _code(f"make test ARGS={test}")
    return [f"<li>The Python of this page changes aotviz itself. In a checkout, {command} runs it.</li>"]


def _row(address: str, link: str, what: str = "", attributes: str = "") -> str:
    return f'<li><a class="try" href="{html.escape(address)}" {attributes}>{link}</a> <span>{what}</span></li>'


def _code(text: str) -> str:
    return f'<code class="docutils literal notranslate">{html.escape(text)}</code>'
