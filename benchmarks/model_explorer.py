"""Model Explorer beside the workbench: the same graphs, the same Chromium, in turns.

Both show the graphs of synthetic_graphs.py with every block closed, about 60 boxes. Two things are measured in each.
*First paint*: from the start of the navigation to the first frame that shows what stays on the screen; frames and
their times are the browser's own screencast, so nothing depends on how a viewer draws. The workbench gets no head
start: it is the page that `python -m aotviz open` serves, which draws the code first, and is then clicked on to show
the graph.
*Panning*: milliseconds from one animation frame to the next while the mouse drags the graph.

Model Explorer is not among aotviz's dependencies. Give it an environment of its own and say where its Python is:

    python -m venv /somewhere/model-explorer
    /somewhere/model-explorer/bin/pip install ai-edge-model-explorer
    AOTVIZ_MODEL_EXPLORER=/somewhere/model-explorer/bin/python python -m benchmarks model_explorer
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from aotviz.recorder.recording import Recording
from aotviz.widgets.server import Viewer
from tests.ui import browser as finder

from . import results, synthetic_graphs

VARIABLE = "AOTVIZ_MODEL_EXPLORER"
SIZE = {"width": 1400, "height": 900}
QUIET_SECONDS = 2.0  # without a new frame: the picture stays
PATIENCE_SECONDS = 180.0
PAN_SECONDS = 3.0
TIMES_FASTER = 6  # to first paint, at the largest size
FRAME_MS = 20.0  # 50 frames a second, at the largest size
OURS, THEIRS = "aotviz", "Model Explorer"

SERVER = """
import sys, model_explorer
from model_explorer.config import ModelExplorerConfig
config = ModelExplorerConfig()
config.graphs_list.append(open(sys.argv[2], encoding="utf-8").read())
config.model_sources.append({"url": "graphs://joint/0"})
model_explorer.visualize_from_config(config, host="127.0.0.1", port=int(sys.argv[1]), no_open_in_browser=True)
"""

OPEN_GRAPH = """
const timer = setInterval(() => {
  const tab = document.getElementById("workbench")?.shadowRoot?.querySelector('[role=tab][data-view="graph"]');
  if (tab) { clearInterval(timer); tab.click(); }
}, 5);
"""

INK = """async ([first, last, area]) => {
  const pixels = async text => {
    const bitmap = await createImageBitmap(await (await fetch("data:image/jpeg;base64," + text)).blob());
    const scale = bitmap.width / area.viewport;
    const canvas = new OffscreenCanvas(bitmap.width, bitmap.height), context = canvas.getContext("2d");
    context.drawImage(bitmap, 0, 0);
    return context.getImageData(area.x * scale, area.y * scale, area.width * scale, area.height * scale).data;
  };
  const [a, b] = await Promise.all([pixels(first), pixels(last)]);
  const apart = (p, i, q, j) => Math.abs(p[i] - q[j]);
  const far = (p, i, q, j) => apart(p, i, q, j) + apart(p, i + 1, q, j + 1) + apart(p, i + 2, q, j + 2) > 60;
  let ink = 0, differs = 0;  // pixels of the last that are not background; pixels of the first that are not the last's
  for (let i = 0; i < b.length; i += 4) {
    ink += far(b, i, b, 0);
    differs += far(a, i, b, i);
  }
  return [ink, differs];
}"""

FRAMES = """() => {
  const count = () => { globalThis.framesSeen++; globalThis.frameTimer = requestAnimationFrame(count); };
  globalThis.framesSeen = 0;
  globalThis.frameTimer = requestAnimationFrame(count);
}"""


class NoModelExplorer(LookupError):
    """Model Explorer is not here."""


@dataclass
class Screencast:
    """The frames of a page as the browser presents them."""

    page: Page
    frames: list[tuple[float, str]] = field(default_factory=list)  # Unix seconds, JPEG in base64

    def __post_init__(self) -> None:
        self._session = self.page.context.new_cdp_session(self.page)
        self._session.on("Page.screencastFrame", self._frame)
        self._session.send("Page.startScreencast", {"format": "jpeg", "quality": 70, "everyNthFrame": 1})

    def _frame(self, event: dict[str, Any]) -> None:
        self.frames.append((float(event["metadata"]["timestamp"]), event["data"]))
        self._session.send("Page.screencastFrameAck", {"sessionId": event["sessionId"]})

    def stop(self) -> None:
        self._session.send("Page.stopScreencast")
        self._session.detach()


@dataclass(frozen=True)
class Contestant:
    name: str
    url: str
    graph: str  # selector of what the graph is drawn in
    script: str = ""  # run at the start of the page


def wait_for_graph(page: Page, cast: Screencast, graph: str) -> None:
    """Returns when the graph's element is there and the picture has stood still. Raises TimeoutError."""
    end = time.monotonic() + PATIENCE_SECONDS
    seen, since = -1, time.monotonic()
    while time.monotonic() < end:
        page.wait_for_timeout(100)
        if len(cast.frames) != seen:
            seen, since = len(cast.frames), time.monotonic()
        elif time.monotonic() - since > QUIET_SECONDS and seen and page.locator(graph).count():
            return
    raise TimeoutError(f"{page.url} showed no graph within {PATIENCE_SECONDS:.0f} s")


