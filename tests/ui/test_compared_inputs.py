"""What `aotviz.compare_inputs` found, side by side in the workbench: on a page, wide and narrow, light and dark."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page, expect

import aotviz
from aotviz.comparing.compared_inputs import Comparison
from tests.tiers import THEMES
from tests.ui.test_accessibility import serious


def double(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a.mul_(2)
    return a + b, b[:2]


@pytest.fixture(scope="module")
def three() -> Comparison:
    m, x = torch.arange(8.0), torch.ones(5)
    return aotviz.compare_inputs(
        double, overlapping=(m[:5], m[3:]), separate=(torch.ones(5), torch.ones(5)), same=(x, x)
    )


def opened(browser: Browser, found: Comparison, folder: Path, width: int, theme: str) -> Page:
    found.to_html(folder / "compared.html")
    page = browser.new_page(viewport={"width": width, "height": 1000}, color_scheme=theme, offline=True)  # type: ignore[arg-type]
    page.goto((folder / "compared.html").as_uri())
    expect(page.locator(".drawn[aria-busy]")).to_have_count(0)
    return page


@pytest.mark.parametrize("theme", THEMES)
def test_the_sets_are_side_by_side_and_what_differs_is_lit(
    browser: Browser, three: Comparison, tmp_path: Path, screenshots: Path, theme: str
) -> None:
    page = opened(browser, three, tmp_path, 1280, theme)
    assert page.locator(".differences li").all_inner_texts()[:1] == [three.sentences[0].replace("`", "")]
    for row in ("Memory", "Wrapper", "Graph"):
        sides = page.locator(f'.side-by-side[aria-label="{row}"] .side')
        assert sides.locator("> header h3").all_inner_texts() == list(three.names)
        boxes = [side.bounding_box() for side in sides.all()]
        assert len({box["y"] for box in boxes if box}) == 1, f"{row} is not in one row"
    memory = page.locator('.side-by-side[aria-label="Memory"] .side')
    assert memory.nth(0).locator(".window.lit .name").all_inner_texts()[0].startswith("base of a, b")
    assert memory.nth(1).locator(".window:not(.lit)").all_inner_texts()[0].startswith("output[0]")
    wrapper = page.locator('.side-by-side[aria-label="Wrapper"] .side')
    lit = [wrapper.nth(i).locator("li.lit code").all_inner_texts() for i in range(3)]
    assert "    base = base_of(a)" in lit[0]
    assert "    a.copy_(out[0])" in lit[1]
    assert not any("def double" in line for lines in lit for line in lines)
    assert page.locator(".drawn .lit").count() > 10
    page.screenshot(path=screenshots / f"compared-{theme}.png")
    assert serious(page) == []
    page.get_by_role("button", name="Graphs as text").click()
    texts = page.locator('.side-by-side[aria-label="Graph"] .side').nth(1).locator("li.lit")
    expect(texts.filter(has_text="aten.add.Tensor")).to_have_count(1)
    page.close()


def test_a_narrow_cell_shows_one_below_the_other_and_a_name_opens_the_compilation(
    browser: Browser, three: Comparison, tmp_path: Path, screenshots: Path
) -> None:
    page = opened(browser, three, tmp_path, 500, "light")
    sides = page.locator('.side-by-side[aria-label="Memory"] .side')
    boxes = [box for side in sides.all() if (box := side.bounding_box())]
    assert [box["x"] for box in boxes] == [boxes[0]["x"]] * 3
    assert all(above["y"] + above["height"] <= below["y"] for above, below in pairwise(boxes))
    assert page.evaluate("document.documentElement.scrollWidth") <= 500
    page.screenshot(path=screenshots / "compared-narrow.png")
    sides.nth(1).locator(".writes button").first.click()
    expect(page.locator("[role=tab][aria-selected=true]")).to_have_attribute("data-view", "code")
    expect(page.get_by_role("combobox", name="Compilation")).to_have_value("1")
    expect(page.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", "metadata")
    page.locator('[role=tab][data-view="compared"]').click()
    page.locator('.side-by-side[aria-label="Graph"] h3 button', has_text="same").click()
    expect(page.get_by_role("combobox", name="Compilation")).to_have_value("2")
    page.close()


def test_a_set_that_failed_has_its_reason_in_its_column(browser: Browser, tmp_path: Path) -> None:
    def picky(x: torch.Tensor) -> torch.Tensor:
        if x.dtype is torch.int64:
            raise ValueError("no <integers>")
        return x.sin()

    found = aotviz.compare_inputs(picky, floats=(torch.ones(2),), integers=(torch.ones(2, dtype=torch.int64),))
    page = opened(browser, found, tmp_path, 1280, "light")
    failed = page.locator('.side-by-side[aria-label="Memory"] .side').nth(1)
    expect(failed).to_contain_text("ValueError in the stage metadata: no <integers>")
    assert page.locator('.side-by-side[aria-label="Memory"] .lit').count() == 0, (
        "the other set has nothing to differ from"
    )
    page.close()
