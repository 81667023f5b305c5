"""Who uses no mouse, or no eyes, can use the workbench: axe finds nothing serious, and keys reach everything."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from aotviz.torch_private import versions
from aotviz.widgets.html import write_html
from tests.tiers import THEMES
from tests.ui import puzzle
from tests.ui.fixture import ROOT
from tests.ui.views import VIEWS

AXE = ROOT / "extensions" / "node_modules" / "axe-core" / "axe.min.js"
SERIOUS = ("serious", "critical")
RUN = "axe.run(%s, {resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'best-practice']})"


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_html(puzzle.recording(), tmp_path_factory.mktemp("accessibility") / "puzzle.html")


@pytest.fixture(params=THEMES)
def page(browser: Browser, html: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=request.param, offline=True)
    page.goto(html.as_uri())
    page.locator('.stage[data-stage="partition"]').click()
    yield page
    page.close()


@cache
def install() -> None:
    """The packages of the front end, axe-core among them, where they are not installed."""
    subprocess.run([sys.executable, ROOT / "hatch_build.py", "npm", "--version"], check=True, capture_output=True)


def serious(page: Page, within: str = "document") -> list[str]:
    """What axe finds that keeps people out: rule, element, advice. `within` says where to look, in JavaScript."""
    if not page.evaluate("'axe' in window"):
        install()
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = page.evaluate(RUN % within)["violations"]
    return [
        f"{rule['id']} ({rule['impact']}): {node['target']}: {node['failureSummary']}"
        for rule in found
        if rule["impact"] in SERIOUS
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_serious(page: Page, view: str) -> None:
    page.locator(f'[role=tab][data-view="{view}"]').click()
    expect(page.locator(".notice.loading")).to_have_count(0)
    assert serious(page) == []


def focused(page: Page) -> str:
    """What has the focus, by role or class."""
    return str(
        page.evaluate(
            """() => {
                let element = document.activeElement;
                while (element?.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
                return element ? `${element.getAttribute('role') ?? ''} ${element.className} ${element.tagName}` : '';
            }"""
        )
    )


def tab_to(page: Page, what: str, most: int = 60) -> None:
    """Presses Tab until something with `what` in its description has the focus."""
    seen = []
    for _ in range(most):
        page.keyboard.press("Tab")
        seen.append(focused(page))
        if what in seen[-1]:
            return
    raise AssertionError(f"Tab never came to {what!r}; it came to {seen}")


def test_keys_alone_go_from_stage_to_view_to_a_fact_and_its_lines(page: Page) -> None:
    page.reload()
    tab_to(page, "option stage")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", "metadata")

    tab_to(page, "tab ")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page.locator("[role=tab][aria-selected=true]")).to_have_attribute("data-view", "aliasing")

    link = page.locator(".enforced button").first
    for _ in range(60):
        page.keyboard.press("Tab")
        if link.evaluate("element => element.getRootNode().activeElement === element"):
            break
    page.keyboard.press("Enter")
    expect(page.locator("[role=tab][aria-selected=true]")).to_have_attribute("data-view", "wrapper")
    expect(page.locator(".note[aria-pressed=true]")).to_have_count(1)
    expect(page.locator(".aot-marked")).to_have_count(1)


def test_arrow_keys_walk_the_wrapper_and_tell_the_reason_of_each_line(page: Page) -> None:
    page.locator('[role=tab][data-view="wrapper"]').click()
    page.locator(".cm-content").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("output.fact")).to_contain_text("autograd sees the whole call as this one function")
    first = 5 if versions.has("a backward may empty its list of gradients") else 3  # else two lines are missing
    for _ in range(first - 1):
        page.keyboard.press("ArrowDown")
    expect(page.locator("output.fact")).to_contain_text("autograd runs this at the call")
    expect(page.locator(".note[aria-pressed=true]")).to_contain_text(f"line {first}")


def test_a_table_is_sorted_and_its_row_opened_with_keys(page: Page) -> None:
    page.locator('[role=tab][data-view="saved"]').click()
    head = page.locator(".table thead button", has_text="Value")
    head.focus()
    page.keyboard.press("Enter")
    expect(page.locator("th[aria-sort=ascending]")).to_have_count(1)
    names = [text.splitlines()[0] for text in page.locator(".table tbody th").all_inner_texts()]  # its type is below
    assert names == sorted(names)
    page.keyboard.press("Enter")
    assert [text.splitlines()[0] for text in page.locator(".table tbody th").all_inner_texts()] == names[::-1]
    page.locator(".table tbody tr").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".facts h3")).to_have_text(names[-1])


STOP = """() => {
    let element = document.activeElement;
    while (element?.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
    if (!element || element === document.body) return null;
    const style = getComputedStyle(element.closest('.cm-editor') ?? element);
    const around = element.getBoundingClientRect();
    if (!window.stops.includes(element)) window.stops.push(element);
    return {
        number: window.stops.indexOf(element),
        what: `${element.tagName} ${element.className} ${element.textContent.slice(0, 30)}`,
        seen: around.bottom > 0 && around.top < innerHeight && around.right > 0 && around.left < innerWidth,
        marked: (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== 'none',
    };
}"""


def test_tab_goes_through_every_view_and_out_again_and_shows_where_it_is(page: Page) -> None:
    for view in VIEWS:
        page.locator(f'[role=tab][data-view="{view}"]').click()
        expect(page.locator(".notice.loading")).to_have_count(0)
        page.evaluate("window.stops = []")
        page.locator(f'[role=tab][data-view="{view}"]').focus()
        stops = []
        for _ in range(150):
            page.keyboard.press("Tab")
            stop = page.evaluate(STOP)
            if stop is None or (stops and stop["number"] == 0):
                break
            stops.append(stop)
        else:
            raise AssertionError(f"Tab never leaves the view {view}; it ends among {stops[-3:]}")
        assert stops, f"nothing in the view {view} can be reached"
        assert [stop["what"] for stop in stops if not stop["seen"]] == [], view
        assert [stop["what"] for stop in stops if not stop["marked"]] == [], view
        page.keyboard.press("Shift+Tab")
        assert page.evaluate(STOP) is not None  # and back in
