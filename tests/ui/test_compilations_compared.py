"""Two compilations, A and B: why each was made, their boards side by side, and the list's columns in a live watch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page, expect

import aotviz
from aotviz.widgets import parts
from tests.explain.logs import recording
from tests.tiers import THEMES
from tests.ui import jupyter
from tests.ui.jupyter import Server
from tests.ui.test_accessibility import serious

WATCHED = """
import os
os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
import aotviz, torch
from tests.tiers import THEMES

def step(x):
    return (x.cos() + 1).sum()

stock = torch.compile(step, backend="aot_eager")
watch = aotviz.watch()
watch.start()
watch.recording
"""
CALLED = "stock(torch.ones(4)); None"
AGAIN = "stock(torch.ones(4, dtype=torch.float64)); None"


def step(x: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    m.mul_(0.9).add_(x.sum())
    return x * m, m[:2]


@pytest.mark.parametrize("theme", THEMES)
def test_a_page_says_why_b_was_compiled_and_shows_both_boards(
    browser: Browser, tmp_path: Path, screenshots: Path, theme: str
) -> None:
    compiled = aotviz.compile(step, backend="eager")
    compiled(torch.ones(4), torch.ones(4))
    memory = torch.ones(8)
    compiled(memory[:4], memory[2:6])
    compiled.recording.to_html(tmp_path / "two.html")
    page = browser.new_page(viewport={"width": 1280, "height": 1400}, color_scheme=theme, offline=True)  # type: ignore[arg-type]
    page.goto((tmp_path / "two.html").as_uri())
    page.locator('[role=tab][data-view="compilations"]').click()
    page.get_by_role("button", name="compare").click()
    compared = page.locator(".comparison")
    why = compared.locator('[aria-label="Why they were compiled"] .side')
    expect(why.nth(0)).to_contain_text("No earlier program was tried")
    point = compiled.recording.explain("1").points[0]
    expect(why.nth(1)).to_contain_text(point.text.replace("`", ""))
    expect(why.nth(1).locator(".line code")).to_have_text(point.code)
    expect(why.nth(1)).to_contain_text("What to do: " + point.fix.replace("`", ""))
    boards = compared.locator('[aria-label="Memory"] .side')
    left, right = (side.bounding_box() for side in boards.all())
    assert left is not None
    assert right is not None
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] <= right["x"]
    expect(boards.nth(0).locator("> header")).to_contain_text("A")
    expect(boards.nth(1)).to_contain_text("base of m, x")
    expect(compared.get_by_role("columnheader", name=re.compile(r"^B · \w+ \[\S+\]$")).first).to_be_visible()
    page.screenshot(path=screenshots / f"compilations-compared-{theme}.png")
    assert serious(page) == []
    page.close()


def test_a_saved_recording_has_the_reasons_that_a_kernel_would_send(tmp_path: Path) -> None:
    read = recording("recompiles_tensors")
    read.save(tmp_path / "saved.aotviz")
    saved = aotviz.load(tmp_path / "saved.aotviz").data.why
    assert saved == parts.rows(read, "why").why
    assert [row.compilation for row in saved] == read.recompiles().compilation.tolist()
    assert all(row.words for row in saved)


@pytest.mark.slow
def test_the_columns_of_a_live_watch_are_filled_and_two_of_its_compilations_are_compared(
    lab: Server, lab_page: Page, screenshots: Path
) -> None:
    page = lab_page
    jupyter.write_notebook(lab.work / "compared.ipynb", WATCHED, CALLED, AGAIN)
    jupyter.open_notebook(page, lab, "compared.ipynb")
    jupyter.run_cell(page, 0)
    bench = page.locator(".workbench").last
    expect(bench).to_contain_text("Nothing was compiled.", timeout=60_000)
    jupyter.run_cell(page, 1)
    bench.locator('[role=tab][data-view="compilations"]').click(timeout=60_000)
    jupyter.run_cell(page, 2)
    rows = bench.locator(".compilations tbody tr")
    expect(rows).to_have_count(2, timeout=60_000)
    for row in rows.all():
        for column in range(1, 4):  # stages, nodes, time
            expect(row.locator("td.number").nth(column - 1)).not_to_be_empty(timeout=30_000)
    rows.nth(1).get_by_role("button", name="compare").click()
    why = bench.locator('[aria-label="Why they were compiled"] .side').nth(1)
    expect(why).to_contain_text("x.dtype was float32 and is now float64", timeout=30_000)
    expect(why.locator(".line code")).to_have_text("return (x.cos() + 1).sum()")
    expect(why).to_contain_text("What to do:")
    bench.locator(".comparison").evaluate("element => element.scrollIntoView()")
    page.screenshot(path=screenshots / "compilations-compared-watch.png")
