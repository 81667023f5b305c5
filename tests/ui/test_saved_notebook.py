"""A notebook that was saved and is opened again when its kernel is gone shows the recordings that it holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from aotviz.widgets.workbench import KEPT, Workbench
from tests.tiers import slow
from tests.ui import jupyter
from tests.ui.fixture import recording
from tests.ui.jupyter import Server
from tests.ui.views import code_of

# What stands in README, run by an interpreter that need not compile C++ for it.
CELL = """import torch, aotviz

def step(x, w):
    x.add_(1)
    return (x * w).sin(), x[:2]

compiled = aotviz.compile(step, backend="eager")
y, head = compiled(torch.randn(4, 3), torch.randn(3, requires_grad=True))
y.sum().backward()
compiled.recording"""
DIRTY = "() => window.jupyterapp.shell.currentWidget.context.model.dirty"
TRUSTED = "() => window.jupyterapp.shell.currentWidget.content.model.cells.get(0).trusted"


@pytest.fixture(params=["lab", slow("notebook_7")])
def served(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    return found


@pytest.fixture
def page(browser: Browser, served: Server) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    yield page
    page.close()
    jupyter.clear(served)


def place(notebook: Any) -> tuple[str, str] | None:
    """The stage and the view of it that a notebook shows when it is opened."""
    bookmark = kept_in(notebook["cells"][0]).get("bookmark")
    return (bookmark["stage"], bookmark["view"]) if bookmark else None


def test_a_notebook_opened_without_its_kernel_shows_what_was_seen(
    served: Server, page: Page, screenshots: Path
) -> None:
    notebook = served.work / "saved.ipynb"
    jupyter.write_notebook(notebook, CELL)
    jupyter.open_notebook(page, served, notebook.name)
    jupyter.run_all(page)
    bench = page.locator(".workbench")
    expect(code_of(bench)).to_contain_text("def ", timeout=90_000)
    expect(page.locator(".aotviz-RecordingView")).to_have_count(0)  # the kernel runs: this is its widget
    bench.locator('.stage[data-stage="partition"]').click()
    bench.locator('[role=tab][data-view="saved"]').click()
    jupyter.saved(page, notebook, lambda saved: place(saved) == ("partition", "saved"))

    jupyter.end_kernels(served)
    page.goto("about:blank")  # the tab is closed, and opened another day
    jupyter.open_notebook(page, served, notebook.name)
    expect(bench.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", "partition")
    expect(bench.locator(".panel")).to_contain_text("Saved for the backward:")
    expect(page.locator("body")).not_to_contain_text("Error displaying widget", use_inner_text=True)  # what can be seen
    page.screenshot(path=screenshots / f"saved-notebook-{served.app}.png")
    assert page.evaluate(DIRTY) is False  # to look is not to change

    # Run again, it is the kernel's.
    jupyter.run_all(page)
    expect(page.locator(".aotviz-RecordingView")).to_have_count(0, timeout=60_000)
    expect(code_of(bench)).to_contain_text("def ", timeout=60_000)
    expect(bench).to_have_count(1)


# Painted after it was shown, and several inputs side by side: both are kept with the recording of the output.
SHOWN = CELL.replace("\ncompiled.recording", "\nworkbench = compiled.recording.show()\nworkbench")
PAINT = 'workbench.paint({"sin": 4.2, "cos": 3.9}, "time", unit="µs")'
SCROLL = "cell => window.jupyterapp.shell.currentWidget.content.scrollToItem(cell)"  # JupyterLab draws what is near
COMPARE = """def double(a, b):
    return a.mul_(2) + b

