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
    relu = page.locator(".panel tbody tr", has_text="aten.relu.default")
    expect(relu.get_by_role("button")).to_have_text(["mm_1", "le"])
    expect(page.locator("svg.steps")).to_contain_text("node 12")  # the last that reads what is kept
    view_again = page.locator(".panel tbody tr", has_text="recomputed")
    expect(view_again).to_contain_text("0 B")
    expect(view_again).to_contain_text("has no memory of its own")
    page.screenshot(path=screenshots / "torch-saved.png")
    view("wrapper")
    expect(page.locator(".panel")).to_contain_text("Torch compiled this function, not aotviz.")
    view("evidence")
    expect(page.locator(".panel .notice")).to_contain_text("The log has the results of this stage")
    view("code")
    stage("lower")
    expect(code).to_contain_text("AOT ID: ")
    page.screenshot(path=screenshots / "torch-lower.png")
    view("evidence")
    expect(page.locator(".panel figcaption").first).to_be_visible()
    page.close()
    assert problems == []


def test_a_compilation_is_found_by_the_guard_that_made_it(browser: Browser, tmp_path: Path, screenshots: Path) -> None:
    html = tmp_path / "recompiles.html"
    aotviz.read_trace(corpus.folder("recompiles_values")).to_html(html)
    page = browser.new_page(viewport={"width": 1280, "height": 800}, offline=True)
    page.goto(html.as_uri())
    expect(page.get_by_label("Compilation", exact=True).locator("option").nth(1)).to_have_text("step_counter [0/0]")
    page.locator("[role=tab][data-view=compilations]").click()
    page.get_by_label("Search the recording").fill("guard temperature")
    row = page.locator("tr[data-compilation]")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("temperature was 1.0 and is now 2.0")
    page.get_by_label("Search the recording").fill("")
    page.get_by_label("Which").select_option(label="compiled again")
    expect(row.first).to_contain_text("was compiled again because")
    page.screenshot(path=screenshots / "torch-compiled-again.png")
    page.locator('tr[data-compilation="2/1"]').get_by_role("button", name="compare").click()
    page.get_by_role("button", name="Diff of the graphs").click()
    page.get_by_role("radio", name="by nodes").click()
    expect(page.locator(".panel thead th")).to_have_text(["Change", "reads_a_global [2/1]", "step_counter [0/0]"])
    page.screenshot(path=screenshots / "torch-compared.png")
    page.close()


def test_a_log_without_a_backward_says_that_nothing_tells_when_values_are_freed(
    browser: Browser, tmp_path: Path, screenshots: Path
) -> None:
    (log,) = corpus.folder("training").iterdir()
    (tmp_path / log.name).write_bytes(log.read_bytes().replace(b'"aot_backward_graph"', b'"an_unknown_graph"'))
    html = tmp_path / "without.html"
    aotviz.read_trace(tmp_path, index=False).to_html(html)
    page = browser.new_page(viewport={"width": 1280, "height": 800}, offline=True)
    page.goto(html.as_uri())
    page.locator("[role=tab][data-view=saved]").click()
    expect(page.locator(".plots")).to_contain_text("It is not known when each value is freed.")
    expect(page.locator("svg.steps")).to_have_count(0)
    page.screenshot(path=screenshots / "torch-saved-unknown.png")
    page.close()
