"""A notebook with recordings in it, converted by nbconvert and read offline: a page in which the workbench works."""

from __future__ import annotations

import copy
import random
import string
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from playwright.sync_api import Browser, Page, expect

from aotviz.reading.recording import Recording
from aotviz.recording.schema import RecordingData
from aotviz.widgets import packing
from aotviz.widgets.notebooks import WorkbenchHTML
from aotviz.widgets.workbench import KEPT, Workbench
from tests.ui.fixture import MARKUP, ROOT, recording

CELL = """from tests.ui.fixture import recording
from aotviz.widgets.workbench import Workbench
Workbench(recording())"""
HEADING = "# viewer\n# workbench\n# recording"  # nbconvert gives headings such ids


@pytest.fixture(scope="module")
def notebook() -> Any:
    """As JupyterLab saves it: two recordings, and headings that are called as parts of our page are."""
    made = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell(HEADING), nbformat.v4.new_code_cell(CELL), nbformat.v4.new_code_cell(CELL)]
    )
    NotebookClient(made, timeout=120, kernel_name="python3", store_widget_state=False).execute()
    return made


def opened(browser: Browser, html: Path) -> tuple[Page, list[str]]:
    page = browser.new_page(viewport={"width": 1300, "height": 900}, offline=True)
    problems: list[str] = []
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    page.goto(html.as_uri())
    return page, problems


@pytest.mark.slow
def test_a_converted_notebook_has_workbenches_that_work_offline(
    notebook: Any, browser: Browser, tmp_path: Path, screenshots: Path
) -> None:
    source = tmp_path / "tour.ipynb"
    nbformat.write(notebook, source)
    convert = [sys.executable, "-m", "nbconvert", "--to", "aotviz.widgets.notebooks.WorkbenchHTML", str(source)]
    subprocess.run(convert, check=True, cwd=ROOT, capture_output=True)
    page, problems = opened(browser, tmp_path / "tour.html")
    bench = page.locator(".workbench").first
    bench.locator("[role=tab][data-view=code]").click(timeout=30_000)
    expect(bench.locator(".cm-content")).to_contain_text("def joint(", timeout=30_000)
    assert page.locator("h1").count() == 3
    bench.locator('.stage[data-stage="partition"]').click()
    expect(bench.locator(".cm-content")).to_contain_text("def forward(")
    page.screenshot(path=screenshots / "nbconvert-workbench.png")
    bench.locator('[role=tab][data-view="graph"]').click()
    expect(bench.locator(".graph-foot .status")).to_contain_text("boxes", timeout=30_000)
    bench.locator('[role=tab][data-view="saved"]').click()
    expect(bench).to_contain_text("This needs the live function")
    second = page.locator(".aotviz-output").nth(1)
    second.scroll_into_view_if_needed()
    second.locator(".workbench [role=tab][data-view=code]").click(timeout=30_000)
    expect(second.locator(".workbench .cm-content")).to_contain_text("def joint(", timeout=30_000)
    expect(page.locator(".workbench")).to_have_count(2)
    assert page.locator("img[src=x]").count() == 0
    assert problems == []
    page.close()


def test_nbconverts_own_page_shows_what_happened(
    notebook: Any, browser: Browser, tmp_path: Path, screenshots: Path
) -> None:
    html = tmp_path / "plain.html"
    html.write_text(HTMLExporter().from_notebook_node(notebook)[0], encoding="utf-8")
    page, problems = opened(browser, html)
    table = page.locator("table").first
    expect(table).to_contain_text("Net · training · 1008.2 ms · 15 stages")
    expect(table.locator("tr", has_text="partition")).to_contain_text("forward 24, backward 32")
    expect(page.locator("table").nth(1)).to_contain_text(f"update{MARKUP}")
    expect(page.locator("body")).to_contain_text("jupyter nbconvert --to aotviz_html")
    assert page.locator("img[src=x]").count() == 0
    assert problems == []
    page.screenshot(path=screenshots / "nbconvert.png")
    page.close()


def test_the_exporter_is_announced_to_nbconvert() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    module, _, name = groups["nbconvert.exporters"]["aotviz_html"].partition(":")
    assert getattr(import_module(module), name) is WorkbenchHTML


def test_what_an_output_keeps_is_the_recording_and_small(notebook: Any) -> None:
    (output,) = notebook.cells[1].outputs
    assert len(output.data[KEPT]) < packing.MOST_KEPT
    assert output.data[KEPT] == packing.kept(recording().data)


def test_a_large_recording_is_kept_without_its_generated_code_and_a_huge_one_not_at_all() -> None:
    data = recording().data
    first, *others = data.compilations

    def with_code(text: str) -> RecordingData:
        *stages, last = first.stages
        last = msgspec.structs.replace(last, code={**last.code, "inductor forward": text})
        return msgspec.structs.replace(
            data, compilations=[msgspec.structs.replace(first, stages=[*stages, last]), *others]
        )

    incompressible = "".join(random.Random(0).choices(string.printable, k=400_000))
    kept = packing.kept(with_code(incompressible))
    assert 0 < len(kept) < len(packing.kept(with_code("short"))) + 1_000
    assert packing.kept(msgspec.structs.replace(data, strings=[*data.strings, incompressible])) == ""

    huge = Recording(msgspec.structs.replace(data, strings=[*data.strings, incompressible]))
    bundle = Workbench(huge)._repr_mimebundle_()
    assert bundle is not None
    assert bundle[0][KEPT] == ""
    assert "too large" in bundle[0]["text/html"]


def test_the_place_that_was_seen_is_the_one_that_a_page_opens(
    notebook: Any, browser: Browser, tmp_path: Path, screenshots: Path
) -> None:
    """As our extension of JupyterLab writes it into the output, and as nbconvert keeps a widget's state."""
    marked = copy.deepcopy(notebook)
    ours, theirs = (cell.outputs[0] for cell in marked.cells[1:])
    ours.metadata[KEPT] = {"bookmark": {"stage": "partition", "role": "backward", "view": "graph", "node": 7}}
    model = theirs.data["application/vnd.jupyter.widget-view+json"]["model_id"]
    state = {model: {"state": {"bookmark": {"stage": "partition", "view": 'saved"><img src=x>'}}}}
    marked.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": state}}
    html = tmp_path / "marked.html"
    html.write_text(WorkbenchHTML().from_notebook_node(marked)[0], encoding="utf-8")
    page, problems = opened(browser, html)
    first, second = page.locator(".aotviz-output").all()
    first.scroll_into_view_if_needed()
    expect(first.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", "partition")
    expect(first.locator("[role=tab][aria-selected=true]")).to_have_attribute("data-view", "graph")
    expect(first.locator(".role.backward, .roles .backward")).to_have_attribute("aria-checked", "true")
    page.screenshot(path=screenshots / "nbconvert-bookmark.png")
    second.scroll_into_view_if_needed()
    expect(second.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", "partition")
    assert page.locator("img").count() == 0
    assert problems == []
    page.close()
