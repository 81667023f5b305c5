"""How long the workbench takes to show what changed between two large graphs, from the click to the picture.

    python -m benchmarks diffing                # graphs of 20,000 nodes, so texts of about 20,000 lines
    python -m benchmarks diffing --quick

The page is the exported one, in a headless browser. The clock runs in the page: it starts with the click on the tab,
or on "by nodes", and stops two frames after the result is in the document.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

from msgspec.structs import replace
from playwright.sync_api import Page

from aotviz.reading.recording import Recording
from tests.ui import browser

from . import synthetic_graphs
from .results import Result, Row, result

NODES = 20_000
SECONDS = 1.0  # that a diff may take
EVERY = 25  # one node in so many has another operator afterwards
CLICK = """async ([button, shown]) => {
  const root = document.querySelector("main").shadowRoot;
  const began = performance.now();
  root.querySelector(button).click();
  while (!root.querySelector(shown)) await new Promise((done) => requestAnimationFrame(done));
  for (let i = 0; i < 2; i++) await new Promise((done) => requestAnimationFrame(done));
  return performance.now() - began;
}"""


def recording(nodes: int) -> Recording:
    """Two stages whose graphs differ in every EVERY-th node."""
    data = synthetic_graphs.recording("net", nodes, stages=2).data
    (compilation,) = data.compilations
    before, after = compilation.graphs
    strings = [*data.strings, "aten.replaced.default"]
    target = [len(data.strings) if i % EVERY == 0 and op == "f" else number for i, (op, number) in
              enumerate(zip(after.op, after.target, strict=True))]  # fmt: skip
    changed = replace(compilation, graphs=[before, replace(after, target=target, value=before.value)])
    return Recording(replace(data, strings=strings, compilations=[changed]))


def measure(page: Page, html: Path) -> dict[str, float]:
    """Milliseconds of each kind of diff, on a page of its own."""
    page.goto(html.as_uri())
    page.locator('.stage[data-stage="pass 1"]').click()
    page.locator(".cm-content").wait_for()
    text = page.evaluate(CLICK, ['[role=tab][data-view="diff"]', ".bar .chip.added"])
    nodes = page.evaluate(CLICK, ['.choice [role="radio"]:last-child', ".lead .chip.warn"])
    return {"by text": text, "by nodes": nodes}


def run(rounds: int = 5, nodes: int = NODES) -> Result:
    """Raises NoBrowser, and FrontEndMissing in a checkout whose front end is not built."""
    with tempfile.TemporaryDirectory() as folder, browser.browser() as instance:
        html = Path(folder, "diff.html")
        recording(nodes).to_html(html)
        found = []
        for _ in range(rounds):
            page = instance.new_page(viewport={"width": 1400, "height": 900}, offline=True)
            found.append(measure(page, html))
            page.close()
    times = {kind: median(one[kind] for one in found) for kind in found[0]}
    rows = [Row(f"{nodes:,} nodes, {kind}", ms / 1000, SECONDS, {"ours": ms}, "ms") for kind, ms in times.items()]
    about = "What changed between two graphs: from the click to the picture, in a headless browser."
    return result("diffing", about, "seconds", rows, {"rounds": rounds, "nodes": nodes})
