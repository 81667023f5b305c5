"""Pictures for docs/memory.md: a GPT-2 by kind and by module, a whole training step, what would lower a peak, and plans
side by side.

`python -m tests.ui.memory_images` (also part of `make images`) writes them to docs/images; with names, only those. Look
at each: after twenty seconds a reader must be able to say the sentence that is below it on the page.
"""

from __future__ import annotations

import linecache
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import torch
from playwright.sync_api import Browser, Page, expect

import aotviz
from aotviz.recording.costs import Speed
from aotviz.recording.plans import Plans
from aotviz.widgets.html import write_html
from tests.ui import browser as finder
from tests.ui import drawings, images
from tests.ui.conftest import TOUR_ANSWERED
from tests.ui.fixture import FixtureRecording

FOLDER = images.FOLDER
Theme = Literal["light", "dark"]

TRAIN = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1 = nn.LayerNorm(64)
        self.norm_2 = nn.LayerNorm(64)
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        self.wide = nn.Linear(64, 256)
        self.back = nn.Linear(256, 64)

    def forward(self, x):
        normed = self.norm_1(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        hidden = torch.relu(self.wide(self.norm_2(x)))
        return x + self.back(hidden)


torch.manual_seed(0)
model = nn.Sequential(*(Block() for _ in range(4)))
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(8, 64, 64)


def loss(x):
    return model(x).square().mean()


def update():
    optimizer.step()
"""


def program() -> Any:
    """The names of train.py. The view shows its lines."""
    names: dict[str, Any] = {"__name__": "train"}
    linecache.cache["train.py"] = (len(TRAIN), None, TRAIN.splitlines(keepends=True), "train.py")
    exec(compile(TRAIN, "train.py", "exec"), names)
    torch._dynamo.reset()
    return SimpleNamespace(**names)


@cache
def gpt2() -> tuple[FixtureRecording, str]:
    """A training step of twelve layers."""
    recording = images.gpt2()
    return recording, recording.compilations[-1].id


@cache
def training_step() -> tuple[FixtureRecording, str]:
    """A forward, a captured backward and the optimizer's step."""
    train = program()
    loss = aotviz.compile(train.loss, backend="eager", cache=False)
    update = aotviz.compile(train.update, backend="eager", cache=False)
    captured = aotviz.compiled_autograd(backend="eager")
    with aotviz.record() as recording:
        for _ in range(2):
            with captured:
                loss(train.x).backward()
            update()
            train.optimizer.zero_grad()
    aotviz.compiled_autograd.reset()
    (backward,) = (one for one in recording if one.kind == "compiled autograd")
    return FixtureRecording(recording.data), backward.id


@cache
def layers() -> tuple[FixtureRecording, str]:
    """Four equal layers with torch's default partitioner, which saves what eager saves."""
    train = program()
    loss = aotviz.compile(train.loss, backend="eager", partition_fn="default", cache=False)
    loss(train.x).backward()
    return FixtureRecording(loss.recording.data), loss.recording[0].id


def by_module(page: Page) -> None:
    page.get_by_label("Stacked by").select_option("module")


def first_change(page: Page) -> None:
    """The values of the change that saves most are lit."""
    page.locator(".lowering li").get_by_role("button").first.click()
    page.locator(".facts").get_by_label("Close").click()


@dataclass(frozen=True)
class Picture:
    """The view of memory, as it is opened for its picture."""

    made: Callable[[], tuple[FixtureRecording, str]]  # the recording, and the compilation's id
    theme: Theme = "light"
    act: Callable[[Page], None] = lambda page: None
    height: int = 1000  # pixels: with the legend, and the first row of the table

    def opened(self, browser: Browser, width: int = 1280, theme: Theme | None = None) -> Page:
        recording, compilation = self.made()
        size = {"width": width, "height": self.height}
        page = browser.new_page(
            viewport=size,
            color_scheme=theme or self.theme,
            offline=True,
            reduced_motion="reduce",  # type: ignore[arg-type]
        )
        page.add_init_script(TOUR_ANSWERED)
        with tempfile.TemporaryDirectory() as folder:
            html = write_html(recording, Path(folder) / "page.html")
            page.goto(f"{html.as_uri()}#view=memory&compilation={compilation}")
            expect(page.locator("canvas.live")).to_have_attribute("aria-busy", "false")
        self.act(page)
        expect(page.locator("canvas.live")).to_have_attribute("aria-busy", "false")
        page.mouse.move(0, 0)
        return page


def taken(page: Page) -> bytes:
    """The workbench, without the page's line above it."""
    return page.locator("#workbench").screenshot(animations="disabled")


PICTURES = {
    "gpt2-memory-light": Picture(gpt2),
    "gpt2-memory-dark": Picture(gpt2, "dark", by_module),
    "training-step-memory-light": Picture(training_step),
    "lower-the-peak-light": Picture(layers, act=first_change),
}


@cache
def plans() -> Plans:
    """Of two layers without dropout. Times are estimates for a core of a CPU, so they are the same on each machine."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    layers = (torch.nn.TransformerEncoderLayer(64, 4, 256, batch_first=True, dropout=0.0) for _ in range(2))
    net = torch.nn.Sequential(*layers)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return net(x).sum()

    return aotviz.plans(loss, torch.randn(8, 64, 64), speed=Speed())


def main(wanted: Sequence[str] = ()) -> None:
    os.environ["AOTVIZ_CACHE_DIR"] = "off"  # the pictures are not of what this machine's cache knows
    with finder.browser() as browser:
        for name, picture in PICTURES.items():
            if not wanted or name in wanted:
                page = picture.opened(browser)
                (FOLDER / f"{name}.png").write_bytes(taken(page))
                page.close()
        if not wanted or "plans-light" in wanted:
            (FOLDER / "plans-light.png").write_bytes(drawings.plans(plans(), browser))


if __name__ == "__main__":
    main(sys.argv[1:])
