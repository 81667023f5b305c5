"""The pages of records: stacks, graph breaks, guards, symbolic shapes, cache lookups, metrics and links of logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import aotviz
from aotviz.explain import graph_breaks
from aotviz.reading.recording import Recording
from aotviz.recording.spoken import spoken
from aotviz.widgets.html import write_html
from tests import corpus
from tests.tiers import SCREENS
from tests.ui import puzzle
from tests.ui.test_accessibility import serious

Open = Callable[..., Page]


def read(program: str) -> Recording:
    return aotviz.read_trace(corpus.folder(program), index=False)


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    pages = []
    problems: list[str] = []

    def show(recording: Recording, kind: str, width: int = 1280, theme: str = "light") -> Page:
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=theme, offline=True)  # type: ignore[arg-type]
        pages.append(page)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(write_html(recording, tmp_path / "page.html").as_uri())
        page.locator("[role=tab][data-view=records]").click()
        page.locator(f"[data-page={kind}]").click()
        return page

    yield show
    assert problems == []
    for page in pages:
        page.close()


def search(page: Page, words: str) -> None:
    page.get_by_label("Search the recording").fill(words)


def test_a_page_is_there_only_for_what_a_recording_has(opened: Open) -> None:
    page = opened(read("errors"), "stacks")
    assert [one.get_attribute("data-page") for one in page.locator(".pages button").all()] == ["stacks", "metrics"]
    page = opened(Recording(puzzle.recording().data), "guards")
    expect(page.locator("[data-page=guards] .badge")).to_have_text(str(len(puzzle.recording().data.guards)))
    expect(page.locator(".panel tbody tr").first).to_contain_text("puzzle")


@pytest.mark.parametrize(("width", "theme"), SCREENS)
def test_stacks_are_a_tree_with_what_came_of_each_compilation(
    opened: Open, width: int, theme: str, screenshots: Path
) -> None:
    recording = read("graph_breaks")
    page = opened(recording, "stacks", width, theme)
    found = page.locator(".stacks .compiled")
    expect(found).to_have_count(len(recording))
    failed = [one.id for one in recording if one.data.error is not None]
    for one in found.all():
        assert ("failed" in one.inner_text()) == (one.get_attribute("data-compilation") in failed)
    expect(page.locator('.compiled[data-compilation="0/0"]')).to_contain_text("restarted")
    page.screenshot(path=screenshots / f"records-stacks-{width}-{theme}.png")
    assert serious(page) == []
    search(page, "failed")
    expect(found).to_have_count(len(failed))
    first = found.first.get_attribute("data-compilation")
    found.first.get_by_role("button").click()
    expect(page.locator(".head select")).to_have_value(str([one.id for one in recording].index(first)))


def test_guards_are_searched_in_all_that_they_say_and_lead_to_their_compilation(
    opened: Open, screenshots: Path
) -> None:
    recording = read("recompiles_values")
    page = opened(recording, "guards")
    rows = page.locator(".panel tbody tr")
    table = recording.guards
    expect(rows).to_have_count(len(table))
    row = table[table.source != ""].iloc[5]
    search(page, f"{row.source} {row.kind}".lower())
    words = f"{row.source} {row.kind}".lower().split()
    columns = ["kind", "source", "text", "code", "place", "stack"]
    names = {one.id: f"{one.name} [{one.id}]" for one in recording}
    text = table[columns].agg(" ".join, axis=1).str.lower() + " " + table.compilation.map(names).str.lower()
    expect(rows).to_have_count(int(text.map(lambda line: all(word in line for word in words)).sum()))
    page.screenshot(path=screenshots / "records-guards.png")
    search(page, "nothing says this")
    expect(page.locator(".panel .page")).to_have_text("Nothing matches.")
    search(page, "")
    last = rows.last.get_by_role("button").first
    name = last.get_attribute("data-compilation")
    last.click()
    expect(page.locator(".head select")).to_have_value(str([one.id for one in recording].index(name)))


def test_symbols_say_where_they_come_from(opened: Open, screenshots: Path) -> None:
    recording = read("dynamic_shapes")
    page = opened(recording, "shapes")
    search(page, "create_symbol")
    made = recording.shapes[recording.shapes.kind == "create_symbol"]
    rows = page.locator(".panel tbody tr")
    expect(rows).to_have_count(len(made))
    expect(rows.first).to_contain_text(spoken(made.source.iloc[0]))
    rows.first.locator("summary").click()
    expect(rows.first.locator("pre")).to_contain_text('File "corpus/dynamic_shapes.py"')
    page.screenshot(path=screenshots / "records-shapes.png")
    assert serious(page) == []


def test_all_metrics_of_a_row_are_shown_when_it_is_clicked(opened: Open, screenshots: Path) -> None:
    recording = read("training")
    page = opened(recording, "metrics", 1280, "dark")
    page.locator(".panel tbody tr").first.click()
    first = recording.metrics.iloc[0]
    guards = page.locator(".panel tr", has=page.get_by_role("rowheader", name="guard_count", exact=True)).locator("td")
    expect(guards).to_have_text(str(int(first.guard_count)))
    page.screenshot(path=screenshots / "records-metrics.png")
    assert serious(page) == []


def test_breaks_and_lookups_have_their_reasons(opened: Open, screenshots: Path) -> None:
    breaks = read("graph_breaks")
    page = opened(breaks, "graph_breaks", 500, "dark")
    rows = page.locator(".panel tbody tr")
    expect(rows).to_have_count(len(breaks.graph_breaks))
    for number, text in enumerate(breaks.graph_breaks.text):
        reason = rows.nth(number).locator("td.prose")
        expect(reason.locator("summary")).to_have_text(graph_breaks.in_words(text).replace("`", ""))
    rows.first.locator("td.prose summary").click()
    expect(rows.first.get_by_label("As torch wrote it")).to_have_text(breaks.graph_breaks.text.iloc[0])
    page.screenshot(path=screenshots / "records-breaks-500.png")
    caches = read("cache_second")
    page = opened(caches, "cache_lookups")
    expect(page.locator(".panel tbody tr", has_text="hit")).to_have_count(
        int((caches.cache_lookups.outcome == "hit").sum())
    )


def test_an_address_of_the_web_is_a_link_and_no_other(opened: Open, tmp_path: Path) -> None:
    line = 'V0701 12:00:00.000000 7 a.py:1] {"%s": %s, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}\n'
    links = (("profile", "https://example.org/profile"), ("<img src=x onerror=alert(1)>", "javascript:alert(1)"))
    texts = [f'{{"name": "{name}", "url": "{url}"}}' for name, url in links]
    log = tmp_path / "links.log"
    log.write_text(line % ("dynamo_start", "{}") + "".join(line % ("link", text) for text in texts))
    page = opened(aotviz.read_trace(log, index=False), "links")
    expect(page.locator(".panel tbody tr")).to_have_count(2)
    expect(page.locator(".panel a")).to_have_count(1)
    expect(page.locator(".panel a")).to_have_attribute("href", links[0][1])
    expect(page.locator(".panel img")).to_have_count(0)
    expect(page.locator(".panel tbody")).to_contain_text("javascript:alert(1)")
