"""A recording in a notebook of marimo: the widget shows, the kernel answers and notifies it, the theme is marimo's.

marimo is no Jupyter: it has a kernel, comms and outputs of its own, and runs an anywidget by its own code.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.tiers import THEMES
from tests.ui.conftest import TOUR_ANSWERED
from tests.ui.fixture import ROOT

pytest.importorskip("marimo", reason="marimo is not installed; the test extra brings it")

NOTEBOOK = """
import marimo

app = marimo.App(width="full")


@app.cell
def _():
    import aotviz, marimo, torch

    def traced(x, w):
        return (x @ w).relu().sum()

    step = aotviz.compile(traced, backend="eager")
    x, w = torch.ones(4, 4), torch.ones(4, 4, requires_grad=True)
    step(x, w).backward()
    step.recording
    return marimo, step, x, w


@app.cell
def _(step):
    step.recording.show("saved tensors", stage="partition")
    return


@app.cell
def _(marimo):
    again = marimo.ui.run_button(label="Call it with doubles")
    again
    return (again,)


@app.cell
def _(again, marimo, step, x, w):
    marimo.stop(not again.value)
    called = step(x.double(), w.detach().double().requires_grad_())
    return
"""
SETTINGS = """
[tool.marimo.display]
theme = "{theme}"
[tool.marimo.runtime]
auto_instantiate = true
"""
STARTS_WITHIN_S = 60


@contextmanager
def served(folder: Path, theme: str) -> Iterator[str]:
    """The address at which marimo edits the notebook."""
    (folder / "notebook.py").write_text(NOTEBOOK)
    (folder / "pyproject.toml").write_text(SETTINGS.format(theme=theme))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    options = ["--headless", "--no-token", "--skip-update-check", f"--port={port}"]
    command = [sys.executable, "-m", "marimo", "edit", "notebook.py", *options]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{url}/health", server, folder / "log")
        yield url
    finally:
        server.terminate()
        server.wait(timeout=30)


def wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < end and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    pytest.fail(f"marimo did not start: {log.read_text(errors='replace')[-2000:]}")


@pytest.mark.parametrize("theme", THEMES)
def test_a_recording_in_marimo_is_a_workbench_with_a_live_kernel(
    theme: str, browser: Browser, tmp_path: Path, screenshots: Path
) -> None:
    with served(tmp_path, theme) as url:
        other = "light" if theme == "dark" else "dark"
        page = browser.new_page(viewport={"width": 1280, "height": 1800}, color_scheme=other)  # type: ignore[arg-type]
        page.add_init_script(TOUR_ANSWERED)
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(url)
        expect(page.locator(".workbench .stages")).to_have_count(2, timeout=90_000)
        of_recording, of_show = page.locator(".workbench").all()
        for bench in (of_recording, of_show):
            expect(bench).to_have_attribute("data-theme", theme)
        expect(of_recording.locator("[role=tab][aria-selected=true]")).to_have_text("Overview")
        expect(of_show.locator("[role=tab][aria-selected=true]")).to_have_attribute("data-view", "saved")
        expect(of_show.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", "partition")

        of_show.locator(".what-if summary").click()  # which the kernel answers with the live function
        of_show.get_by_label("Partitioner").select_option("default_partition")
        of_show.get_by_role("button", name="Partition again").click()
        answer = of_show.locator(".what-if .answer")
        expect(answer.locator("tr", has_text="saved for the backward")).to_have_count(1)
        page.screenshot(path=screenshots / f"marimo-{theme}-what-if.png")

        of_show.locator('.stage[data-stage="trace"]').click()
        of_show.locator("[role=tab][data-view=code]").click()
        expect(of_show.locator(".cm-content")).to_contain_text("aten.relu.default")
        of_show.locator("[role=tab][data-view=graph]").click()
        expect(of_show.locator(".graph-foot .status")).to_contain_text("nodes in")

        expect(of_recording.locator("select").first).to_have_count(0)  # there is one compilation
        page.get_by_role("button", name="Call it with doubles").click()  # and now the kernel notifies both
        for bench in (of_recording, of_show):
            expect(bench.locator("[role=tab][data-view=compilations]")).to_contain_text("2")
        page.screenshot(path=screenshots / f"marimo-{theme}.png")
        assert problems == []
        page.close()
