"""Groups of the graph view that are opened, one after another: how long each takes on the clock.

    python -m benchmarks groups                 # 20,000 nodes of a training, 40 openings and 4 large views
    python -m benchmarks groups --quick

From the click to the drawing, in headless Chromium: what is shown is found, laid out by graphviz in its worker, and
painted with the next frame. Blocks of the forward and of the backward are opened and closed again, first, last and
between, and in each block a module of it. No opening repeats an earlier one, whose layout would be known. Then blocks
of the forward are opened beside one another; the figure of the large view is what the last of them takes.

The clock also counts what other programs take from a busy machine; beside it stands the main thread's processor time.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser

from tests.ui.browser import browser

from . import synthetic_graphs
from .results import Result, Row, result
from .viewer import OPEN_MS, Cost, Visit

NODES = 20_000
BLOCKS = (0, 7, 14, 21, 29)
PARTS = 8  # of a block, among which one is opened
LANES = ("forward", "backward")
LARGE_VIEW_MS = 300.0
LARGE_VIEW_BLOCKS = (3, 10, 17, 24)  # opened together: about 230 boxes
WARM_AFTER_MS = 2_000  # a reader looks before he clicks

# Only the rows in view are in the page.
FIND = """
  const outline = all(document, '.outline')[0];
  const find = () => all(outline, `[role=treeitem][data-row^="${lane}:"][data-row$="${module}"]`)[0];
"""
TO_ROW = f"""
  {FIND}
  const atEnd = () => outline.scrollTop + outline.clientHeight >= outline.scrollHeight - 1;
  outline.scrollTop = 0;
  await frame(); await frame();
  while (!find()) {{
    if (atEnd()) throw new Error(`no row of ${{lane}} ${{module}}`);
    outline.scrollTop += outline.clientHeight / 2;
    await frame(); await frame();
  }}
"""
CLICK = FIND + "return after(() => find().click());"
BOXES = "return Number(/in (\\d+) boxes/.exec(all(document, '.graph-foot .status')[0].textContent)[1]);"


def click(here: Visit, lane: str, module: str) -> Cost:
    """Opens a group, or closes it, once its row is in view."""
    here.run(TO_ROW, lane=lane, module=module)
    return here.act(CLICK, lane=lane, module=module)


def opened(instance: Browser, html: Path) -> tuple[list[Cost], Cost, int]:
    """Each opening of one visit; the large view, and its boxes."""
    here = Visit(instance)
    try:
        here.first_paint(html)
        here.page.wait_for_timeout(WARM_AFTER_MS)
        found = []
        for lane in LANES:
            for block in BLOCKS:
                found.append(click(here, lane, f"blocks.{block}|Block"))
                found.append(click(here, lane, f"blocks.{block}.parts.{block % PARTS}|Part"))
                click(here, lane, f"blocks.{block}|Block")  # closes it
        large = [click(here, "forward", f"blocks.{block}|Block") for block in LARGE_VIEW_BLOCKS]
        return found, large[-1], int(here.run(BOXES)[0])
    finally:
        here.page.close()


def run(rounds: int = 2, nodes: int = NODES) -> Result:
    """Raises tests.ui.browser.NoBrowser."""
    groups: list[Cost] = []
    large: list[Cost] = []
    with tempfile.TemporaryDirectory() as folder, browser() as instance:
        html = Path(folder) / "training.html"
        synthetic_graphs.recording("net", nodes).to_html(html)
        for _ in range(rounds):
            found, view, boxes = opened(instance, html)
            groups += found
            large.append(view)

    def row(case: str, clock: float, costs: list[Cost], target: float) -> Row:
        values = {"clock": clock, "main thread": median(cost.main_thread for cost in costs)}
        return Row(f"{nodes:,} nodes: {case}", clock, target, values, "ms")

    rows = [
        row("open a group", median(cost.clock for cost in groups), groups, OPEN_MS),
        row("open a group, the slowest", max(cost.clock for cost in groups), groups, OPEN_MS),
        row(f"a view of {boxes} boxes", median(cost.clock for cost in large), large, LARGE_VIEW_MS),
        row(f"a view of {boxes} boxes, the slowest", max(cost.clock for cost in large), large, LARGE_VIEW_MS),
    ]
    about = "Opening groups in the graph view, in headless Chromium without a GPU: from the click to the drawing."
    settings = {"rounds": rounds, "openings": len(groups), "large views": len(large)}
    return result("groups", about, "clock, ms", rows, settings)
