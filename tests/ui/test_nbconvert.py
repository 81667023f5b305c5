"""A notebook with a recording in it, converted by nbconvert and read offline: a page, with what happened in it."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from playwright.sync_api import Browser, expect

from tests.ui.fixture import MARKUP

CELL = """from tests.ui.fixture import recording
from aotviz.widgets.workbench import Workbench
Workbench(recording())"""


def test_a_converted_notebook_shows_what_happened(browser: Browser, tmp_path: Path, screenshots: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    # As JupyterLab saves notebooks unless it is told to save widgets' state, and as docs/jupyterlab.md advises.
    NotebookClient(notebook, timeout=120, kernel_name="python3", store_widget_state=False).execute()
    html = tmp_path / "converted.html"
    html.write_text(HTMLExporter().from_notebook_node(notebook)[0], encoding="utf-8")
    page = browser.new_page(viewport={"width": 1200, "height": 800}, offline=True)
    problems: list[str] = []
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    page.goto(html.as_uri())
    table = page.locator("table").first
    expect(table).to_contain_text("Net · training · 15 stages")
    expect(table.locator("tr", has_text="partition")).to_contain_text("forward 24, backward 32")
    expect(page.locator("table").nth(1)).to_contain_text(f"update{MARKUP}")
    assert page.locator("img[src=x]").count() == 0
    assert problems == []
    page.screenshot(path=screenshots / "nbconvert.png")
    page.close()
