"""Ranks that diverge: the page of `to_html` says so first, and both it and the workbench draw what differs."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import aotviz
from aotviz.widgets import parts
from tests.explain.logs import recording
from tests.tiers import THEMES
from tests.ui.test_accessibility import serious

ORDER = ["ranks 0, 2 and 3\tscale\tshift\tsquare", "rank 1\tscale\tsquare\tshift"]


@pytest.fixture(params=THEMES)
def page(request: pytest.FixtureRequest, browser: Browser, tmp_path: Path) -> Page:
    path = tmp_path / "ranks.html"
    recording("ranks_diverge").to_html(path)
    page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=request.param)
    page.goto(path.as_uri())
    yield page
    page.close()


def test_the_page_and_the_workbench_say_first_what_may_hang_and_draw_it(page: Page, screenshots: Path) -> None:
    expect(page.locator(".overview .headline")).to_contain_text(
        "Ranks 0 to 3 will hang: in reduce_loss, twice is True where it is False on ranks 0, 1 and 3"
    )
    page.get_by_text("As text").click()
    expect(page.locator("summary", has_text="By topic")).to_be_attached()
    order = page.locator("table", has_text="Graphs in the order in which they ran")
    order.scroll_into_view_if_needed()
    rows = order.locator("tr")
    assert rows.all_inner_texts() == ORDER
    colours = (
        rows.nth(1).locator("td").evaluate_all("cells => cells.map(cell => getComputedStyle(cell).backgroundColor)")
    )
    assert colours[0] != colours[1] == colours[2]
    page.screenshot(path=screenshots / "ranks-diverge.png")
    page.get_by_text("As text").click()

    page.locator("[role=tab][data-view=records]").click()
    ranks = page.locator(".pages [data-page=ranks]")
    expect(ranks).to_have_text("Ranks3")
    expect(ranks).to_have_attribute("aria-checked", "true")  # the first page, as nothing is more urgent
    found = page.locator(".ranks > li")
    kinds = ["collectives", "execution order", "tensor metadata"]
    assert found.evaluate_all("all => all.map(one => one.dataset.kind)") == kinds
    assert found.nth(1).locator("tr").all_inner_texts() == ORDER
    assert found.nth(1).locator(".apart").all_inner_texts() == ["square", "shift"]
    assert found.nth(0).locator(".apart").all_inner_texts() == ["all_reduce"]
    expect(found.nth(2)).to_contain_text("float32[8, 8]")
    page.locator(".workbench, .aotviz").first.scroll_into_view_if_needed()
    page.mouse.wheel(0, 2000)
    page.screenshot(path=screenshots / "ranks-in-workbench.png")
    assert serious(page) == []
    page.get_by_label("Search the recording").fill("square")
    expect(found).to_have_count(1)
    page.get_by_label("Search the recording").fill("")
    one = found.nth(0).get_by_role("button").last
    name = one.get_attribute("data-compilation")
    one.click()
    ids = [one.id for one in recording("ranks_diverge")]
    expect(page.locator(".head select")).to_have_value(str(ids.index(name)))


def test_a_kernel_sends_what_a_saved_file_has(tmp_path: Path) -> None:
    read = recording("ranks_diverge")
    read.save(tmp_path / "ranks.aotviz")
    saved = aotviz.load(tmp_path / "ranks.aotviz").data.rank_differences
    assert parts.rows(read, "ranks").rank_differences == saved
    assert parts.index(read).rows["ranks"] == len(saved) == 3
    assert parts.index(recording("training")).rows["ranks"] == 0


def test_long_orders_are_drawn_around_the_first_difference(tmp_path: Path) -> None:
    """Two ranks run 60 graphs; the 51st differs."""
    line = 'V0701 12:00:00.000000 7 a.py:1] {{"{kind}": {content}, "rank": {rank}{more}}}\n'
    for rank in (0, 1):
        runs = [f'{{"compile_id": "{n if n != 50 + rank else 99}/0"}}' for n in range(60)]
        begun = line.format(kind="dynamo_start", content="{}", rank=rank, more=', "frame_id": 0, "frame_compile_id": 0')
        head = line.format(
            kind="artifact", content='{"name": "graph_execution"}', rank=rank, more=', "has_payload": ""'
        )
        text = f'{begun}{head}\t{{"graph_execution_order": [{", ".join(runs)}]}}\n'
        (tmp_path / f"trace_rank_{rank}.log").write_text(text)
    read = aotviz.read_trace(tmp_path, index=False)
    read.save(tmp_path / "two.aotviz")
    (found,) = aotviz.load(tmp_path / "two.aotviz").data.rank_differences
    assert [(lane.ranks, lane.before, lane.after) for lane in found.lanes] == [("rank 0", 45, 0), ("rank 1", 45, 0)]
    assert [lane.steps[5] for lane in found.lanes] == ["99/0", "50/0"]
    assert "from the 51st on" in found.words
