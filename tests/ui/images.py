"""Pictures for the docs: a GPT-2 of twelve layers in training, an aliasing puzzle of ten lines, and a whole backward.
Those that are no view of the workbench come from drawings.py.

`python -m tests.ui.images` (or `make images`) writes them to docs/images/. Look at each of them. tests/test_docs.py
fails if a page does not use one of them.
"""

from __future__ import annotations

import linecache
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import torch
from playwright.sync_api import Browser, Page, expect

import aotviz
from aotviz.frontends import demo
from aotviz.widgets.html import write_html
from tests.ui import browser as finder
from tests.ui import drawings, puzzle
from tests.ui.conftest import TOUR_ANSWERED
from tests.ui.fixture import ROOT, FixtureRecording

FOLDER = ROOT / "docs" / "images"
SIZE = {"width": 1280, "height": 800}


@dataclass(frozen=True)
class Shot:
    """A view as it is opened for its picture."""

    view: str
    stage: str
    role: str = ""
    click: str = ""  # selector of what is clicked then, if it is there
    find: str = ""  # part of the name of a node that is looked for


OF_PUZZLE = (Shot("aliasing", "metadata"), Shot("wrapper", "link", "", ".note:has(> code)"))
OF_GPT2 = (
    Shot("graph", "trace"),
    Shot("code", "partition", "backward", find="mul_"),
    Shot("diff", "partition", "forward"),
    Shot("saved", "partition"),
    Shot("evidence", "partition"),
)
OF_BACKWARD = (Shot("backward", "capture"),)
THEMES = ("light", "dark")


def gpt2() -> FixtureRecording:
    """A training step of twelve layers."""
    for layers in (
        1,
        12,
    ):  # the first compilation of a process also imports modules, which is not what the times are to show
        torch._dynamo.reset()
        step, batch = demo.gpt2(layers=layers)
        compiled = aotviz.compile(step, backend="eager")
        loss, _ = compiled(*batch)
        loss.backward()
    return FixtureRecording(compiled.recording.data)


def take(page: Page, shot: Shot, path: Path) -> None:
    page.locator(f'.stage[data-stage="{shot.stage}"]').first.click()
    page.locator(f'[role=tab][data-view="{shot.view}"]').click()
    role = page.locator(f'.roles [data-role="{shot.role}"]')
    if shot.role and role.count():
        role.click()
    expect(page.locator(".notice.loading")).to_have_count(0, timeout=60_000)
    if shot.find:
        page.get_by_label("Search the recording").fill(shot.find)
        page.keyboard.press("Enter")
    if shot.click and page.locator(shot.click).count():
        page.locator(shot.click).first.click()
    page.mouse.move(0, 0)
    if shot.view == "graph":
        expect(page.locator("canvas.drawing")).to_have_attribute("aria-busy", "false")
    page.screenshot(path=path, animations="disabled")
    if shot.find:
        page.get_by_label("Search the recording").fill("")
    close = page.locator(".facts").get_by_label("Close")
    if close.is_visible():
        close.click()


