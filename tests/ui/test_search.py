"""One box searches the workbench: "/" or Ctrl F goes there, the list says where each hit is, Enter opens it."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from aotviz.widgets.html import write_html
from tests.ui import puzzle
from tests.ui.test_accessibility import serious


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_html(puzzle.recording(), tmp_path_factory.mktemp("search") / "puzzle.html")


@pytest.fixture
def page(still_page: Page, html: Path) -> Page:
    still_page.set_viewport_size({"width": 1280, "height": 800})
    still_page.goto(html.as_uri())
    still_page.locator('.stage[data-stage="partition"]').click()
    return still_page


def test_hits_are_grouped_and_each_opens_in_its_view(page: Page, theme: str, screenshots: Path) -> None:
    box, options = page.get_by_label("Search the recording"), page.locator(".results [role=option]")
    page.keyboard.press("/")
    expect(box).to_be_focused()
    page.keyboard.type("mul")
    titles = page.locator(".results .group-title")
    expect(titles.first).to_have_text("Nodes in partition · forward · 5")
    expect(titles.filter(has_text="Your lines")).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(options.first).to_have_attribute("aria-selected", "true")
    assert serious(page) == []
    page.screenshot(path=screenshots / f"search-{theme}.png", animations="disabled")
    page.keyboard.press("Enter")
    expect(page.locator(".facts h3")).to_have_text("mul")
    expect(page.locator(".find output")).to_have_text("1 of 5")

    box.fill("steps.copy_")
    page.keyboard.press("Enter")  # the line of the wrapper is the only hit
    expect(page.locator(".aot-marked")).to_have_text("    steps.copy_(out[1])")
    box.fill("output[2]")
    page.keyboard.press("Enter")
    expect(page.locator("tr[aria-current] th")).to_have_text("output[2]")
    page.keyboard.press("Control+f")  # the box has the focus already: this one is the browser's
    page.locator(".stage[aria-selected=true]").focus()
    page.keyboard.press("Control+f")
    expect(box).to_be_focused()
    page.keyboard.type("synthetic bases")
    page.keyboard.press("Enter")  # the stage has this name
    expect(page.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", "synthetic bases")


def test_a_table_shows_what_was_typed_while_it_was_open(page: Page) -> None:
    box, rows = page.get_by_label("Search the recording"), page.locator(".saved-page tbody tr")
    box.fill("nowhere")
    page.locator("[role=tab][data-view=saved]").click()
    expect(rows).to_have_count(4)  # it was typed at the overview
    box.fill("detach")
    expect(rows).to_have_count(2)
    expect(page.locator(".saved-page caption")).to_have_text("2 values of 4")
    page.keyboard.press("Escape")  # the list
    expect(page.locator(".results")).to_be_hidden()
    expect(rows).to_have_count(2)
    page.keyboard.press("Escape")  # the words, and the box
    expect(rows).to_have_count(4)
    page.keyboard.press("2")
    expect(page.locator("[role=tab][data-view=code]")).to_have_attribute("aria-selected", "true")


def test_a_node_has_one_name_in_the_drawing_the_outline_and_the_code(page: Page) -> None:
    page.locator('.stage[data-stage="dynamo"]').click()
    code = page.locator(".cm-line", has_text="= l_")
    expect(code.first).to_be_visible()
    names = [line.split(":")[0].strip() for line in code.all_inner_texts()]
    page.locator("[role=tab][data-view=graph]").click()
    expect(page.locator(".outline .row").first).to_be_visible()
    labels = page.locator(".outline .row .label").all_inner_texts()
    assert names
    assert set(names) <= set(labels)


def test_the_list_is_inside_a_narrow_cell(page: Page, theme: str, screenshots: Path) -> None:
    page.set_viewport_size({"width": 500, "height": 700})
    page.get_by_label("Search the recording").fill("base")
    found, frame = page.locator(".results").bounding_box(), page.locator(".workbench").bounding_box()
    assert found
    assert frame
    assert frame["x"] <= found["x"]
    assert found["x"] + found["width"] <= frame["x"] + frame["width"]
    assert found["y"] + found["height"] <= frame["y"] + frame["height"]
    page.screenshot(path=screenshots / f"search-{theme}-500.png", animations="disabled")
