"""The workbench on a compilation of torch's own: graphs, code and tables where they are, a clear word where not."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

import aotviz
from tests import corpus


def test_every_view_of_a_stock_compilation_shows_what_there_is(
    browser: Browser, tmp_path: Path, screenshots: Path
) -> None:
    recording = aotviz.read_trace(corpus.folder("training"))
    html = tmp_path / "torch.html"
    recording.to_html(html)
    page = browser.new_page(viewport={"width": 1280, "height": 800}, offline=True)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    page.goto(html.as_uri())

    def stage(name: str) -> None:
        page.locator(f'.stage[data-stage="{name}"]').first.click()

    def view(name: str) -> None:
        page.locator(f'[role=tab][data-view="{name}"]').click()

    expect(page.locator('.stage[data-stage="dynamo"]')).to_contain_text("what Dynamo captured")
    stage("joint")
    code = page.locator(".cm-content")
    expect(code).to_contain_text("tangents_1: f32[")
    page.locator(".cm-line", has_text="addmm:").first.click()
    expect(page.locator(".facts h3")).to_have_text("addmm")
    expect(page.locator(".facts")).to_contain_text("training.py:")
    page.screenshot(path=screenshots / "torch-code.png")
    stage("partition")
    view("graph")
    expect(page.locator(".outline .row").first).to_be_visible()
    page.screenshot(path=screenshots / "torch-graph.png")
    view("diff")
    expect(page.locator(".bar")).to_contain_text("joint")
    view("aliasing")
    expect(page.locator(".panel tbody").first).to_contain_text("parameter")
    page.screenshot(path=screenshots / "torch-aliasing.png")
    view("saved")
    expect(page.locator(".panel tbody tr").first).to_be_visible()
    page.screenshot(path=screenshots / "torch-saved.png")
    view("wrapper")
    expect(page.locator(".panel")).to_contain_text("Torch compiled this, not aotviz.")
    view("code")
    stage("lower")
    expect(code).to_contain_text("AOT ID: ")
    page.screenshot(path=screenshots / "torch-lower.png")
    view("evidence")
    expect(page.locator(".panel figcaption").first).to_be_visible()
    page.close()
    assert problems == []
