"""The graph view in a browser: how long until a graph is drawn, until a module is open, and how smoothly it pans.

Every size of graph (synthetic_graphs.py: about 60 boxes while its blocks are closed) is opened as a page of its own in
headless Chromium without a GPU, with nothing cached. Times are measured in the page, from the start of its navigation,
so decoding, reading, laying out and painting are all in them. A pan is a drag that moves in every frame for some
seconds, up and down and sideways, and back; a frame is what requestAnimationFrame says is one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, Page

from tests.ui.browser import browser

from . import synthetic_graphs
from .results import Result, Row, result

VIEWPORT = (1280, 800)
PAN_SECONDS = 3
FRAME_MS = 20.0  # 50 frames a second
OPEN_MS = 150.0
FLAT_MS = 1000.0
# Finds elements through shadow roots, presses the tab of the graph as soon as there is one, waits for what is marked.
HELPERS = """
const all = (root, selector, out = []) => {
  out.push(...root.querySelectorAll(selector));
  for (const element of root.querySelectorAll('*')) if (element.shadowRoot) all(element.shadowRoot, selector, out);
  return out;
};
const frame = () => new Promise((done) => requestAnimationFrame(done));
const until = async (test) => { for (;;) { const found = test(); if (found) return found; await frame(); } };
const painted = () => performance.getEntriesByName('aotviz graph painted');
const after = async (act) => {
  const before = painted().length, start = performance.now();
  act();
  return (await until(() => painted()[before])).startTime - start;
};
"""
FIRST_PAINT = """
  (await until(() => all(document, '[role=tab][data-view=graph]')[0])).click();
  return (await until(() => painted()[0])).startTime;
"""
OPEN_GROUP = """
  const rows = all(document, '.outline [role=treeitem][aria-expanded=false]');
  return after(() => rows[0].click());
"""
SHOW_FLAT = "return after(() => all(document, '[data-toggle=flat]')[0].click());"
ZOOM_FAR = """
  const canvas = all(document, 'canvas.drawing')[0];
  canvas.focus();
  for (let i = 0; i < 9; i++) canvas.dispatchEvent(new KeyboardEvent('keydown', { key: '-' }));
  await new Promise((done) => setTimeout(done, 1500));
"""
# A drag that Model Explorer and others can be given as well: `canvas` is what receives it.
PAN = """
  const box = canvas.getBoundingClientRect();
  const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
  const send = (type, dx, dy) => canvas.dispatchEvent(new PointerEvent(type, {
    bubbles: true, composed: true, pointerId: 1, isPrimary: true, button: type === 'pointermove' ? -1 : 0,
    buttons: type === 'pointerup' ? 0 : 1, clientX: x + dx, clientY: y + dy }));
  canvas.setPointerCapture = () => {};
  send('pointerdown', 0, 0);
  const times = [await frame()];
  const start = times[0];
  while (times.at(-1) - start < seconds * 1000) {
    const t = (times.at(-1) - start) / 1000;
    send('pointermove', 120 * Math.sin(2.1 * t), -900 * t * Math.cos(0.4 * t));
    times.push(await frame());
  }
  send('pointerup', 0, 0);
  const gaps = times.slice(1).map((time, i) => time - times[i]).sort((a, b) => a - b);
  return [(times.at(-1) - start) / gaps.length, gaps[Math.floor(0.95 * gaps.length)]];
"""


def run_in(page: Page, body: str, **arguments: float) -> list[float]:
    """The numbers that an async function's body returns in the page; `canvas` is the graph's."""
    names = "".join(f"const {name} = {value!r};" for name, value in arguments.items())
    if "const canvas" not in body and "canvas" in body:
        names += "const canvas = all(document, 'canvas.drawing')[0];"
    found = page.evaluate(f"async () => {{ {HELPERS} {names} {body} }}")
    return [float(number) for number in (found if isinstance(found, list) else [found or 0.0])]


def pan(page: Page, seconds: float) -> tuple[float, float]:
    """Milliseconds a frame: the mean, and what 95 of 100 frames stay under."""
    mean, slow = run_in(page, PAN, seconds=seconds)
    return mean, slow


def visit(instance: Browser, html: Path, seconds: float) -> dict[str, float]:
    """One visit of one page: quantity -> milliseconds."""
    size = {"width": VIEWPORT[0], "height": VIEWPORT[1]}
    page = instance.new_page(viewport=size, reduced_motion="reduce")  # type: ignore[arg-type]  # no time in animations
    try:
        page.goto(html.as_uri(), wait_until="commit")
        found = {"first paint": run_in(page, FIRST_PAINT)[0]}
        page.wait_for_timeout(1000)  # graphviz has started by now: what follows is warm
        found["open a module"] = run_in(page, OPEN_GROUP)[0]
        found["frame"], found["frame, slowest twentieth"] = pan(page, seconds)
        found["every node by itself"] = run_in(page, SHOW_FLAT)[0]
        page.wait_for_timeout(500)
        found["frame, every node"], found["frame, every node, slowest twentieth"] = pan(page, seconds)
        run_in(page, ZOOM_FAR)
        found["frame, every node, far"], found["frame, every node, far, slowest twentieth"] = pan(page, seconds)
        return found
    finally:
        page.close()


TARGETS = {
    "open a module": OPEN_MS, "every node by itself": FLAT_MS, "frame": FRAME_MS, "frame, every node": FRAME_MS,
    "frame, every node, far": FRAME_MS,
}  # fmt: skip


def run(rounds: int = 3, sizes: tuple[int, ...] = synthetic_graphs.SIZES, seconds: float = PAN_SECONDS) -> Result:
    """Raises tests.ui.browser.NoBrowser."""
    visits: dict[int, list[dict[str, float]]] = {size: [] for size in sizes}
    with tempfile.TemporaryDirectory() as folder, browser() as instance:
        pages = {size: Path(folder) / f"{size}.html" for size in sizes}
        for size, html in pages.items():
            synthetic_graphs.recording("net", size).to_html(html)
        for _ in range(rounds):
            for size, html in pages.items():
                visits[size].append(visit(instance, html, seconds))
    rows = []
    for size, found in visits.items():
        for quantity in found[0]:
            milliseconds = median(one[quantity] for one in found)
            target = TARGETS.get(quantity)
            rows.append(Row(f"{size:,} nodes: {quantity}", milliseconds, target, {"ours": milliseconds}, "ms"))
    return result(
        "viewer",
        "The graph view in headless Chromium without a GPU: first paint, opening a module, panning.",
        "milliseconds",
        rows,
        {"rounds": rounds, "pan_seconds": int(seconds), "width": VIEWPORT[0], "height": VIEWPORT[1]},
    )