def middle(page: Page, graph: str) -> dict[str, float]:
    """The middle of the graph's element, without what lies over its edges."""
    box = page.locator(graph).first.bounding_box()
    assert box is not None
    x, y, width, height = box["x"], box["y"], box["width"], box["height"]
    height = min(height, SIZE["height"] - y)
    return {
        "x": x + 0.2 * width, "y": y + 0.15 * height, "width": 0.6 * width, "height": 0.7 * height,
        "viewport": SIZE["width"],
    }  # fmt: skip


def first_paint(page: Page, judge: Page, contestant: Contestant) -> float:
    """Milliseconds from the navigation to the first frame that shows what stays."""
    cast = Screencast(page)
    page.goto(contestant.url, wait_until="commit")
    began = page.evaluate("performance.timeOrigin") / 1000
    wait_for_graph(page, cast, contestant.graph)
    cast.stop()
    area = middle(page, contestant.graph)
    last = cast.frames[-1][1]
    ink = judge.evaluate(INK, [last, last, area])[0]
    if ink < 200:
        raise RuntimeError(f"{contestant.name} shows an empty graph: {ink} pixels")
    shown = cast.frames[-1][0]
    for at, frame in reversed(cast.frames):
        if at < began or judge.evaluate(INK, [frame, last, area])[1] > 0.1 * ink:
            break
        shown = at
    return (shown - began) * 1000


def pan(page: Page, contestant: Contestant) -> float:
    """Milliseconds a frame while the mouse drags the graph to and fro."""
    area = middle(page, contestant.graph)
    x, y = area["x"] + area["width"] / 2, area["y"] + area["height"] / 2
    page.mouse.move(x + 3, y + 3)
    page.mouse.down()
    page.evaluate(FRAMES)
    began, step = time.monotonic(), 0
    while (seconds := time.monotonic() - began) < PAN_SECONDS:
        step += 1
        page.mouse.move(x + 3 + 5 * (step % 40), y + 3 + 3 * (step % 40))
    frames = page.evaluate("() => { cancelAnimationFrame(globalThis.frameTimer); return globalThis.framesSeen; }")
    seconds = time.monotonic() - began
    page.mouse.up()
    return seconds * 1000 / max(1, frames)


def converted(recording: Recording) -> dict[str, Any]:
    """The recording's graph in Model Explorer's format, in the boxes that the workbench shows: two a block."""
    rows = recording[0].graph("joint").nodes
    readers = [(row.name, user) for row in rows.itertuples() for user in row.users]
    edges: dict[str, list[dict[str, str]]] = {name: [] for name in rows.name}
    for name, user in readers:
        edges[user].append(
            {"sourceNodeId": name, "sourceNodeOutputId": "0", "targetNodeInputId": str(len(edges[user]))}
        )
    return {
        "graphs": [
            {
                "id": "joint",
                "nodes": [
                    {
                        "id": row.name,
                        "label": str(row.target),
                        "namespace": namespace(
                            row.module_path or row.descriptor.removesuffix(".weight"), row.is_backward
                        ),
                        "incomingEdges": edges[row.name],
                    }
                    for row in rows.itertuples()
                ],
            }
        ]
    }


def namespace(path: str, is_backward: bool) -> str:
    """E.g. "blocks.0.parts.1" -> "blocks.0/parts.1", and "blocks.0, backward/parts.1"."""
    names = path.split(".")
    steps = [".".join(names[i : i + 2]) for i in range(0, len(names), 2)] if path else []
    return "/".join([f"{steps[0]}, backward" if is_backward else steps[0], *steps[1:]]) if steps else ""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def ours(recording: Recording) -> Iterator[Contestant]:
    viewer = Viewer(recording)
    thread = threading.Thread(target=viewer.serve, daemon=True)
    thread.start()
    try:
        yield Contestant(OURS, viewer.url, ".panel[data-view=graph]", OPEN_GRAPH)
    finally:
        viewer.close()
        thread.join()


