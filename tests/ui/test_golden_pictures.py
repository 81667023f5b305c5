"""The views of a ten-line aliasing puzzle look as they did when a person last looked at them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from aotviz.widgets.html import write_html
from tests.ui import pictures, puzzle
from tests.ui.views import VIEWS

PAINTED = "() => performance.getEntriesByName('aotviz graph painted').length > 0"


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_html(puzzle.recording(), tmp_path_factory.mktemp("goldens") / "puzzle.html")


@pytest.fixture
def page(still_page: Page, html: Path) -> Page:
    still_page.goto(html.as_uri())
    still_page.locator('.stage[data-stage="partition"]').click()
    return still_page


@pytest.fixture
def blank(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    yield page
    page.close()


def shot(page: Page, view: str) -> bytes:
    page.locator(f'[role=tab][data-view="{view}"]').click()
    expect(page.locator(".notice.loading")).to_have_count(0)
    if view == "graph":
        page.wait_for_function(PAINTED)
    return page.locator(".panel").screenshot(animations="disabled")


@pytest.mark.parametrize("view", [*VIEWS, "memory"])
def test_golden_of_a_view(page: Page, blank: Page, theme: str, screenshots: Path, view: str) -> None:
    pictures.check(blank, shot(page, view), f"{view}-{theme}", screenshots)


def test_golden_of_the_list_of_stages(page: Page, blank: Page, theme: str, screenshots: Path) -> None:
    pictures.check(blank, page.locator(".rail").screenshot(animations="disabled"), f"stages-{theme}", screenshots)


@pytest.mark.parametrize(("width", "view"), [(700, "graph"), (700, "saved"), (1600, "code")])
def test_golden_of_a_narrow_and_of_a_wide_page(
    page: Page, blank: Page, theme: str, screenshots: Path, width: int, view: str
) -> None:
    page.set_viewport_size({"width": width, "height": 700})
    shot(page, view)
    picture = page.screenshot(animations="disabled")
    pictures.check(blank, picture, f"{view}-{width}-{theme}", screenshots)


def test_another_view_is_no_golden_of_this_one(page: Page, blank: Page, screenshots: Path, theme: str) -> None:
    if pictures.UPDATE:
        pytest.skip("the goldens are being written")
    for view, golden in (("saved", "aliasing"), ("aliasing", "wrapper"), ("evidence", "saved")):
        with pytest.raises(AssertionError, match="looks otherwise than its golden"):
            pictures.check(blank, shot(page, view), f"{golden}-{theme}", screenshots)


def test_a_lost_card_is_seen(page: Page, blank: Page, screenshots: Path, theme: str) -> None:
    if pictures.UPDATE:
        pytest.skip("the goldens are being written")
    shot(page, "aliasing")
    page.locator(".card").first.evaluate("card => card.remove()")
    with pytest.raises(AssertionError, match="looks otherwise than its golden"):
        pictures.check(blank, shot(page, "aliasing"), f"aliasing-{theme}", screenshots)
