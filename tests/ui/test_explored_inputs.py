"""The sliders of `aotviz.explore_inputs` in a real JupyterLab, against a live kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.ui import jupyter
from tests.ui.jupyter import Server
from tests.ui.test_accessibility import serious

MADE = """
import aotviz, torch

def double(a, b):
    a.mul_(2)
    return a + b

m = torch.arange(8.0)
explorer = aotviz.explore_inputs(double, m[:4], m[4:])
explorer
"""
SAID = """print(explorer.comparison["now"].id, explorer.tensors()["b"].storage_offset(), m.tolist())"""


def slider(page: Page, argument: int, name: str) -> Locator:
    row = page.locator(".jp-OutputArea .widget-slider").filter(has=page.get_by_text(name, exact=True))
    return row.nth(argument).locator(".noUi-handle")


@pytest.mark.slow
def test_a_slider_moves_an_input_and_the_board_and_the_wrapper_follow(
    lab: Server, lab_page: Page, screenshots: Path
) -> None:
    page = lab_page
    page.set_viewport_size({"width": 1400, "height": 1300})
    jupyter.write_notebook(lab.work / "explored.ipynb", MADE, SAID)
    jupyter.open_notebook(page, lab, "explored.ipynb")
    jupyter.run_cell(page, 0)
    bench = page.locator(".workbench")
    memory = bench.locator('.side-by-side[aria-label="Memory"] .side')
    wrapper = bench.locator('.side-by-side[aria-label="Wrapper"] .side')
    expect(memory.locator("> header h3")).to_have_text(["given", "now"], timeout=60_000)
    expect(bench.locator(".lit.window")).to_have_count(0)
    expect(wrapper.nth(1)).not_to_contain_text("base_of")
    scrolled = page.locator(".jp-WindowedPanel-outer").first.evaluate("element => element.scrollTop")

    handle = slider(page, 1, "offset")
    handle.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(memory.nth(1)).to_contain_text("base of a, b", timeout=30_000)
    expect(memory.nth(1).locator(".window.lit").filter(has_text="offset 2")).to_have_count(1)
    expect(wrapper.nth(1)).to_contain_text("base = base_of(a)")
    expect(wrapper.nth(0)).not_to_contain_text("base_of")
    expect(bench.locator(".differences li").first).to_contain_text("With given, a and b share a storage of 8 elements")
    expect(bench.locator(".differences li").first).to_contain_text("with now, a and b share a base of 8 elements")
    expect(handle).to_be_focused()
    expect(page.get_by_role("slider", name="offset of b")).to_be_focused()
    page.screenshot(path=screenshots / "explored-light.png")
    assert serious(page, "document.querySelector('.jp-OutputArea-output')") == []

    page.get_by_label("requires_grad").nth(1).check()
    expect(wrapper.nth(1)).to_contain_text("class double_autograd", timeout=30_000)
    dtype = page.locator(".widget-dropdown").filter(has=page.get_by_text("dtype", exact=True)).nth(1).locator("select")
    dtype.select_option("int64")
    said = page.get_by_text("only Tensors of floating point")
    expect(said).to_be_visible(timeout=30_000)
    expect(wrapper.nth(1)).to_contain_text("class double_autograd")
    jupyter.set_theme(page, "JupyterLab Dark")
    page.screenshot(path=screenshots / "explored-dark-error.png")
    jupyter.set_theme(page, "JupyterLab Light")
    dtype.select_option("float32")
    expect(said).to_have_count(0)
    page.get_by_role("button", name="As given").click()
    expect(wrapper.nth(1)).not_to_contain_text("base_of", timeout=30_000)
    expect(bench.locator(".lit")).to_have_count(1)  # the legend
    assert page.locator(".jp-WindowedPanel-outer").first.evaluate("element => element.scrollTop") == scrolled

    jupyter.run_cell(page, 1)
    expect(page.locator(".jp-OutputArea-output pre").last).to_contain_text(
        "4 [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]", timeout=30_000
    )
