"""Pictures for docs/traces.md: logs as a reader meets them first, each with a problem that the picture must tell.

`python -m tests.ui.log_images` (also part of `make images`) writes docs/images/logs-*.png, from the corpus and from a
job on aotviz. Look at each: in ten seconds it must be clear what is wrong.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from playwright.sync_api import Browser, Page, expect

import aotviz
from aotviz.reading.recording import Recording
from tests.corpus.make import cleaned
from tests.explain.logs import logged, recording
from tests.ui import browser as finder
from tests.ui.fixture import ROOT

FOLDER = ROOT / "docs" / "images"
SIZE = {"width": 1100, "height": 620}


@dataclass(frozen=True)
class Picture:
    """The first screen of the page of some logs; of the workbench in it, if `view` names one."""

    name: str
    logs: tuple[str, ...]  # of the corpus; none: a job on aotviz
    view: str = ""
    page: str = ""  # of the view "records"
    look: Callable[[Page], None] | None = None


def kernel(page: Page) -> None:
    """The graph that AOTInductor compiled beside its code, with a node and the kernel that computes it marked."""
    page.locator("select").first.select_option(label="AOTInductor (AOTInductor)")
    page.get_by_role("button", name="changed nothing").click()
    page.locator('.stage[data-stage="post-grad passes"]').click()
    page.locator("[role=tab][data-view=code]").click()
    page.get_by_role("button", name="Kernels").click()
    expect(page.get_by_label("Generated kernels").locator(".bar")).to_contain_text("kernels")
    page.get_by_label("Search the recording").fill("addmm")
    page.keyboard.press("Enter")
    page.mouse.move(0, 0)
    page.mouse.wheel(0, 4000)


PICTURES = (
    Picture("export", ("exports",)),
    Picture("draft-export", ("exports_draft",)),
    Picture("aotinductor", ("aoti",), look=kernel),
    Picture("ranks-diverge", ("ranks_diverge",), "records", "ranks"),
    Picture("ranks-timeline", ("ranks",), "timeline"),
    Picture("restarts", ("restarts",)),
    Picture("cache-miss", ("cache_type_first", "cache_type_second")),
    Picture("bypass", ("cache_detailed_second",)),
    Picture("compiled-autograd", ("compiled_autograd",)),
    Picture("recompile-limit", ("recompile_limit",)),
    Picture("errors", ("errors",)),
    Picture("own-job", ()),
    Picture("overview", ("recompiles_modules", "graph_breaks")),
)


def own_job() -> Recording:
    """The log of a job on aotviz: one program for two sizes, of which the second is a recompile."""

    def step(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (x @ weight).relu().sum()

    def program() -> None:
        torch._dynamo.reset()
        compiled = torch.compile(step, backend="aotviz_eager")
        weight = torch.ones(4, 4, requires_grad=True)
        for rows in (2, 3):
            compiled(torch.ones(rows, 4), weight).backward()

    with tempfile.TemporaryDirectory() as folder:
        os.environ["AOTVIZ_CACHE_DIR"] = folder
        log = Path(folder) / "trace.log"
        hidden = [(f"{ROOT}/"[cut:].encode(), b"") for cut in (0, 2)]  # torch shortens a path in a guard
        logged(program, log.parent)
        log.write_bytes(b"".join(cleaned(log.read_bytes(), hidden)))
        read = aotviz.read_trace(log, index=False)
        read.save(log.with_name("job.aotviz"))  # its texts are in the log, which goes
        return aotviz.load(log.with_name("job.aotviz"))


def take(browser: Browser, picture: Picture) -> None:
    found = recording(*picture.logs) if picture.logs else own_job()
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder) / "page.html"
        found.to_html(html)
        page = browser.new_page(viewport=SIZE, offline=True)  # type: ignore[arg-type]
        page.goto(html.as_uri())
        if picture.view:
            page.locator(f"[role=tab][data-view={picture.view}]").click()
            if picture.page:
                page.locator(f"[data-page={picture.page}]").click()
            expect(page.locator(".notice.loading")).to_have_count(0)
            page.mouse.wheel(0, 4000)
        if picture.look is not None:
            picture.look(page)
        page.mouse.move(0, 0)
        page.screenshot(path=FOLDER / f"logs-{picture.name}.png", animations="disabled")
        page.close()


def main() -> int:
    with finder.browser() as browser:
        for picture in PICTURES:
            if not sys.argv[1:] or picture.name in sys.argv[1:]:
                take(browser, picture)
    print(f"{len(PICTURES)} pictures of logs in {FOLDER.relative_to(ROOT)}: look at each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