m = torch.arange(8.0)
aotviz.compare_inputs(double, overlapping=(m[:5], m[3:]), separate=(torch.ones(5), torch.ones(5)))"""


@pytest.mark.slow
def test_what_was_painted_and_compared_is_in_a_notebook_opened_without_its_kernel(
    lab: Server, lab_page: Page, screenshots: Path
) -> None:
    page, notebook = lab_page, lab.work / "painted.ipynb"
    page.set_viewport_size({"width": 1400, "height": 1500})
    jupyter.write_notebook(notebook, SHOWN, PAINT, COMPARE)
    jupyter.open_notebook(page, lab, notebook.name)
    jupyter.run_all(page)
    cells = page.locator(".jp-Notebook-cell")
    expect(cells.nth(0).get_by_label("Colour by")).to_have_value("painting:time", timeout=90_000)
    expect(cells.nth(2).locator(".differences li").first).to_be_visible(timeout=60_000)
    sentence = cells.nth(2).locator(".differences li").first.inner_text()
    jupyter.saved(page, notebook, lambda saved: "painted" in kept_in(saved["cells"][0]))

    jupyter.end_kernels(lab)
    page.evaluate(jupyter.CLOSE_ALL)
    jupyter.open_notebook(page, lab, notebook.name)
    expect(cells.nth(0).get_by_label("Colour by")).to_have_value("painting:time")
    expect(cells.nth(0).locator(".graph-foot .keys")).to_contain_text("time (µs)")
    page.screenshot(path=screenshots / "saved-notebook-painted.png")
    page.evaluate(SCROLL, 2)
    expect(cells.nth(2).locator(".differences li").first).to_have_text(sentence)
    expect(cells.nth(2).locator('.side-by-side[aria-label="Memory"] .side')).to_have_count(2)
    page.screenshot(path=screenshots / "saved-notebook-compared.png")
    expect(page.locator(".aotviz-RecordingView")).to_have_count(2)  # of the outputs, and no widget


def kept_in(cell: Any) -> dict[str, Any]:
    """What the output of a cell keeps beside its recording."""
    (output,) = cell["outputs"]
    found: dict[str, Any] = output["metadata"].get(KEPT, {})
    return found


def write_executed(path: Path, data: dict[str, Any], metadata: dict[str, Any]) -> None:
    """A notebook with one output, as somebody else's kernel left it."""
    jupyter.write_notebook(path, "compiled.recording")
    notebook = json.loads(path.read_text())
    result = {"output_type": "execute_result", "execution_count": 1, "data": data, "metadata": metadata}
    notebook["cells"][0] |= {"execution_count": 1, "outputs": [result]}
    path.write_text(json.dumps(notebook))


def test_a_notebook_of_a_stranger_shows_its_recording_and_runs_nothing(
    served: Server, page: Page, screenshots: Path
) -> None:
    bundle = Workbench(recording(), bookmark={"stage": "partition"})._repr_mimebundle_()
    assert bundle is not None
    data, metadata = bundle
    metadata = {KEPT: {"bookmark": {**metadata[KEPT]["bookmark"], "view": 7, "__proto__": "x"}}}
    write_executed(served.work / "strange.ipynb", data, metadata)
    jupyter.open_notebook(page, served, "strange.ipynb")
    bench = page.locator(".workbench")
    expect(bench.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", "partition")
    expect(bench.locator(".cm-content")).to_contain_text("def forward(")
    assert page.evaluate(TRUSTED) is False
    assert page.locator(".aotviz-Output > *").count() == 1  # and no widget's renderer, shown or hidden
    page.screenshot(path=screenshots / f"untrusted-notebook-{served.app}.png")


def test_of_a_recording_that_was_too_large_the_summary_is_shown(lab: Server, lab_page: Page) -> None:
    bundle = Workbench(recording())._repr_mimebundle_()
    assert bundle is not None
    for name, content in {"large": "", "spoiled": "H4sIAAAA"}.items():
        write_executed(lab.work / f"{name}.ipynb", {**bundle[0], KEPT: content}, {})
    page = lab_page
    jupyter.open_notebook(page, lab, "large.ipynb")
    expect(page.locator(".aotviz-Output table").first).to_contain_text("Net · training · 1008.2 ms · 15 stages")
    expect(page.locator(".workbench")).to_have_count(0)
    jupyter.open_notebook(page, lab, "spoiled.ipynb")
    expect(page.get_by_role("alert")).to_contain_text("This recording is damaged")
