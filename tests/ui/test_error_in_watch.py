"""The Overview of a watch that an error ended: the error, its line and what to do come first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch._inductor.config
from playwright.sync_api import Browser, expect

import aotviz
from aotviz.reading.recording import Recording
from aotviz.widgets.html import write_html

WIDTHS = (1280, 500)


def rows(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return x.sin()[at] + 1


def noisy(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand_like(x)


def compared() -> None:
    """What a test of a compiled model does."""
    results = []
    for function in (noisy, torch.compile(noisy)):
        torch.manual_seed(7)
        results.append(function(torch.ones(8)))
    torch.testing.assert_close(*results)


JOBS: dict[str, tuple[Callable[[], object], str, str]] = {  # what raises, the headline, the line
    "raising": (
        lambda: torch.compile(rows, backend="aot_eager")(torch.ones(3), torch.tensor([7])),
        "rows raised IndexError: index 7 is out of bounds for dimension 0 with size 3.",
        "return x.sin()[at] + 1",
    ),
    "comparing": (
        compared,
        "The block ended with an AssertionError, and results may differ from eager's: "
        "noisy [0/0] draws random numbers, and Inductor's are not eager's, also with the same seed.",
        "return x + torch.rand_like(x)",
    ),
}


def ended(call: Callable[[], object]) -> Recording:
    torch._dynamo.reset()
    watch = aotviz.watch()
    with pytest.raises((IndexError, AssertionError)), watch:
        call()
    return watch.recording


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", JOBS)
def test_the_error_that_ended_a_watch_is_seen_first(
    name: str, width: int, browser: Browser, theme: str, tmp_path: Path, screenshots: Path
) -> None:
    call, headline, code = JOBS[name]
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme, offline=True)  # type: ignore[arg-type]
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(write_html(ended(call), tmp_path / "page.html").as_uri())
    overview = page.locator(".overview")
    expect(overview.locator(".headline")).to_have_text(headline)
    expect(overview.get_by_text(code).first).to_be_in_viewport()
    expect(overview.get_by_text("What to do").first).to_be_in_viewport()
    page.screenshot(path=screenshots / f"error-in-watch-{name}-{width}-{theme}.png")
    page.close()
    assert problems == []
