"""The widget in a real JupyterLab: run a cell, click a stage, see its graph, in both themes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from tests.ui import jupyter
from tests.ui.jupyter import Server
from tests.ui.views import code_of

CELL = """from tests.ui.fixture import recording
from aotviz.widgets.workbench import Workbench
Workbench(recording())"""


def table_of(notebook: Any) -> str:
    """What a notebook holds of its first workbench for those who can't show one."""
    return json.dumps([output["data"]["text/html"] for output in notebook["cells"][0]["outputs"]])


def test_a_stage_is_clicked_and_its_graph_is_seen(lab: Server, fresh_page: Page, screenshots: Path) -> None:
    page = fresh_page  # where none of the viewer has been loaded
    notebook = lab.work / "tour.ipynb"
    jupyter.write_notebook(notebook, CELL, CELL)
    jupyter.open_notebook(page, lab, notebook.name)
    jupyter.run_all(page)
    expect(page.locator(".workbench")).to_have_count(2, timeout=60_000)
    first = page.locator(".workbench").first
    first.scroll_into_view_if_needed()
    for bench in page.locator(".workbench").all():
        bench.scroll_into_view_if_needed()
        expect(code_of(bench)).to_contain_text("def joint(", timeout=30_000)
    first.scroll_into_view_if_needed()
    # Once for both, and graphviz when nothing else is to be done.
    page.wait_for_function("globalThis[Symbol.for('aotviz.bundles')].size >= 3")
    assert page.evaluate("globalThis[Symbol.for('aotviz.bundles')].size") == 3
    page.screenshot(path=screenshots / "jupyterlab-light-code.png")

    # The rail is complete, though only what is shown has come from the kernel.
    expect(first.locator('.stage[data-stage="partition"] .counts')).to_contain_text("backward 32 nodes")
    first.locator('.stage[data-stage="partition"]').click()
    first.locator('[role=tab][data-view="graph"]').click()
    expect(first.locator(".graph-foot .status")).to_contain_text("boxes", timeout=30_000)
    if first.locator("[data-toggle=outline]").get_attribute("aria-pressed") == "false":
        first.locator("[data-toggle=outline]").click()
    first.locator(".outline .row", has_text="blocks.1").first.click()
    expect(first.locator(".outline .row", has_text="act")).to_be_visible()
    page.screenshot(path=screenshots / "jupyterlab-light-graph.png")

    # Arrow keys are the rail's, not the notebook's.
    first.locator('.stage[data-stage="trace"]').click()
    page.keyboard.press("ArrowDown")
    expect(first.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", "decompose")
    expect(page.locator(".jp-Cell.jp-mod-active .workbench")).to_have_count(1)

    jupyter.set_theme(page, "JupyterLab Dark")
    expect(first).to_have_attribute("data-theme", "dark")
    first.locator('[role=tab][data-view="diff"]').click()
    expect(first.locator(".cm-insertedLine, .cm-changedLine").first).to_be_visible()
    page.screenshot(path=screenshots / "jupyterlab-dark-diff.png")

    saved = jupyter.saved(page, notebook, lambda saved: "partition" in table_of(saved))
    assert len(json.dumps(saved)) < 60_000  # neither the recording nor the viewer is in the notebook


MANY = """from tests.ui.fixture import recording
from aotviz.widgets.workbench import Workbench
asked = []
class Told(Workbench):
    def _bytes_of(self, what, on_stage=None):
        asked.append(what)
        if broken and isinstance(what, list) and what[0] == "graph":
            raise RuntimeError("the graph is gone")
        return super()._bytes_of(what, on_stage)
broken = False
workbench = Told(recording())
workbench"""


def test_the_kernel_is_asked_for_what_is_looked_at_and_a_failure_says_what_to_do(
    lab: Server, lab_page: Page, screenshots: Path
) -> None:
    page = lab_page
    notebook = lab.work / "parts.ipynb"
    jupyter.write_notebook(notebook, MANY, "broken = True", "broken = False", "print(asked, workbench.bookmark)")
    jupyter.open_notebook(page, lab, notebook.name)

    jupyter.run_cell(page, 0)
    bench = page.locator(".workbench")
    expect(code_of(bench)).to_contain_text("def joint(", timeout=60_000)
    jupyter.run_cell(page, 1)
    bench.locator('.stage[data-stage="partition"]').click()
    expect(bench.get_by_role("alert")).to_contain_text("the graph is gone", timeout=30_000)
    page.screenshot(path=screenshots / "jupyterlab-part-failed.png")
    jupyter.run_cell(page, 2)
    expect(page.locator(".jp-InputPrompt").nth(2)).to_have_text("[3]:")  # the cell has ended
    bench.get_by_role("button", name="Try again").click()
    expect(bench.locator(".cm-content")).to_contain_text("def forward(", timeout=30_000)
    jupyter.run_cell(page, 3)
    said = page.locator(".jp-OutputArea-output pre").last
    expect(said).to_contain_text("['graph', '0', 0]", timeout=30_000)
    asked = said.inner_text()
    assert asked.count("'compilation'") == 2  # asked for once; the bookmark names one too
    assert "['graph', '0', 3]" not in asked  # the backward was not looked at
    assert "'stage': 'partition'" in asked


def test_beside_the_file_browser_the_graph_has_half_of_the_cell(lab: Server, lab_page: Page, screenshots: Path) -> None:
    page = lab_page
    page.set_viewport_size({"width": 1280, "height": 900})
    jupyter.write_notebook(lab.work / "half.ipynb", CELL)
    jupyter.open_notebook(page, lab, "half.ipynb")
    jupyter.run_all(page)
    page.evaluate("window.jupyterapp.commands.execute('filebrowser:activate')")
    expect(page.locator(".jp-FileBrowser")).to_be_visible()
    bench = page.locator(".workbench").first
    bench.scroll_into_view_if_needed()
    bench.locator('.stage[data-stage="partition"]').click()
    bench.locator('[role=tab][data-view="graph"]').click()
    expect(bench.locator(".graph-foot .status")).to_contain_text("boxes", timeout=30_000)
    graph, whole = (one.bounding_box() for one in (bench.locator(".graph-body"), bench))
    page.screenshot(path=screenshots / "jupyterlab-beside-files.png")
    assert graph is not None
    assert whole is not None
    assert graph["height"] >= whole["height"] / 2
    for bar in bench.locator(".bar, .head").all():
        tops = bar.evaluate("(bar) => [...bar.children].filter((one) => one.offsetHeight).map((one) => one.offsetTop)")
        heights = bar.evaluate("(bar) => [...bar.children].map((one) => one.offsetHeight)")
        assert max(tops, default=0) - min(tops, default=0) < max(heights, default=1)  # one line
