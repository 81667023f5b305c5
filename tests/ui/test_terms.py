"""Every word of the workbench is explained where it stands, and in the help, which "?" opens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import aotviz
from aotviz.widgets.html import write_html
from tests import corpus
from tests.tiers import THEMES
from tests.ui import puzzle, whole_backward
from tests.ui.fixture import recording
from tests.ui.test_accessibility import serious

RECORDINGS: dict[str, Callable[[], aotviz.Recording]] = {
    "puzzle": puzzle.recording,
    "fixture": recording,
    "whole backward": whole_backward.recording,
    "training": lambda: aotviz.read_trace(corpus.folder("training")),
}
WORDS = (
    ".chip, thead th, thead td:not(:empty), [role=tab], .stage-head h2, .form, .legend > span:not(.none), .key, "
    ".rail .stage[data-stage]"
)
THEIRS = {"decompose", "faint form: It returns a InferenceGraph."}  # in the fixture, and not ours
UNEXPLAINED = f"""body => [...body.querySelectorAll({WORDS!r})]
    .filter((element) => element.checkVisibility() && !element.dataset.term && element.textContent.trim())
    .map((element) => element.dataset.stage ?? `${{element.className || element.tagName}}: ${{element.textContent}}`)"""


@pytest.fixture(params=THEMES)
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=request.param, offline=True)
    yield page
    page.close()


@pytest.mark.every(2)
@pytest.mark.parametrize("name", RECORDINGS)
def test_each_badge_column_tab_stage_and_legend_entry_has_a_term(browser: Browser, tmp_path: Path, name: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800}, offline=True)
    page.goto(write_html(RECORDINGS[name](), tmp_path / "terms.html").as_uri())
    body = page.locator(".workbench")
    missing: set[str] = set()
    compilations = page.get_by_label("Compilation", exact=True)
    for number in range(min(compilations.locator("option").count(), 3) or 1):
        if compilations.count():
            compilations.select_option(index=number)
        for stage in ("partition", "link"):
            found = page.locator(f'.stage[data-stage="{stage}"]')
            if found.count():
                found.click()
        for tab in page.locator("[role=tab]").all():
            tab.click()
            expect(page.locator(".notice.loading")).to_have_count(0)
            missing |= set(body.evaluate(UNEXPLAINED))
            if tab.get_attribute("data-view") == "records":
                kinds = page.locator(".panel .bar button:not([disabled])")
                for kind in kinds.all():
                    kind.click()
                    missing |= set(body.evaluate(UNEXPLAINED))
            if tab.get_attribute("data-view") == "graph" and page.get_by_label("Colour by").count():
                for option in page.get_by_label("Colour by").locator("option").all():
                    page.get_by_label("Colour by").select_option(value=option.get_attribute("value"))
                    missing |= set(body.evaluate(UNEXPLAINED))
    page.close()
    assert missing - THEIRS == set()


def test_the_help_explains_what_is_on_the_screen_and_finds_others(page: Page, tmp_path: Path) -> None:
    page.goto(write_html(puzzle.recording(), tmp_path / "help.html").as_uri())
    page.locator('.stage[data-stage="partition"]').click()
    page.locator("[role=tab][data-view=saved]").click()
    page.keyboard.press("?")
    help = page.get_by_role("dialog", name="What is this?")
    words = help.locator(".help-words dt b")
    expect(words.first).to_have_text("partition")
    shown = words.all_inner_texts()
    assert {"saved", "kept", "Read by", "Saved tensors"} <= set(shown)
    assert "synthetic base" not in shown  # of another view
    expect(help.locator(".help-example").first).to_contain_text("joint(x, tangent)")
    expect(help.locator(".help-keys")).to_contain_text("previous and next stage")
    assert serious(page) == []
    page.keyboard.type("tangent")
    expect(words.first).to_have_text("tangent")
    page.keyboard.press("Escape")
    expect(help).to_be_hidden()
    tooltip = page.locator(".panel .chip", has_text="kept").first.get_attribute("title") or ""
    assert "must not overwrite the memory of this saved tensor" in tooltip

    page.get_by_role("button", name="changed nothing: show").click()
    page.locator('.stage[data-stage="functionalize"]').click()
    page.get_by_role("button", name="What is functionalize?").click()
    expect(words.first).to_have_text("functionalize")
    expect(help.locator(".help-example").first).to_contain_text("copy_(x, add)")
