"""The graph view in a browser: how long until a graph is drawn, until a module is open, and how smoothly it pans.

The figure is processor time of the page's main thread, where all of this happens but graphviz, which has a worker of
its own: what the view costs, whatever else the machine does. Beside it stands the time on the clock. Fifty frames a
second are twenty milliseconds a frame.

Every size of graph (synthetic_graphs.py: about 60 boxes while its blocks are closed) is opened as a page of its own in
headless Chromium without a GPU, with nothing cached. Times are measured in the page, from the start of its navigation,
so decoding, reading, laying out and painting are all in them. A pan is a drag that moves in every frame for some
seconds, up and down and sideways, and back; a frame is what requestAnimationFrame says is one.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, Page, ViewportSize

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
  return [(times.at(-1) - start) / (times.length - 1), times.length - 1];
"""


FIRST_MEMORY = """
  (await until(() => all(document, '[role=tab][data-view=memory]')[0])).click();
  return (await until(() => performance.getEntriesByName('aotviz memory painted')[0])).startTime;
"""
PAN_MEMORY = (
    """
  const canvas = all(document, 'canvas.live')[0];
  canvas.focus();
  for (let i = 0; i < 3; i++) canvas.dispatchEvent(new KeyboardEvent('keydown', { key: '+' }));
  await new Promise((done) => setTimeout(done, 500));
"""
    + PAN
)


@dataclass(frozen=True)
class Cost:
    """Milliseconds."""

    clock: float
    main_thread: float


class MainThread:
    """Processor time of a page's main thread."""

    def __init__(self, page: Page) -> None:
        self.session = page.context.new_cdp_session(page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def ms(self) -> float:
        metrics = self.session.send("Performance.getMetrics")["metrics"]
        return 1000 * next(float(metric["value"]) for metric in metrics if metric["name"] == "TaskDuration")


class Visit:
    """One page, whose doings are measured one by one."""

    def __init__(self, instance: Browser) -> None:
        size: ViewportSize = {"width": VIEWPORT[0], "height": VIEWPORT[1]}
        self.page = instance.new_page(viewport=size, reduced_motion="reduce")  # no time in animations
        self.thread = MainThread(self.page)

    def run(self, body: str, **arguments: float | str) -> list[float]:
        """The numbers that an async function's body returns in the page; `canvas` is the graph's."""
        names = "".join(f"const {name} = {value!r};" for name, value in arguments.items())
        if "const canvas" not in body and "canvas" in body:
            names += "const canvas = all(document, 'canvas.drawing')[0];"
        found = self.page.evaluate(f"async () => {{ {HELPERS} {names} {body} }}")
        return [float(number) for number in (found if isinstance(found, list) else [found or 0.0])]

    def first_paint(self, html: Path, body: str = FIRST_PAINT) -> Cost:
        self.page.goto(html.as_uri(), wait_until="commit")
        clock = self.run(body)[0]
        cost = Cost(clock, self.thread.ms())
        self.page.wait_for_timeout(1000)  # graphviz has started by now: what follows is warm
        return cost

    def act(self, body: str, **arguments: float | str) -> Cost:
        before = self.thread.ms()
        clock = self.run(body, **arguments)[0]
        return Cost(clock, self.thread.ms() - before)

    def pan(self, seconds: float, body: str = PAN) -> Cost:
        """Of a frame, in the mean."""
        before = self.thread.ms()
        frame_ms, frames = self.run(body, seconds=seconds)
        return Cost(frame_ms, (self.thread.ms() - before) / frames)


def visit(instance: Browser, html: Path, seconds: float) -> dict[str, Cost]:
    """What one visit of a page costs, by quantity."""
    here = Visit(instance)
    try:
        found = {"first paint": here.first_paint(html), "open a module": here.act(OPEN_GROUP)}
        found["a frame of a pan"] = here.pan(seconds)
        found["every node by itself"] = here.act(SHOW_FLAT)
        here.page.wait_for_timeout(500)
        found["a frame, every node"] = here.pan(seconds)
        here.run(ZOOM_FAR)
        found["a frame, every node, from afar"] = here.pan(seconds)
        return found
    finally:
        here.page.close()


def visit_memory(instance: Browser, html: Path, seconds: float) -> dict[str, Cost]:
    """What the view of memory costs."""
    here = Visit(instance)
    try:
        found = {"first paint of the memory": here.first_paint(html, FIRST_MEMORY)}
        found["a frame of the memory"] = here.pan(seconds, PAN_MEMORY)
        return found
    finally:
        here.page.close()


TARGETS = {
    "open a module": OPEN_MS, "every node by itself": FLAT_MS, "a frame of a pan": FRAME_MS,
    "a frame of the memory": FRAME_MS, "a frame, every node": FRAME_MS, "a frame, every node, from afar": FRAME_MS,
}  # fmt: skip


def run(rounds: int = 3, sizes: tuple[int, ...] = synthetic_graphs.SIZES, seconds: float = PAN_SECONDS) -> Result:
    """Raises tests.ui.browser.NoBrowser."""
    visits: dict[int, list[dict[str, Cost]]] = {size: [] for size in sizes}
    with tempfile.TemporaryDirectory() as folder, browser() as instance:
        pages = {size: Path(folder) / f"{size}.html" for size in sizes}
        plans = {size: html.with_suffix(".plan.html") for size, html in pages.items()}
        for size, html in pages.items():
            synthetic_graphs.recording("net", size).to_html(html)
            synthetic_graphs.recording("net", size, training=False).to_html(plans[size])  # graphs that run
        for _ in range(rounds):
            for size, html in pages.items():
                visits[size].append(visit(instance, html, seconds) | visit_memory(instance, plans[size], seconds))
    rows = []
    for size, found in visits.items():
        for quantity in found[0]:
            clock = median(one[quantity].clock for one in found)
            main_thread = median(one[quantity].main_thread for one in found)
            values = {"clock": clock, "main thread": main_thread}
            rows.append(Row(f"{size:,} nodes: {quantity}", main_thread, TARGETS.get(quantity), values, "ms"))
    return result(
        "viewer",
        "The graph view and the memory view in headless Chromium without a GPU: first paint, opening, panning.",
        "main thread, ms",
        rows,
        {"rounds": rounds, "pan_seconds": int(seconds), "width": VIEWPORT[0], "height": VIEWPORT[1]},
    )
