"""The exported page, as a person uses it: opened from disk, offline, every view, both themes."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect

import aotviz
from aotviz.reading.recording import Recording
from aotviz.widgets import packing
from aotviz.widgets.html import to_html, write_html
from aotviz.widgets.server import Viewer
from tests import corpus
from tests.ui.fixture import MARKUP, recording


class Watch:
    """What a page must not do."""

    def __init__(self, page: Page) -> None:
        self.requests: list[str] = []
        self.problems: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        page.on("console", lambda line: self.problems.append(line.text) if line.type == "error" else None)


@pytest.fixture
def page(browser: Browser, theme: str) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=theme, offline=True)  # type: ignore[arg-type]
    yield page
    page.close()


def open_page(page: Page, html: Path) -> Watch:
    watch = Watch(page)
    page.goto(html.as_uri())
    return watch


def stage(page: Page, name: str) -> None:
    page.locator(f'.stage[data-stage="{name}"]').click()


def view(page: Page, name: str) -> None:
    page.locator(f'[role=tab][data-view="{name}"]').click()


def test_every_view_shows_what_the_recording_holds_and_asks_nothing_of_the_network(
    page: Page, theme: str, tmp_path: Path, screenshots: Path
) -> None:
    html = write_html(recording(), tmp_path / "recording.html")
    watch = open_page(page, html)

    def shot(name: str) -> None:
        page.screenshot(path=screenshots / f"page-{theme}-{name}.png")

    expect(page.locator(".workbench")).to_have_attribute("data-theme", theme)
    expect(page.locator(".stage")).to_have_count(15)

    stage(page, "trace")
    code = page.locator(".cm-content")
    expect(code).to_contain_text("gelu: f32[8, 64] = aten.gelu.default(addmm, approximate='none')")
    page.locator(".cm-line", has_text="addmm_1:").click()
    facts = page.locator(".facts")
    expect(facts.locator("h3")).to_have_text("addmm_1")
    expect(facts).to_contain_text("model.py:12 in forward")
    shot("code")

    stage(page, "decompose")  # the selected value has another name there
    expect(facts.locator("h3")).to_have_text("add_bias_1")
    view(page, "diff")
    expect(page.locator(".bar")).to_contain_text("trace · joint")
    expect(page.locator(".cm-insertedLine, .cm-changedLine").first).to_be_visible()
    shot("diff")

    facts.get_by_label("Close").click()
    expect(facts).to_be_hidden()
    stage(page, "trace")
    view(page, "graph")
    rows = page.locator(".outline [role=treeitem]")
    expect(page.locator(".outline [aria-level='1'] .label")).to_have_text(["forward", "backward"])
    expect(page.locator(".outline [aria-expanded=false]")).to_have_count(6)
    expect(page.locator(".graph-foot .status")).to_have_text("43 nodes in 11 boxes")
    shot("graph")
    rows.filter(has_text="blocks.1").first.click()
    rows.filter(has_text="act").click()
    rows.filter(has_text="gelu_1").click()
    expect(facts.locator("h3")).to_have_text("gelu_1")
    expect(page.locator(".outline [aria-selected=true]")).to_contain_text("gelu_1")
    shot("graph-open")

    stage(page, "partition")
    page.locator('.roles [data-role="backward"]').click()
    expect(facts.locator("h3")).to_be_hidden()
    expect(page.locator(".graph-foot")).to_contain_text("returns a gradient")
    page.locator('.roles [data-role="forward"]').click()
    expect(page.locator(".graph-foot")).to_contain_text("saves for the backward")

    view(page, "saved")
    expect(page.locator(".panel tbody tr")).to_have_count(9)
    shot("saved")
    view(page, "wrapper")
    page.locator(".note", has_text="contiguous").click()
    expect(page.locator(".aot-marked")).to_have_text("    tangent = tangent.contiguous()")
    shot("wrapper")
    view(page, "evidence")
    expect(page.locator(".panel")).to_contain_text("recomputing it would run a matrix multiplication again")
    shot("evidence")

    page.locator("select").select_option("1")
    view(page, "aliasing")
    expect(page.locator(".panel tbody").first).to_contain_text("storage 0")
    expect(page.locator(".panel tbody").nth(1)).to_contain_text("alias_of_input")
    shot("aliasing")
    page.locator("select").select_option("2")
    expect(page.get_by_role("alert")).to_contain_text("RuntimeError in metadata")
    shot("failed")

    assert [url for url in watch.requests if not url.startswith("blob:")] == [html.as_uri()]
    assert watch.problems == []


def test_markup_in_names_stays_text(page: Page, tmp_path: Path) -> None:
    watch = open_page(page, write_html(recording(), tmp_path / "markup.html"))
    page.locator("[role=tab][data-view=code]").click()
    expect(page.locator(".cm-content")).to_contain_text(f"blocks.0.fc{MARKUP}.weight")
    for name in ("diff", "graph", "aliasing", "saved", "wrapper", "evidence", "code"):
        stage(page, "partition")
        view(page, name)
        expect(page.locator(".notice.loading")).to_have_count(0)
        if name in ("aliasing", "saved", "wrapper", "evidence"):
            expect(page.locator(".panel")).to_contain_text(MARKUP)
    page.locator("select").select_option("1")
    assert page.evaluate("document.querySelector('main').shadowRoot.querySelectorAll('img, script').length") == 0
    assert page.locator("img").count() == 0
    assert watch.problems == []


def test_arrow_keys_step_through_the_stages(page: Page, tmp_path: Path) -> None:
    open_page(page, write_html(recording(), tmp_path / "keys.html"))
    stage(page, "trace")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", "decompose")
    page.keyboard.press("Home")
    expect(page.locator(".panel")).to_contain_text("This stage made no graph.")
    page.keyboard.press("End")
    expect(page.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", "link")


def test_a_node_is_found_by_part_of_its_name(page: Page, tmp_path: Path) -> None:
    open_page(page, write_html(recording(), tmp_path / "find.html"))
    view(page, "graph")
    expect(page.locator(".outline .row").first).to_be_visible()
    page.get_by_label("Search the recording").fill("gelu_backward")
    page.keyboard.press("Enter")
    expect(page.locator(".facts h3")).to_have_text("gelu_backward")  # that has this whole name
    expect(page.locator(".find output")).to_have_text("3 of 3")
    expect(page.locator(".outline [aria-selected=true]")).to_contain_text("gelu_backward")


def test_what_is_not_a_recording_says_so(page: Page, tmp_path: Path) -> None:
    data = recording().data
    newer = gzip.compress(msgspec.msgpack.encode(msgspec.structs.replace(data, version=99)))
    cases = {
        b"nonsense": "This is not an aotviz recording",
        packing.pack(data)[:900]: "This recording is damaged",
        newer: "Upgrade aotviz",
    }
    for number, (packed, message) in enumerate(cases.items()):
        html = tmp_path / f"bad{number}.html"
        html.write_text(to_html(data, packed), encoding="utf-8")
        open_page(page, html)
        expect(page.get_by_role("alert")).to_contain_text(message)


def test_an_empty_recording_says_what_to_do(page: Page, tmp_path: Path) -> None:
    empty = recording()
    empty.data = msgspec.structs.replace(empty.data, compilations=[], cache_lookups=[])
    open_page(page, write_html(empty, tmp_path / "empty.html"))
    expect(page.locator(".notice")).to_contain_text("Nothing was compiled.")


def test_a_log_of_torch_is_shown_like_our_own_recordings(browser: Browser, tmp_path: Path) -> None:
    page = browser.new_page(offline=True)
    log = aotviz.read_trace(corpus.folder("ranks"), index=False)
    watch = open_page(page, write_html(log, tmp_path / "log.html"))
    stage(page, "joint")
    expect(page.locator(".stage[data-stage=joint]")).to_contain_text("joint: 21 nodes")
    for tab in page.locator("[role=tab]").all():
        tab.click()
    assert watch.problems == []
    page.close()


def test_a_served_page_fetches_the_editor_and_graphviz_once_and_needs_its_server_no_more(browser: Browser) -> None:
    viewer = Viewer(Recording(recording().data))
    thread = threading.Thread(target=viewer.serve)
    thread.start()
    page = browser.new_page()
    watch = Watch(page)
    with page.expect_response("**/editor.js") as editor, page.expect_response("**/graphviz.js") as graphviz:
        page.goto(f"{viewer.url}#view=stage")
    for answer in (editor.value, graphviz.value):
        answer.finished()
    page.wait_for_function("performance.getEntriesByType('resource').length === 2")
    viewer.close()
    thread.join()
    view(page, "code")
    expect(page.locator(".cm-content").first).to_be_visible()
    view(page, "graph")
    expect(page.locator(".graph-foot .status")).to_contain_text("boxes")
    expect(page.locator(".graph-foot .status")).not_to_contain_text("plain layout")
    asked = [url.removeprefix(viewer.url).partition("#")[0] for url in watch.requests if url.startswith("http")]
    assert sorted(asked) == ["", "editor.js", "graphviz.js"]
    assert not watch.problems
    page.close()
