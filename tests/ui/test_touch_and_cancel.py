"""Fingers on the graph, and long work that the reader ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, CDPSession, Page, expect

from aotviz.widgets.html import write_html
from tests.ui.fixture import recording
from tests.ui.test_graph_view import flat_recording

SILENT_WORKER = """
window.ended = 0;
window.Worker = class extends EventTarget { postMessage() {} terminate() { window.ended++; } };
"""

# The page takes a breath by a timeout of no time: here it goes on when the test says so, after one step of its work.
STEP_BY_STEP = """
const later = window.setTimeout.bind(window), held = [];
let runs = false, clock = 0;
window.setTimeout = (act, ms, ...more) => ms === undefined && !runs ? held.push(act) : later(act, ms, ...more);
window.step = () => { const act = held.shift(); if (act) act(); return new Promise((done) => later(done, 0)); };
window.run = () => { runs = true; performance.now = own; while (held.length) held.shift()(); };
const own = performance.now.bind(performance);
performance.now = () => (clock += 20);  // so that its time is up
"""


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": 1000, "height": 800}, has_touch=True, offline=True, reduced_motion="reduce"
    )
    yield context.new_page()
    context.close()


def open_graph(page: Page, html: Path) -> None:
    page.goto(f"{html.as_uri()}#view=graph&stage=trace")
    expect(page.locator(".graph-foot .status")).to_contain_text("boxes")


class Fingers:
    """On the middle of the canvas, `apart` pixels from each other."""

    def __init__(self, page: Page) -> None:
        self.session: CDPSession = page.context.new_cdp_session(page)
        box = page.locator("canvas.drawing").bounding_box()
        assert box is not None
        self.x, self.y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def _send(self, kind: str, points: list[tuple[float, float]]) -> None:
        touches = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)]
        self.session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})

    def pinch(self, before: float, after: float) -> None:
        at = [[(self.x - apart / 2, self.y), (self.x + apart / 2, self.y)] for apart in (before, after)]
        self._send("touchStart", at[0])
        self._send("touchMove", at[1])
        self._send("touchEnd", [])

    def drag(self, dx: float, dy: float) -> None:
        self._send("touchStart", [(self.x, self.y)])
        for part in (0.3, 0.6, 1.0):
            self._send("touchMove", [(self.x + part * dx, self.y + part * dy)])
        self._send("touchEnd", [])


def frame(page: Page) -> dict[str, float]:
    """What the minimap says is in view."""
    found: dict[str, float] = page.locator(".minimap .frame").evaluate(
        "frame => ({ left: frame.offsetLeft, top: frame.offsetTop, width: frame.offsetWidth })"
    )
    return found


def test_two_fingers_zoom_and_one_pans(page: Page, tmp_path: Path) -> None:
    open_graph(page, write_html(recording(), tmp_path / "touch.html"))
    expect(page.locator(".minimap")).to_be_hidden()  # most of the drawing is in view
    fingers = Fingers(page)
    fingers.pinch(60, 300)
    expect(page.locator(".minimap")).to_be_visible()
    near = frame(page)
    fingers.drag(-80, -60)
    moved = frame(page)
    assert moved["left"] > near["left"]
    assert moved["top"] > near["top"]
    assert moved["width"] == pytest.approx(near["width"], abs=2)
    fingers.pinch(300, 60)
    expect(page.locator(".minimap")).to_be_hidden()
    expect(page.locator(".facts h3")).to_be_hidden()  # no finger was taken for a click


def test_a_layout_that_takes_long_can_be_cancelled_and_modules_closed_instead(page: Page, tmp_path: Path) -> None:
    page.add_init_script(SILENT_WORKER)
    html = write_html(flat_recording(4000, reads=2), tmp_path / "long.html")
    open_graph(page, html)  # graphviz is silent, so the plain layout serves
    before = page.locator(".graph-foot .status").inner_text()
    page.locator("[data-toggle=flat]").click()
    expect(page.locator(".overlay")).to_contain_text("Laying out the graph")
    ended = page.evaluate("window.ended")
    page.locator(".overlay").get_by_role("button", name="Cancel").click()
    expect(page.locator(".overlay")).to_contain_text("The layout was cancelled.")
    assert page.evaluate("window.ended") == ended + 1
    page.locator(".overlay").get_by_role("button", name="Close all modules").click()
    expect(page.locator(".overlay")).to_be_hidden()
    expect(page.locator(".graph-foot .status")).to_have_text(before)
    expect(page.locator("[data-toggle=flat]")).to_have_attribute("aria-pressed", "false")


@pytest.mark.slow
def test_a_very_large_graph_says_how_far_it_is_and_can_be_cancelled(
    page: Page, tmp_path: Path, screenshots: Path
) -> None:
    page.add_init_script(STEP_BY_STEP)
    page.goto(f"{write_html(flat_recording(150_000), tmp_path / 'large.html').as_uri()}#view=graph&stage=trace")
    overlay = page.locator(".overlay")
    expect(overlay).to_contain_text("Grouping 150,001 nodes by module …")
    how_far = overlay.get_by_role("progressbar")
    for _ in range(7):  # of twelve
        page.evaluate("step()")
    assert 0.3 < how_far.evaluate("bar => bar.value") < 0.7
    page.screenshot(path=screenshots / "graph-very-large.png")
    overlay.get_by_role("button", name="Cancel").click()
    expect(overlay).to_contain_text("The graph is not shown.")
    page.evaluate("step()")
    expect(page.locator(".graph-foot .status")).to_be_empty()

    page.evaluate("run()")
    overlay.get_by_role("button", name="Try again").click()
    expect(page.locator(".graph-foot .status")).to_have_text("150,001 nodes in 101 boxes")
    expect(overlay).to_be_hidden()


def test_a_large_recording_is_opened_step_by_step_and_can_be_cancelled(
    page: Page, tmp_path: Path, screenshots: Path
) -> None:
    large = recording()
    large.data = msgspec.structs.replace(large.data, strings=[*large.data.strings, "x" * (1 << 23)])
    page.add_init_script(STEP_BY_STEP)
    page.goto(write_html(large, tmp_path / "large.html").as_uri())
    notice = page.locator(".workbench .notice")
    expect(notice).to_contain_text("compilations …")
    how_far = notice.get_by_role("progressbar")
    expect(how_far).to_be_visible()
    for _ in range(5):
        page.evaluate("step()")
    assert how_far.evaluate("bar => bar.value") > 0
    page.screenshot(path=screenshots / "opening-large.png")
    notice.get_by_role("button", name="Cancel").click()
    page.evaluate("step()")
    expect(page.locator(".workbench")).to_contain_text("The recording was not opened.")
    page.evaluate("run()")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator('[role=tab][data-view="graph"]')).to_be_visible()
