"""A user's own values as colours of the graph: the legend, the chooser, the table, in light and dark."""

from __future__ import annotations

import math
from pathlib import Path
from urllib.parse import urlencode

import nbformat
import pandas as pd
import pytest
import torch
from playwright.sync_api import Browser, Page, expect

import aotviz
from aotviz.reading.recording import Recording
from aotviz.recording import files
from aotviz.widgets.notebooks import STATES, WIDGET, WorkbenchHTML
from aotviz.widgets.workbench import Workbench
from tests.ui.test_accessibility import serious
from tests.ui.test_states import Kernel

CONTRASTS = """(view) => {
  const canvas = document.createElement('canvas').getContext('2d');
  const light = (name) => {
    const probe = view.appendChild(document.createElement('i'));
    probe.style.color = `var(${name})`;
    canvas.fillStyle = getComputedStyle(probe).color;
    canvas.fillRect(0, 0, 1, 1);
    probe.remove();
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((part) => part / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const text = light('--graph-text');
  return Array.from({ length: 13 }, (_, i) => light(`--graph-r-${i}`)).map((fill) =>
    (Math.max(text, fill) + 0.05) / (Math.min(text, fill) + 0.05));
}"""  # of the text with each colour of numbers, as WCAG defines it


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(8, 16)
        self.down = torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


@pytest.fixture(scope="module")
def trained() -> bytes:
    with aotviz.record() as recording:
        model = aotviz.compile(torch.nn.Sequential(Block(), Block()), backend="eager")
        model(torch.randn(2, 8)).sum().backward()
    return recording.to_bytes()


@pytest.fixture
def recording(trained: bytes) -> Recording:
    found = Recording(files.unpack(trained))
    names = found[0].graph("joint").nodes.query("op == 'call_function'").name
    times = pd.Series([10 ** (place % 7 / 2) for place in range(len(names))], index=names, name="time per kernel")
    times["gelu"], times["addmm"], times["gelu_7"] = math.nan, math.inf, 1.0
    found.paint(pd.Series("Triton", index=names).where(~names.str.startswith("addmm").values, "cuBLAS"), "made by")
    found.paint(times[names] % 3 - 1, "change")
    with pytest.warns(UserWarning, match="'gelu_7'"):
        found.paint(times, unit="µs")
    return found


def legend(page: Page) -> str:
    return page.locator(".graph-foot .keys").inner_text()


def test_a_painting_is_opened_with_legend_chooser_and_table(
    still_page: Page, recording: Recording, tmp_path: Path, theme: str, screenshots: Path
) -> None:
    page = still_page
    recording.to_html(tmp_path / "painted.html")
    page.goto((tmp_path / "painted.html").as_uri())
    keys = page.locator(".graph-foot .keys")
    expect(keys).to_contain_text("time per kernel (µs)")
    expect(keys).to_contain_text("steps of equal ratio")
    expect(keys).to_contain_text("∞ · 1")
    expect(keys).to_contain_text("NaN · 1")
    expect(keys.get_by_text("not in this graph")).to_have_attribute("title", "gelu_7")
    page.get_by_label("Open all modules").click()
    page.get_by_role("button", name="Values").click()
    table = page.locator(".painted-values")
    expect(table.locator("tbody tr").first).to_contain_text("NaN")
    page.screenshot(path=screenshots / f"painting-numbers-{theme}.png")
    assert serious(page) == []
    assert min(page.locator(".graph-view").evaluate(CONTRASTS)) > 4.5  # of the text in the boxes, which axe cannot see
    table.get_by_placeholder("Search values").fill(">900")
    expect(table.locator("output")).to_contain_text(" of ")
    expect(table.locator("tbody tr").first).to_contain_text("∞")
    table.locator("tbody tr").first.click()
    expect(page.locator(".facts h3")).to_have_text("addmm")
    expect(page.locator(".facts dl")).to_contain_text("time per kernel")
    page.get_by_label("Colour by").select_option("change")
    expect(keys).to_contain_text("−0.838 to −0.67")
    page.screenshot(path=screenshots / f"painting-signed-{theme}.png")
    page.get_by_label("Colour by").select_option("made by")
    expect(keys).to_contain_text("cuBLAS · 4")
    page.screenshot(path=screenshots / f"painting-categories-{theme}.png")
    page.reload()
    expect(page.get_by_label("Colour by")).to_have_value("painting:made by")
    page.get_by_label("Take this painting away").click()
    expect(page.get_by_label("Colour by")).to_have_value("direction")
    expect(page.get_by_label("Colour by").locator("option", has_text="made by")).to_have_count(0)
    expect(page.get_by_label("Colour by").locator("option", has_text="change")).to_have_count(1)
    expect(keys).not_to_contain_text("cuBLAS")


