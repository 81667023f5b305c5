"""A user's day: a training step is called with the last, smaller batch of an epoch too, and is compiled once more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, expect

import aotviz


def train(x, w):
    return (x @ w).relu().sum()


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch._dynamo.reset()
    step = aotviz.compile(train, backend="eager")
    w = torch.ones(4, 3, requires_grad=True)
    for batch in (32, 32, 7):
        step(torch.ones(batch, 4), w).backward()
    path = tmp_path_factory.mktemp("batches") / "train.html"
    step.recording.to_html(path)
    return path


def test_the_second_compilation_says_which_size_changed_and_what_is_symbolic_since(
    html: Path, browser: Browser, screenshots: Path
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800}, offline=True)
    page.goto(html.as_uri())
    chosen = page.locator(".head select")
    named = ["train [0/0] (training)", "train [0/1] (training)"]
    expect(chosen.locator("option")).to_have_text([re.compile(r"^All 2 compilations · [\d.]+ m?s$"), *named])
    again = page.locator(".related[data-kind=again]")
    expect(again).to_contain_text("dimension 0 of x had size 32 and now has size 7")
    page.locator('.stage[data-stage="trace"]').click()
    expect(page.locator(".cm-content")).to_contain_text("f32[32, 4]")
    page.screenshot(path=screenshots / "batches-first.png")

    again.click()
    expect(chosen).to_have_value("1")
    expect(page.locator(".related[data-kind=earlier]")).to_contain_text(
        "dimension 0 of x had size 32 and now has size 7"
    )
    page.locator('.stage[data-stage="trace"]').click()
    expect(page.locator(".cm-content")).to_contain_text("f32[s")
    expect(page.locator(".rail-divider")).to_have_text("when the backward was first needed")
    page.screenshot(path=screenshots / "batches-second.png")

    page.locator('[role=tab][data-view="compilations"]').click()
    rows = page.locator(".compilations tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("dimension 0 of x had size 32 and now has size 7")
    page.screenshot(path=screenshots / "batches-compilations.png")
    page.close()
