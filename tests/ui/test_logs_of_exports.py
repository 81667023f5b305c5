"""What a reader of a log meets first: a failed export, the code of AOTInductor, restarts, a cache miss by hash."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import aotviz
from tests import corpus


@pytest.fixture
def opened(browser: Browser, tmp_path: Path):
    """A function that shows logs of the corpus as an HTML page."""
    problems: list[str] = []

    def show(*names: str) -> Page:
        files = [path for name in names for path in sorted(corpus.folder(name).iterdir())]
        html = tmp_path / "log.html"
        aotviz.read_trace(files, index=False).to_html(html)
        page = browser.new_page(viewport={"width": 1280, "height": 800}, offline=True)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(html.as_uri())
        return page

    yield show
    assert problems == []


def test_a_failing_export_says_why_and_shows_what_was_traced(opened, screenshots: Path) -> None:
    page = opened("exports")
    first = page.locator("li").first
    expect(first).to_contain_text("has to know whether n > 3 (u0 > 3) while tracing")
    expect(first).to_contain_text("corpus/exports.py:39")
    expect(first).to_contain_text("torch.cond")
    page.locator("select").first.select_option(label="export 2 (export, failed)")
    page.locator('.stage[data-stage="traced until it failed"]').click()
    expect(page.locator(".panel, main").first).to_be_visible()
    expect(page.locator(".stage-head .failure")).to_contain_text("It is not known while tracing whether u0 > 3.")
    page.screenshot(path=screenshots / "log-export.png")
    page.locator('[role=tab][data-view="code"]').click()
    expect(page.locator(".cm-content").first).to_contain_text("u0 > 3")


def test_aotinductor_has_stages_and_shows_the_code_that_it_generated(opened, screenshots: Path) -> None:
    page = opened("aoti")
    page.locator("select").first.select_option(label="AOTInductor (AOTInductor)")
    page.locator('.stage[data-stage="lower"]').click()
    page.locator('[role=tab][data-view="code"]').click()
    expect(page.locator(".cm-content").first).to_contain_text("#include")

    page.get_by_role("button", name="changed nothing: show").click()
    page.locator('.stage[data-stage="post-grad passes"]').click()  # the graph beside the code, with marks
    page.get_by_role("button", name="Kernels").click()
    kernels = page.get_by_label("Generated kernels")
    expect(kernels.locator(".bar")).to_contain_text("3 kernels")
    page.get_by_label("Search the recording").fill("addmm")
    page.keyboard.press("Enter")
    expect(kernels.locator(".bar")).to_have_text("aoti_torch_cpu_addmm_out")
    expect(kernels.locator(".cm-content")).to_contain_text("aoti_torch_cpu_addmm_out(buf1")  # it scrolls there
    page.screenshot(path=screenshots / "log-aotinductor.png")
    page.get_by_label("Search the recording").fill("relu")
    page.keyboard.press("Enter")
    expect(kernels.locator(".bar")).to_have_text("cpp_fused_relu_1")


@pytest.mark.parametrize(
    ("names", "said", "picture"),
    [
        (("restarts",), "again from the first line (2 times; what it had done before took", "restarts"),
        (("cache_type_first", "cache_type_second"), "differs in what torch does not print", "miss"),
        (("compiled_autograd",), "parameter.grad was None and is now a tensor", "autograd"),
    ],
)
def test_the_first_page_of_a_log_says_what_is_wrong(opened, screenshots: Path, names, said: str, picture: str) -> None:
    page = opened(*names)
    expect(page.locator(".overview li", has_text=said).first).to_be_visible()
    page.screenshot(path=screenshots / f"log-{picture}.png")
