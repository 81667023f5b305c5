"""The workbench on the log of a job that ran on aotviz: its graphs, its wrapper with the reasons, and its cache."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, expect

from tests.torch_trace.test_our_own_jobs import Job
from tests.torch_trace.test_our_own_jobs import job as job


def test_the_log_of_a_job_on_aotviz_shows_its_graphs_wrapper_and_cache(
    browser: Browser, job: Job, tmp_path: Path, screenshots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTVIZ_CACHE_DIR", str(tmp_path / "cache"))

    def train(scale: int) -> None:
        torch._dynamo.reset()

        def step(x: torch.Tensor, w: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
            seen.add_(1)
            return (x @ w).sin() * scale

        w = torch.ones(4, 4, requires_grad=True)
        compiled = torch.compile(step, backend="aotviz_eager", options={"cache": True})
        compiled(torch.ones(3, 4), w, torch.zeros(())).sum().backward()

    for scale in (2, 2, 3):
        train(scale)
    html = tmp_path / "job.html"
    job.read().to_html(html)
    page = browser.new_page(viewport={"width": 1280, "height": 800}, offline=True)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(html.as_uri())

    expect(page.locator("body")).to_contain_text("was compiled again although it was cached before")
    expect(page.locator("body")).to_contain_text("1 program came from aotviz's cache")
    page.screenshot(path=screenshots / "job-on-aotviz.png")
    page.locator('.stage[data-stage="joint"]').first.click()
    expect(page.locator(".cm-content")).to_contain_text("tangents_1: f32[")
    page.locator('[role=tab][data-view="aliasing"]').click()
    expect(page.locator(".panel tbody tr", has_text="seen")).to_contain_text("data")
    page.locator('[role=tab][data-view="wrapper"]').click()
    expect(page.locator(".panel")).to_contain_text("autograd sees the whole call as this one function")
    expect(page.locator(".panel")).not_to_contain_text("Torch compiled this function")
    page.screenshot(path=screenshots / "job-on-aotviz-wrapper.png")
    page.close()
    assert problems == []