def test_a_graph_that_show_opens_has_the_colours_of_the_last_painting(
    still_page: Page, recording: Recording, tmp_path: Path
) -> None:
    page = still_page
    recording.to_html(tmp_path / "painted.html")
    for at in ({}, {"stage": "partition", "graph": "backward"}):
        bookmark = recording.show("graph", **at).bookmark
        page.goto(f"{(tmp_path / 'painted.html').as_uri()}#{urlencode(bookmark)}")
        page.reload()
        expect(page.get_by_label("Colour by")).to_have_value("painting:time per kernel")
        expect(page.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", bookmark["stage"])


def test_the_search_finds_painted_values(
    still_page: Page, recording: Recording, tmp_path: Path, theme: str, screenshots: Path
) -> None:
    page = still_page
    node = recording[0].graph("backward").nodes.query("op == 'call_function'").name.iloc[-1]
    recording.paint({node: "cuBLAS"}, "kernel library", stage="partition", graph="backward")
    recording.to_html(tmp_path / "painted.html")
    page.goto(f"{(tmp_path / 'painted.html').as_uri()}#view=code")
    page.get_by_label("Search the recording").fill("cublas")
    expect(page.locator(".results .group-title")).to_have_text("Painted values · 5")
    page.screenshot(path=screenshots / f"painting-found-{theme}.png")
    page.locator(".results").get_by_text("made by: cuBLAS").last.click()
    expect(page.get_by_label("Colour by")).to_have_value("painting:made by")
    expect(page.locator(".facts h3")).to_contain_text("addmm")
    page.get_by_label("Search the recording").fill("kernel library")
    page.keyboard.press("Enter")
    expect(page.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", "partition")
    expect(page.locator(".roles [aria-checked=true], .roles [aria-pressed=true]")).to_have_text("backward")
    expect(page.locator(".facts h3")).to_have_text(node)


def test_in_a_narrow_page_the_table_lies_over_the_drawing(
    still_page: Page, recording: Recording, tmp_path: Path, theme: str, screenshots: Path
) -> None:
    page = still_page
    recording.to_html(tmp_path / "painted.html")
    page.set_viewport_size({"width": 500, "height": 900})
    page.goto((tmp_path / "painted.html").as_uri())
    expect(page.locator(".graph-foot .keys")).to_contain_text("time per kernel (µs)")
    page.screenshot(path=screenshots / f"painting-narrow-{theme}.png")
    page.get_by_role("button", name="Values").click()
    expect(page.locator(".painted-values tbody tr").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 500


def test_a_page_of_nbconvert_has_what_was_painted_after_the_output(
    browser: Browser, trained: bytes, tmp_path: Path
) -> None:
    workbench = Workbench(Recording(files.unpack(trained)))
    data, metadata = workbench._repr_mimebundle_() or ({}, {})
    workbench.paint({"gelu": 1.0, "add": 3.0}, "error")
    cell = nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("display_data", data, metadata=metadata)])
    state = {STATES: {"state": {data[WIDGET]["model_id"]: {"state": workbench.get_state()}}}}
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata={"widgets": state})
    (tmp_path / "page.html").write_text(WorkbenchHTML().from_notebook_node(notebook)[0])
    page = browser.new_page(viewport={"width": 1280, "height": 900}, offline=True)
    page.goto((tmp_path / "page.html").as_uri())
    expect(page.locator(".graph-foot .keys")).to_contain_text("error")
    expect(page.locator(".graph-foot .keys")).to_contain_text("2.6 to 3 · 1")
    page.close()


def test_a_workbench_that_is_shown_opens_what_is_painted_and_the_kernel_hears_what_is_taken_away(
    still_page: Page, trained: bytes, monkeypatch: pytest.MonkeyPatch, theme: str
) -> None:
    page = still_page
    kernel = Kernel(page, monkeypatch, Recording(files.unpack(trained)))
    expect(page.locator(".overview")).to_be_visible()
    kernel.widget.paint({"gelu": 1.0, "add": 3.0}, "error", stage="partition", graph="forward")
    assert kernel.sent[-1][0] == {"changed": True}
    page.evaluate("window.changed()")
    expect(page.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", "partition")
    expect(page.locator(".graph-foot .keys")).to_contain_text("2.6 to 3 · 1")
    kernel.widget.paint({"gelu": 5.0, "add": 3.0}, "error", stage="partition", graph="forward")
    page.evaluate("window.changed()")
    expect(page.locator(".graph-foot .keys")).to_contain_text("4.6 to 5 · 1")
    page.get_by_label("Take this painting away").click()
    expect(page.get_by_label("Colour by")).to_have_value("direction")
    assert kernel.recording.paintings.empty
    assert kernel.widget.painted == ""
