"""The view of docs/adding-a-view.md, as the page prints it, built and opened in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from aotviz.reading.recording import Recording
from aotviz.widgets import static_files
from aotviz.widgets.html import write_html
from tests import added_view
from tests.ui import puzzle

UNITS = {"B": 1, "KiB": 1024}


def test_one_folder_and_one_line_make_a_view(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, screenshots: Path
) -> None:
    added_view.put_into(tmp_path)
    added_view.npm("run build", tmp_path)
    built = tmp_path / "aotviz" / "widgets" / "static"
    monkeypatch.setattr(static_files, "read", lambda name: (built / name).read_bytes())
    recording = Recording(puzzle.recording().data)
    page = browser.new_page(viewport={"width": 1280, "height": 800}, offline=True)
    page.goto(write_html(recording, tmp_path / "page.html").as_uri())
    page.locator('.stage[data-stage="partition"]').click()
    page.locator('[role=tab][data-view="operators"]').click()
    expect(page.locator(".panel caption")).to_have_text("Operators of the forward graph")
    rows = page.locator(".panel tbody tr")
    table = added_view.operators_of(recording[0].graph("forward"))
    shown = [[cell.strip() for cell in row.split("\t")] for row in rows.all_inner_texts()]
    assert [(name, int(nodes), nbytes(size)) for name, nodes, size in shown] == [
        (row.operator, row.nodes, row.bytes) for row in table.itertuples()
    ]
    assert len(shown) > 5

    page.get_by_role("button", name="Bytes").click()
    sorted_by_bytes = rows.all_inner_texts()
    first = table[table.nodes > 1].operator.iloc[0]
    row = rows.filter(has_text=first)
    row.focus()
    page.keyboard.press("Enter")
    expect(row).to_have_attribute("aria-current", "true")
    expect(row).to_be_focused()
    assert rows.all_inner_texts() == sorted_by_bytes, "the table stays as the reader has ordered it"
    count = table.nodes[table.operator == first].item()
    expect(page.locator(".facts")).to_contain_text(f"one of {count} selected nodes")
    page.screenshot(path=screenshots / "added-view.png")
    page.locator('[role=tab][data-view="graph"]').click()
    page.get_by_role("button", name="Open all").click()
    expect(page.locator("canvas.drawing")).to_have_attribute("aria-busy", "false")
    expect(page.locator(".outline [aria-selected=true]").nth(1)).to_be_visible()
    page.screenshot(path=screenshots / "added-view-selected.png")
    page.close()


def nbytes(text: str) -> float:
    number, unit = text.split()
    return float(number) * UNITS[unit]
