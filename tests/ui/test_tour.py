"""A first visit offers a tour of eight steps through the reader's own recording. Each step points at the real thing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from aotviz.widgets.html import write_html
from tests.ui import puzzle, real_model
from tests.ui.conftest import still
from tests.ui.test_accessibility import serious

NO_STORAGE = (
    "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no', 'SecurityError') } })"
)
STEPS = [  # what is opened, the element that the ring is around, and a part of what it says
    (None, ".rail .stages", "metadata"),
    ("aliasing", ".writes li >> nth=0", "writes a"),
    ("aliasing", ".card .windows >> nth=0", "base of a, b"),
    ("wrapper", ".aot-marked", "base.copy_(out[0])"),
    ("graph", ".roles", "backward"),
    ("saved", "tr:has(th:has-text('detach_2'))", "detach_2"),
    ("evidence", ".panel tbody tr >> nth=0", "primals_3"),
    (None, ".help-button", "?"),
]
COVERED = """([card, ring]) => {
    const [one, two] = [card, ring].map((element) => element.getBoundingClientRect());
    return one.left < two.right && two.left < one.right && one.top < two.bottom && two.top < one.bottom;
}"""
AROUND = """([ring, element]) => {
    const [outer, inner] = [ring, element].map((one) => one.getBoundingClientRect());
    const near = (one, two) => Math.abs(one - two) < 12;
    return near(outer.left, inner.left) && near(outer.top, inner.top) && near(outer.bottom, inner.bottom);
}"""


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_html(puzzle.recording(), tmp_path_factory.mktemp("tour") / "puzzle.html")


@pytest.fixture
def page(browser: Browser, theme: str, html: Path) -> Iterator[Page]:
    with still(browser, theme) as page:
        page.goto(html.as_uri())
        yield page


def at(page: Page, number: int) -> None:
    expect(page.locator(".tour-card")).to_contain_text(f"{number} of 8")


def test_each_step_opens_a_view_and_points_at_what_it_says(page: Page, theme: str, screenshots: Path) -> None:
    page.get_by_role("button", name="Take a tour of this recording").click()
    for number, (view, element, text) in enumerate(STEPS, 1):
        at(page, number)
        if view:
            expect(page.locator(f"[role=tab][data-view={view}]")).to_have_attribute("aria-selected", "true")
        expect(page.locator(element).first).to_contain_text(text)
        expect(page.locator(".tour-ring")).to_be_visible()
        if number > 1:  # the list of stages is longer than the page
            handles = [page.locator(".tour-ring").element_handle(), page.locator(element).first.element_handle()]
            page.wait_for_function(AROUND, arg=handles)
        if number in (2, 4):
            assert serious(page) == []
            page.screenshot(path=screenshots / f"tour-{theme}-{number}.png", animations="disabled")
        page.keyboard.press("Enter" if number % 2 else "ArrowRight")
    expect(page.locator(".tour-card")).to_be_hidden()
    expect(page.locator(".tour-ring")).to_be_hidden()


def test_keys_go_on_and_back_and_skip_and_the_focus_returns(page: Page) -> None:
    page.locator('.stage[data-stage="metadata"]').focus()
    page.keyboard.press("?")
    page.get_by_role("button", name="A tour through this recording").click()
    at(page, 1)
    expect(page.locator(".tour-card").get_by_role("button", name="Next")).to_be_focused()
    page.keyboard.press("ArrowRight")
    at(page, 2)
    page.keyboard.press("ArrowLeft")
    at(page, 1)
    page.keyboard.press("Shift+Tab")  # Skip: Back is disabled on the first step
    page.keyboard.press("Enter")
    expect(page.locator(".tour-card")).to_be_hidden()
    page.keyboard.press("?")
    page.get_by_role("button", name="A tour through this recording").click()
    page.keyboard.press("ArrowRight")
    page.locator(".panel .card h3").first.click()  # the workbench stays usable
    page.keyboard.press("ArrowRight")
    at(page, 3)
    page.keyboard.press("Escape")
    expect(page.locator(".tour-card")).to_be_hidden()
    page.keyboard.press("3")  # the keys belong to the workbench again
    expect(page.locator("[role=tab][data-view=diff]")).to_have_attribute("aria-selected", "true")


@pytest.mark.parametrize("answer", ["Take a tour of this recording", "Do not offer the tour again"])
def test_the_offer_is_answered_once_and_for_ever(browser: Browser, html: Path, answer: str) -> None:
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(html.as_uri())
    page.get_by_role("button", name=answer).click()
    expect(page.locator(".invitation")).to_have_count(0)
    page.reload()
    expect(page.locator(".stage[aria-selected=true]")).to_be_visible()
    expect(page.locator(".invitation")).to_have_count(0)
    expect(page.locator(".tour-card")).to_be_hidden()
    context.close()


@pytest.mark.slow
def test_where_nothing_can_be_remembered_only_the_help_offers_it(browser: Browser, html: Path) -> None:
    page = browser.new_page(offline=True)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.add_init_script(NO_STORAGE)
    page.goto(html.as_uri())
    expect(page.locator(".stage[aria-selected=true]")).to_be_visible()
    expect(page.locator(".invitation")).to_have_count(0)
    page.keyboard.press("?")
    page.get_by_role("button", name="A tour through this recording").click()
    at(page, 1)
    assert problems == []
    page.close()


def test_the_card_stays_inside_a_narrow_cell(page: Page, theme: str, screenshots: Path) -> None:
    page.set_viewport_size({"width": 500, "height": 800})
    page.screenshot(path=screenshots / f"tour-{theme}-500-offer.png", animations="disabled")
    page.locator(".invitation .link").click()
    for number in range(1, 9):
        at(page, number)
        expect(page.locator(".tour-ring")).to_be_visible()
        card, frame = page.locator(".tour-card").bounding_box(), page.locator(".workbench").bounding_box()
        assert card
        assert frame
        assert frame["x"] <= card["x"]
        assert card["x"] + card["width"] <= frame["x"] + frame["width"]
        assert frame["y"] <= card["y"]
        assert card["y"] + card["height"] <= frame["y"] + frame["height"]
        if number == 2:
            page.screenshot(path=screenshots / f"tour-{theme}-500.png", animations="disabled")
        page.keyboard.press("Enter")


@pytest.fixture(scope="module")
def of_a_real_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_html(real_model.recording(), tmp_path_factory.mktemp("tour") / "gpt2.html")


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (500, 700), (1280, 420)])
def test_the_tour_of_a_real_model_is_about_the_users_lines_and_covers_nothing_that_it_points_at(
    browser: Browser, theme: str, of_a_real_model: Path, width: int, height: int, screenshots: Path
) -> None:
    with still(browser, theme) as page:
        page.set_viewport_size({"width": width, "height": height})
        page.goto(of_a_real_model.as_uri())
        expect(page.locator(".overview .headline")).to_be_visible()
        page.keyboard.press("?")
        page.get_by_role("button", name="A tour through this recording").click()
        card, ring = page.locator(".tour-card"), page.locator(".tour-ring")
        told = []
        for number in range(1, 9):
            at(page, number)
            expect(ring).to_be_visible()
            expect(page.locator(".panel .notice.loading")).to_have_count(0)
            shown = [card.element_handle(), ring.element_handle()]
            page.wait_for_function(f"(shown) => !({COVERED})(shown)", arg=shown)
            expect(card).to_be_in_viewport(ratio=1)
            assert "same" not in (page.locator(".stage[aria-selected=true]").get_attribute("class") or "").split()
            told.append(card.inner_text())
            if number in (1, 2, 6):
                page.screenshot(path=screenshots / f"tour-gpt2-{theme}-{width}x{height}-{number}.png")
            page.keyboard.press("Enter" if number % 2 else "ArrowRight")
        expect(card).to_be_hidden()
        expect(page.locator(".workbench")).to_have_css("padding-bottom", "0px")
    assert f"real_model.py:{real_model.line('return -guesses')} return -guesses.gather" in told[1]
    assert f"at real_model.py:{real_model.line('self.steps.add_')} self.steps.add_(1)" in told[2]
    assert not any("modeling_gpt2" in text for text in told)