@contextmanager
def theirs(recording: Recording, folder: Path) -> Iterator[Contestant]:
    """Raises NoModelExplorer, and RuntimeError where its server does not start."""
    python = os.environ.get(VARIABLE, "")
    if not python:
        raise NoModelExplorer(f"{VARIABLE} names no Python with ai-edge-model-explorer; see {__name__}'s docstring")
    path = folder / "graph.json"
    path.write_text(json.dumps(converted(recording)), encoding="utf-8")
    port = free_port()
    command = [python, "-c", SERVER, str(port), str(path)]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}/"
    try:
        wait_for_server(address, server, folder / "server.log")
        chosen = urllib.parse.quote(json.dumps({"models": [{"url": "graphs://joint/0"}]}))
        yield Contestant(THEIRS, f"{address}?data={chosen}", "canvas")
    finally:
        server.terminate()
        server.wait(20)


def wait_for_server(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)  # between two questions to a server that is still starting
    raise RuntimeError(f"Model Explorer did not start:\n{log.read_text(errors='replace')[-2000:]}")


def measure(browser: Browser, contestant: Contestant, picture: Path | None) -> tuple[float, float]:
    """First paint and frame time, both in milliseconds."""
    page, judge = browser.new_page(viewport=SIZE), browser.new_page()  # type: ignore[arg-type]
    page.add_init_script(contestant.script)
    try:
        painted = first_paint(page, judge, contestant)
        if picture is not None:
            page.screenshot(path=picture)
        return painted, pan(page, contestant)
    finally:
        page.close()
        judge.close()


def run(
    rounds: int = 3, sizes: tuple[int, ...] = synthetic_graphs.SIZES, pictures: Path | None = None
) -> list[results.Result]:
    """Two results: first paint, and panning. With `pictures`, a screenshot of each goes there."""
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    with finder.browser() as browser, tempfile.TemporaryDirectory() as name:
        for size in sizes:
            recording = synthetic_graphs.recording(f"{size} nodes", size)
            with ours(recording) as first, theirs(recording, Path(name)) as second:
                for at in range(rounds):
                    for contestant in (first, second):
                        picture = pictures / f"{contestant.name} {size}.png" if pictures and at == 0 else None
                        found.setdefault((size, contestant.name), []).append(measure(browser, contestant, picture))
    settings = {"rounds": rounds, "blocks": synthetic_graphs.BLOCKS, "pan_seconds": int(PAN_SECONDS)}
    return [paint_result(found, sizes, settings), pan_result(found, sizes, settings)]


Found = dict[tuple[int, str], list[tuple[float, float]]]


def medians(found: Found, size: int, which: int) -> dict[str, float]:
    return {name: statistics.median(one[which] for one in found[size, name]) for name in (OURS, THEIRS)}


def paint_result(found: Found, sizes: tuple[int, ...], settings: dict[str, int]) -> results.Result:
    rows = []
    for size in sizes:
        values = medians(found, size, 0)
        target = 1 / TIMES_FASTER if size == synthetic_graphs.SIZES[-1] else 1.0
        rows.append(results.Row(f"{size:,} nodes", values[OURS] / values[THEIRS], target, values, "ms"))
    about = "From the navigation to the first frame that shows the graph, every block closed."
    return results.result("first_paint", about, "ours / theirs", rows, settings)


def pan_result(found: Found, sizes: tuple[int, ...], settings: dict[str, int]) -> results.Result:
    rows = []
    for size in sizes:
        values = medians(found, size, 1)
        rows.append(results.Row(f"{size:,} nodes", values[OURS] / values[THEIRS], 1.0, values, "ms a frame"))
    largest = synthetic_graphs.SIZES[-1]
    if largest in sizes:
        at_most = {OURS: medians(found, largest, 1)[OURS], "50 frames a second": FRAME_MS}
        rows.append(
            results.Row(f"{largest:,} nodes, to be smooth", at_most[OURS] / FRAME_MS, 1.0, at_most, "ms a frame")
        )
    return results.result("panning", "One frame while the mouse drags the graph.", "ours / theirs", rows, settings)
