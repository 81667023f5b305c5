"""The view of events: the rows of the puzzle's function, their links, by mouse and by keys, at two widths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page, expect

import aotviz
from aotviz.widgets.html import write_html
from tests.ui import puzzle

MANY = 1600  # events, more than a table shows at first


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_html(puzzle.recording(), tmp_path_factory.mktemp("events") / "puzzle.html")


@pytest.fixture(params=[500, 1280])
def page(browser: Browser, html: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": request.param, "height": 800}, offline=True, reduced_motion="reduce")
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(html.as_uri())
    page.locator('[role=tab][data-view="events"]').click()
    yield page
    assert problems == []
    page.close()


def test_the_sentence_says_what_the_caller_notices(page: Page, screenshots: Path) -> None:
    expect(page.locator(".panel .lead")).to_have_text(
        "The call changes a and steps. output[0], output[1] and output[2] share memory with an input or another result."
    )
    page.screenshot(path=screenshots / f"events-{page.viewport_size['width']}.png")
    frame = page.locator(".panel .page").bounding_box()
    assert frame is not None
    assert frame["x"] + frame["width"] <= page.viewport_size["width"]


def test_a_row_says_the_line_and_what_was_made_of_it(page: Page) -> None:
    write = page.locator(".panel tbody tr", has_text="a.mul_(2)")
    expect(write).to_contain_text("puzzle.py:23")
    expect(write.locator(".made")).to_contain_text("the wrapper writes it after the graph ran")


@pytest.mark.parametrize("by", ["mouse", "keys"])
def test_a_row_selects_its_node_and_stays_in_the_view(page: Page, by: str) -> None:
    write = page.locator(".panel tbody tr", has_text="a.mul_(2)")
    if by == "mouse":
        write.locator("td").nth(0).click()
    else:
        write.focus()
        page.keyboard.press("Enter")
    expect(page.locator(".facts h3")).to_have_text("mul")
    expect(page.locator(".panel tr[aria-current=true]")).to_have_count(1)
    expect(page.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", "metadata")
    expect(page.locator("[role=tab][aria-selected=true]")).to_have_attribute("data-view", "events")


def test_a_tensor_leads_to_the_board_and_a_fact_to_its_reason(page: Page) -> None:
    view = page.locator(".panel tbody tr", has_text=".slice(0, 2, 6)")
    view.locator("button", has_text="output[0]").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".window.lit .name")).to_contain_text("output[0]")
    expect(page.locator(".window.lit")).to_be_in_viewport()
    page.locator('[role=tab][data-view="events"]').click()
    page.locator(".made button", has_text="steps").first.click()
    expect(page.locator(".panel tr[aria-current=true] th")).to_have_text("steps")


def test_a_fact_leads_to_the_lines_of_the_wrapper(page: Page) -> None:
    page.locator(".panel tbody tr", has_text="steps.add_(1)").locator("button", has_text="line").focus()
    page.keyboard.press("Enter")
    expect(page.locator("[role=tab][aria-selected=true]")).to_have_attribute("data-view", "wrapper")
    expect(page.locator(".note[aria-pressed=true]")).to_contain_text("steps is written")


def test_the_search_shows_the_rows_that_match(page: Page) -> None:
    page.locator("input[type=search]").first.fill("steps")
    expect(page.locator(".panel tbody tr")).to_have_count(2)
    expect(page.locator(".panel caption")).to_contain_text("2 of 13 events")


def test_a_long_program_shows_every_event_on_request(browser: Browser, tmp_path: Path) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        for _ in range(MANY):
            x = x.view(-1)
        return x.sin()

    compiled = aotviz.aot_function(f, aotviz.lowerings.run_graph)
    compiled(torch.ones(3))
    page = browser.new_page(viewport={"width": 1280, "height": 800}, offline=True)
    page.goto(write_html(compiled.recording, tmp_path / "long.html").as_uri())
    page.locator('[role=tab][data-view="events"]').click()
    expect(page.locator(".panel tbody tr")).to_have_count(1500)
    page.locator(".panel .table button", has_text="more").click()
    expect(page.locator(".panel tbody tr")).to_have_count(MANY + 2)
    expect(page.locator(".panel .table p")).to_be_hidden()
    page.close()
