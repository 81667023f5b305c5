"""Drawings beside each other: of other stages and of another compilation. What is done in one, the others do too."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from aotviz.reading.recording import Recording
from aotviz.widgets.html import write_html
from tests.tiers import SCREENS
from tests.ui import jupyter
from tests.ui.conftest import still
from tests.ui.fixture import recording
from tests.ui.test_accessibility import serious


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_html(recording(), tmp_path_factory.mktemp("beside") / "page.html")


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with still(browser, "light") as page:
        yield page


def open_beside(page: Page, html: Path, *beside: dict[str, str], stage: str = "trace") -> None:
    page.goto("about:blank")
    page.goto(f"{html.as_uri()}#{urlencode({'view': 'graph', 'stage': stage, 'beside': json.dumps(beside)})}")
    expect(page.locator(".pane")).to_have_count(1 + len(beside))
    for pane in page.locator(".pane").all():
        drawn(pane)


def drawn(pane: Locator) -> None:
    expect(pane.locator(".status")).to_contain_text("box")
    expect(pane.locator("canvas.drawing")).to_have_attribute("aria-busy", "false")


def pane(page: Page, number: int) -> Locator:
    return page.locator(".pane").nth(number)


def select(where: Locator, name: str) -> None:
    """Selects a node, or opens or closes a module, in the outline of one drawing."""
    outline = where.get_by_role("tree")
    if not outline.is_visible():
        button = where.get_by_role("button", name="Outline")
        (button if button.count() else where.page.locator(".graph-bar").get_by_role("button", name="Outline")).click()
    outline.locator(f'.row .label:text-is("{name}")').first.click()


def chosen(where: Locator) -> Locator:
    return where.locator('.row[aria-selected="true"] .label')


def picture(where: Locator) -> str:
    drawn(where)
    return str(where.locator("canvas.drawing").evaluate("canvas => canvas.toDataURL()"))


FORWARD = {"stage": "partition", "role": "forward"}
BACKWARD = {"stage": "partition", "role": "backward"}
DECOMPOSED = {"stage": "decompose", "role": "joint"}


@pytest.mark.parametrize(("width", "theme"), SCREENS)
def test_stages_are_drawn_beside_each_other(
    browser: Browser, html: Path, theme: str, width: int, screenshots: Path
) -> None:
    with still(browser, theme) as page:
        page.set_viewport_size({"width": width, "height": 900})
        open_beside(page, html)
        if width < 700:
            page.set_viewport_size({"width": width, "height": 1500})
        page.get_by_label("Draw beside").select_option(label="10 partition · forward")
        page.get_by_label("Draw beside").select_option(label="10 partition · backward")
        heads = page.locator(".pane-head > span")
        expect(heads).to_have_count(3)
        for number, title in enumerate(("8 trace joint", "10 partition forward", "10 partition backward")):
            expect(heads.nth(number)).to_contain_text(title)
            expect(heads.nth(number)).to_contain_text("nodes")
            drawn(pane(page, number))
        expect(page.get_by_label("Draw beside")).to_be_disabled()
        tops = [pane(page, number).bounding_box()["y"] for number in range(3)]  # type: ignore[index]
        assert len(set(tops)) == (1 if width > 700 else 3), "in a narrow window they are below each other"
        page.screenshot(path=screenshots / f"beside-{width}-{theme}.png")
        assert serious(page) == []
        page.locator(".help-button").click()
        expect(page.locator(".help-words")).to_contain_text("Draws another graph beside the open one")
        page.keyboard.press("Escape")
        page.reload()
        expect(heads).to_have_count(3)
        pane(page, 1).get_by_label("Close this drawing").click()
        expect(heads).to_have_count(2)
        expect(heads.nth(1)).to_contain_text("backward")
        pane(page, 1).get_by_label("Close this drawing").click()
        expect(page.locator(".pane")).to_have_count(1)
        assert "beside=" not in page.url


def test_a_node_is_selected_in_all_drawings_from_each_of_them(page: Page, html: Path) -> None:
    open_beside(page, html, FORWARD, DECOMPOSED)
    page.get_by_role("button", name="Open all").click()
    select(pane(page, 1), "gelu_1")
    expect(page.locator(".facts")).to_contain_text("gelu_1")
    select(pane(page, 0), "addmm_1")
    pane(page, 2).get_by_role("button", name="Outline").click()
    for number, found in enumerate((["addmm_1"], ["mm_1", "add_bias_1"], ["mm_1", "add_bias_1"])):
        expect(chosen(pane(page, number))).to_have_text(found)
    select(pane(page, 2), "mm_1")
    expect(chosen(pane(page, 0))).to_have_text("addmm_1")
    expect(pane(page, 0).locator(".note-line")).to_contain_text("mm_1 is not in trace. Stage decompose is the first")
    page.keyboard.press("Escape")
    for number in range(3):
        expect(chosen(pane(page, number))).to_have_count(0)


def test_a_drawing_that_lacks_the_node_says_why_and_leads_to_the_one_that_has_it(page: Page, html: Path) -> None:
    open_beside(page, html, FORWARD)
    page.get_by_label("Search the recording").fill("name:gelu_backward_1")
    page.get_by_label("Search the recording").press("Enter")
    note = pane(page, 1).locator(".note-line")
    expect(note).to_contain_text("gelu_backward_1 is not in partition (forward). It is in the backward graph.")
    note.get_by_role("button", name="backward").click()
    expect(pane(page, 1).locator(".pane-head")).to_contain_text("partition backward")
    expect(chosen(pane(page, 1))).to_have_text("gelu_backward_1")
    page.reload()
    expect(pane(page, 1).locator(".pane-head")).to_contain_text("partition backward")


def test_modules_are_opened_and_the_camera_is_moved_in_step(page: Page, html: Path) -> None:
    open_beside(page, html, FORWARD)
    before = pane(page, 1).locator(".status").inner_text()
    select(pane(page, 0), "blocks.0")
    expect(pane(page, 1).locator(".status")).not_to_have_text(before)
    pane(page, 1).get_by_role("button", name="Outline").click()
    opened = pane(page, 1).locator('.row[aria-expanded="true"] .label:text-is("blocks.0")')
    expect(opened).to_have_count(1)
    select(pane(page, 1), "blocks.0")
    expect(pane(page, 1).locator(".status")).to_have_text(before)
    canvas = pane(page, 1).locator("canvas.drawing")
    seen = []
    for key in ("+", "-", "ArrowDown", "ArrowUp", "+", "-"):
        canvas.press(key)
        seen.append(picture(pane(page, 0)))
    zoomed, still, down, back, *again = seen
    assert len({zoomed, still, down}) == 3
    assert [back, *again] == [still, zoomed, still], "the keys undo each other"


def test_a_search_marks_the_nodes_of_all_drawings(page: Page, html: Path) -> None:
    open_beside(page, html, FORWARD)
    found = []
    for text in ("op:mm", "op:none_such", "op:mm", "op:none_such"):
        page.get_by_label("Search the recording").fill(text)
        found.append(picture(pane(page, 1)))
    assert found[0] == found[2] != found[1] == found[3]


def test_another_compilation_goes_along_from_stage_to_stage(page: Page, html: Path) -> None:
    open_beside(page, html)
    choice = page.get_by_label("Draw beside").locator("optgroup").last.locator("option").first
    page.get_by_label("Draw beside").select_option(value=choice.get_attribute("value"))
    beside = pane(page, 1)
    expect(beside.locator(".pane-head")).to_contain_text(" [1] · ")
    expect(beside.locator(".pane-head")).to_contain_text("trace")
    page.locator('.stage[data-stage="partition"]').first.click()
    expect(beside).to_contain_text("Compilation 1 has no stage partition.")
    page.locator('.stage[data-stage="trace"]').first.click()
    drawn(beside)


def test_python_opens_drawings_beside_each_other(page: Page, html: Path) -> None:
    shown = Recording(recording().data)
    bookmark = shown.show("graph", stage="trace", beside=[("partition", "backward"), shown["1"]]).bookmark
    page.goto(f"{html.as_uri()}#{urlencode(bookmark)}")
    expect(pane(page, 1).locator(".pane-head")).to_contain_text("partition backward")
    expect(pane(page, 2).locator(".pane-head")).to_contain_text("trace")


STEPS = """
import aotviz, torch
step = aotviz.compile(lambda x, w: (x @ w).relu().sum(), backend="eager")
w = torch.ones(4, 4, requires_grad=True)
step(torch.ones(4, 4), w).backward()
step(torch.ones(8, 4), w).backward()
recording = step.recording
"""
SHOWN = 'recording.show("graph", stage="trace", beside=[("partition", "backward"), recording[1]])'
MORE = "step(torch.ones(8, 4).double(), w.detach().double()); None"


@pytest.mark.slow
def test_in_a_notebook_the_kernel_sends_what_is_beside(lab: jupyter.Server, lab_page: Page) -> None:
    jupyter.write_notebook(lab.work / "beside.ipynb", STEPS, SHOWN, MORE)
    jupyter.open_notebook(lab_page, lab, "beside.ipynb")
    jupyter.run_cell(lab_page, 0)
    jupyter.run_cell(lab_page, 1)
    expect(lab_page.locator(".pane")).to_have_count(3, timeout=60_000)
    titles = lab_page.locator(".pane-head > span")
    expect(titles.nth(1)).to_contain_text("partition backward")
    expect(titles.nth(2)).to_contain_text(re.compile(r"\[0/1\] .*trace joint · \d+ nodes"))
    for number in range(3):
        drawn(pane(lab_page, number))
    lab_page.get_by_label("Search the recording").fill("name:mm")
    lab_page.get_by_label("Search the recording").press("Enter")
    pane(lab_page, 2).get_by_role("button", name="Outline").click()
    expect(chosen(pane(lab_page, 2))).to_have_text("mm")
    jupyter.run_cell(lab_page, 2)
    expect(lab_page.get_by_label("Compilation", exact=True).locator("option")).to_have_count(3, timeout=60_000)
    expect(titles.nth(2)).to_contain_text("trace joint")
    expect(chosen(pane(lab_page, 2))).to_have_text("mm")
