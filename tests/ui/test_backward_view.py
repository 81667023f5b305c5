"""The view of a captured backward: autograd's nodes in eager's order, hooks, what waits for what, what is freed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import aotviz
from tests.tiers import THEMES
from tests.ui.test_accessibility import serious
from tests.ui.whole_backward import recording


@pytest.fixture(params=THEMES)
def page(browser: Browser, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, offline=True, color_scheme=request.param)
    recording().save(tmp_path / "backward.aotviz")
    aotviz.load(tmp_path / "backward.aotviz").to_html(tmp_path / "backward.html")
    page.goto((tmp_path / "backward.html").as_uri())
    yield page
    page.close()


def open_backward(page: Page, number: int) -> Locator:
    """Open a captured backward; returns its rows."""
    select = page.locator("header select").first
    wanted = [text for text in select.locator("option").all_inner_texts() if "compiled autograd" in text][number]
    select.select_option(label=wanted)
    page.locator('[role=tab][data-view="backward"]').click()
    rows = page.locator(".backward-table tbody tr")
    expect(rows).not_to_have_count(0)  # the view's code is loaded when it is opened
    return rows


def test_the_backward_of_a_compiled_forward_is_one_row_that_leads_to_it(page: Page, screenshots: Path) -> None:
    rows = open_backward(page, 0)
    copied = rows.filter(has_text="backward of step")
    expect(copied).to_have_count(1)
    expect(copied).to_contain_text("aot0_")
    expect(rows.filter(has_text="layers.0.weight").locator(".chip", has_text="gradient hook")).to_have_count(1)
    accumulated = rows.filter(has_text="norm.weight").locator(".chip", has_text="post-accumulate-grad hook")
    expect(accumulated).to_have_count(1)
    copied.click(position={"x": 5, "y": 5})
    expect(copied).to_have_attribute("aria-current", "true")
    expect(page.locator("tr.waits").first).to_be_visible()
    scheme = "dark" if page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") else "light"
    page.screenshot(path=screenshots / f"backward-compiled-{scheme}.png")
    copied.get_by_role("button", name=re.compile("backward of step")).click()
    expect(page.locator("header select").first.locator("option:checked")).to_contain_text("step [")


def test_hooks_cut_it_into_graphs_and_steps_lead_to_the_drawing(page: Page, screenshots: Path) -> None:
    rows = open_backward(page, 1)
    expect(page.locator(".lead")).to_contain_text("in the order in which eager runs them")
    parts = rows.locator(".chip", has_text=re.compile(r"^part \d+$"))
    assert len(set(parts.all_inner_texts())) > 1
    gelu = rows.filter(has_text="GeluBackward0")
    gelu.click(position={"x": 5, "y": 5})
    expect(page.locator("tr.feeds")).to_have_count(1)
    expect(page.locator(".arcs path.feeds")).to_have_count(1)
    scheme = "dark" if page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") else "light"
    page.screenshot(path=screenshots / f"backward-eager-{scheme}.png")
    gelu.get_by_role("button", name=re.compile("gelu_backward")).first.click()
    expect(page.locator('[role=tab][data-view="graph"]')).to_have_attribute("aria-selected", "true")
    expect(page.locator('.stage[data-stage="dead nodes"]')).to_have_attribute("aria-selected", "true")


def test_a_second_batch_size_is_a_capture_of_its_own_and_says_why(page: Page) -> None:
    first = open_backward(page, 1).count()
    expect(open_backward(page, 2)).to_have_count(first)
    expect(page.locator("body")).to_contain_text(re.compile(r"had size 4 and now has size 2"))


def test_only_captured_backwards_have_the_view_and_keys_follow_the_tabs(page: Page) -> None:
    tabs = page.locator("[role=tab]")
    assert "backward" not in [tab.get_attribute("data-view") for tab in tabs.all()]
    open_backward(page, 0)
    names = [tab.get_attribute("data-view") for tab in tabs.all()]
    assert "backward" in names
    assert not {"aliasing", "saved"} & set(names)
    page.locator(".workbench").focus()
    page.keyboard.press(str(names.index("wrapper") + 1))
    expect(page.locator('[role=tab][data-view="wrapper"]')).to_have_attribute("aria-selected", "true")
    expect(page.locator(".panel, .content").first).to_contain_text(
        "def backward(inputs, sizes, scalars, hooks, packed)"
    )


@pytest.mark.every(2)
@pytest.mark.parametrize("number", [0, 1])
def test_axe_finds_nothing_serious(page: Page, number: int) -> None:
    rows = open_backward(page, number)
    assert serious(page) == []
    rows.nth(3).click(position={"x": 5, "y": 5})
    assert serious(page) == []


def test_keys_alone_select_a_row(page: Page) -> None:
    rows = open_backward(page, 0)
    rows.nth(0).focus()
    page.keyboard.press("Enter")
    expect(rows.nth(0)).to_have_attribute("aria-current", "true")