def backward() -> FixtureRecording:
    """A whole backward: a residual connection, and a hook."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    up, down, x = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8), torch.randn(4, 8)
    down.weight.register_hook(clip)
    with aotviz.compiled_autograd(backend="eager") as recording:
        (x + down(torch.nn.functional.gelu(up(x)))).square().mean().backward()
    aotviz.compiled_autograd.reset()
    return FixtureRecording(recording.data)


def clip(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.clamp(-1, 1)


def pictures(
    browser: Browser,
    name: str,
    recording: FixtureRecording,
    shots: tuple[Shot, ...],
    themes: tuple[str, ...] = ("light",),
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        html = write_html(recording, Path(folder) / "page.html")
        for theme in themes:
            page = browser.new_page(viewport=SIZE, color_scheme=theme, offline=True)  # type: ignore[arg-type]
            page.add_init_script(TOUR_ANSWERED)
            page.goto(html.as_uri())
            for shot in shots:
                take(page, shot, FOLDER / f"{name}-{shot.view}-{theme}.png")
            page.close()


def double(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a.mul_(2)
    return a + b, b[:2]


def compared() -> FixtureRecording:
    """The function of docs/comparing-inputs.md for its three sets of inputs."""
    m, x = torch.arange(8.0), torch.ones(5)
    found = aotviz.compare_inputs(double, overlapping=(m[:5], m[3:]), separate=(x.clone(), x.clone()), same=(x, x))
    return FixtureRecording(found.recording.data)


def input_sets(browser: Browser) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_html(compared(), Path(folder) / "page.html")
        page = browser.new_page(viewport={"width": 1280, "height": 1300}, color_scheme="light", offline=True)
        page.add_init_script(TOUR_ANSWERED)
        page.goto((Path(folder) / "page.html").as_uri())
        expect(page.locator(".drawn[aria-busy]")).to_have_count(0)
        page.screenshot(path=FOLDER / "input-sets-light.png", animations="disabled")
        page.close()


def painted(browser: Browser) -> None:
    """The memory that each node of a GPT-2 of two layers makes, as docs/workbench.md paints it."""
    torch._dynamo.reset()
    step, batch = demo.gpt2(layers=2)
    compiled = aotviz.compile(step, backend="eager", cache=False)
    compiled(*batch)[0].backward()
    recording = compiled.recording
    nodes = recording[0].graph("joint").nodes.set_index("name")
    recording.paint(nodes.made_bytes[nodes.made_bytes > 0] / 1024, "memory made", unit="KiB", groups="sum")
    with tempfile.TemporaryDirectory() as folder:
        html = write_html(FixtureRecording(recording.data), Path(folder) / "page.html")
        page = browser.new_page(viewport=SIZE, color_scheme="light", offline=True)
        page.add_init_script(TOUR_ANSWERED)
        page.goto(html.as_uri())
        page.get_by_role("button", name="Values").click()
        expect(page.locator("canvas.drawing")).to_have_attribute("aria-busy", "false")
        page.screenshot(path=FOLDER / "painted-light.png", animations="disabled")
        page.close()


def beside(browser: Browser) -> None:
    """One node in the joint graph and in both graphs of the partition, in docs/workbench.md."""
    torch._dynamo.reset()
    step, batch = demo.gpt2(layers=2)
    compiled = aotviz.compile(step, backend="eager", cache=False)
    compiled(*batch)[0].backward()
    graphs = [("partition", "forward"), ("partition", "backward")]
    place = compiled.recording.show("graph", stage="trace", beside=graphs).bookmark
    with tempfile.TemporaryDirectory() as folder:
        html = write_html(FixtureRecording(compiled.recording.data), Path(folder) / "page.html")
        page = browser.new_page(viewport=SIZE, color_scheme="light", offline=True, reduced_motion="reduce")
        page.add_init_script(TOUR_ANSWERED)
        page.goto(f"{html.as_uri()}#{urlencode({**place, 'node': 'tanh'})}")
        expect(page.locator('canvas.drawing[aria-busy="false"]')).to_have_count(3)
        expect(page.locator(".notice.loading")).to_have_count(0)
        page.screenshot(path=FOLDER / "beside-light.png", animations="disabled")
        page.close()


WRONG = """\
def loss(x, weight):
    hidden = (x @ weight).tanh()
    wave = hidden.sin()
    return (wave * hidden).sum() + (hidden * 2).exp().mean()
"""


def cosines(graph: torch.fx.GraphModule, _: object) -> Callable[..., object]:
    """A compiler that makes cosines of sines."""
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default):
        node.target = torch.ops.aten.cos.default
    graph.recompile()
    return graph.forward


def wrong() -> FixtureRecording:
    """What `aotviz.bisect` shows of a wrong compiler, in docs/verify.md."""
    call = torch.linspace(-1, 1, 12).view(3, 4), torch.linspace(1, 2, 16).view(4, 4).requires_grad_()
    linecache.cache["train.py"] = (len(WRONG), None, WRONG.splitlines(keepends=True), "train.py")
    names: dict[str, Any] = {}
    exec(compile(WRONG, "train.py", "exec"), names)
    found = aotviz.bisect(names["loss"], *call, options={"backend": cosines}, repro=None)
    return FixtureRecording(found.recording.data)


def errors(browser: Browser) -> None:
    with tempfile.TemporaryDirectory() as folder:
        html = write_html(wrong(), Path(folder) / "page.html")
        page = browser.new_page(viewport=SIZE, color_scheme="light", offline=True)
        page.add_init_script(TOUR_ANSWERED)
        page.goto(html.as_uri())
        expect(page.locator("canvas.drawing")).to_have_attribute("aria-busy", "false")
        expect(page.locator(".painting-key")).to_be_visible()
        page.screenshot(path=FOLDER / "errors-light.png", animations="disabled")
        page.close()


def drawn(browser: Browser) -> None:
    """What docs/developing.md, docs/benchmarks.md and docs/adding-a-view.md show."""
    (FOLDER / "benchmarks.png").write_bytes(drawings.benchmarks(browser))
    (FOLDER / "benchmarks-history.png").write_bytes(drawings.history(browser))
    (FOLDER / "added-view.png").write_bytes(drawings.added(browser, puzzle.recording()))


def main() -> int:
    os.environ["AOTVIZ_CACHE_DIR"] = "off"  # the pictures are not of what this machine's cache knows
    FOLDER.mkdir(exist_ok=True)
    with finder.browser() as browser:
        pictures(browser, "puzzle", puzzle.recording(), OF_PUZZLE[:1], THEMES)
        pictures(browser, "puzzle", puzzle.recording(), OF_PUZZLE[1:])
        pictures(browser, "gpt2", gpt2(), OF_GPT2)
        pictures(browser, "whole", backward(), OF_BACKWARD)
        input_sets(browser)
        painted(browser)
        beside(browser)
        errors(browser)
        drawn(browser)
    print(f"{len(list(FOLDER.glob('*.png')))} pictures in {FOLDER.relative_to(ROOT)}: look at each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
