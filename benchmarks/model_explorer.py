"""Model Explorer beside the workbench: the same graphs, the same Chromium, in turns.

Both show the graphs of synthetic_graphs.py with every block closed, about 60 boxes: as a training (a forward and a
backward, with an edge from each block to its gradient) and as an inference (a chain). In each is measured:

*First paint*: from the start of the navigation to the beginning of the frame after the one that drew the graph, when
the browser has taken the picture over. One script watches both pages: it notes the first call that draws (2D or WebGL)
on a large canvas of the document, and the frame after; nothing is paid for watching. A viewer that draws in several
frames would be said to have drawn too early; Model Explorer is given that benefit, the workbench is not: its clock runs
until it says that the whole view is painted. Without a GPU a WebGL call returns long before there is a picture, so the
time of the calls themselves stands beside it ("drawn"). Each page is told by its address to show the graph.

*Panning*: milliseconds from one animation frame to the next while the mouse drags the graph, and processor time of
the main thread for each.

A page is given up after GIVE_UP_SECONDS. The time is then that, and the figure is larger than what is true.

Model Explorer is not among aotviz's dependencies. Give it an environment of its own and say where its Python is:

    python -m venv /somewhere/model-explorer
    /somewhere/model-explorer/bin/pip install ai-edge-model-explorer
    AOTVIZ_MODEL_EXPLORER=/somewhere/model-explorer/bin/python python -m benchmarks model_explorer
"""

from __future__ import annotations

import json
import math
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, TimeoutError

from aotviz.reading.recording import Recording
from aotviz.widgets.server import Viewer
from tests.ui import browser as finder

from . import results, synthetic_graphs
from .viewer import MainThread

VARIABLE = "AOTVIZ_MODEL_EXPLORER"
SIZE = {"width": 1400, "height": 900}
GIVE_UP_SECONDS = 60.0  # of waiting for a first paint
PAN_SECONDS = 3.0
SETTLED_MS = 1000  # after first paint, before a pan
TIMES_FASTER = 6  # to first paint, at the largest size
FRAME_MS = 20.0  # 50 frames a second
OURS, THEIRS = "aotviz", "Model Explorer"

SERVER = """
import sys, model_explorer
from model_explorer.config import ModelExplorerConfig
config = ModelExplorerConfig()
config.graphs_list.append(open(sys.argv[2], encoding="utf-8").read())
config.model_sources.append({"url": "graphs://joint/0"})
model_explorer.visualize_from_config(config, host="127.0.0.1", port=int(sys.argv[1]), no_open_in_browser=True)
"""

WATCH_CANVASES = """
(() => {
  const LARGE = 300;  // pixels a side: not a minimap, not an icon
  const after = name => requestAnimationFrame(() => { globalThis[name] ||= performance.now(); });
  globalThis.anyDrawn = globalThis.anyShown = globalThis.wholeDrawn = globalThis.wholeShown = 0;
  const note = canvas => {
    if (globalThis.anyDrawn || !(canvas instanceof HTMLCanvasElement) || !canvas.isConnected) return;
    if (canvas.clientWidth < LARGE || canvas.clientHeight < LARGE) return;
    globalThis.anyDrawn = performance.now();
    after("anyShown");
  };
  for (const [type, names] of [
    [CanvasRenderingContext2D, ["drawImage", "stroke", "fill", "fillText"]],
    [WebGLRenderingContext, ["drawArrays", "drawElements"]],
    [WebGL2RenderingContext, ["drawArrays", "drawElements", "drawArraysInstanced", "drawElementsInstanced"]],
  ]) {
    for (const name of names) {
      const draw = type.prototype[name];
      type.prototype[name] = function (...given) { note(this.canvas); return draw.apply(this, given); };
    }
  }
  new PerformanceObserver(list => {
    const [mark] = list.getEntriesByName("aotviz graph painted");
    if (!mark || globalThis.wholeDrawn) return;
    globalThis.wholeDrawn = mark.startTime;
    after("wholeShown");
  }).observe({ entryTypes: ["mark"] });
})();
"""

FRAMES = """() => {
  const count = () => { globalThis.framesSeen++; globalThis.frameTimer = requestAnimationFrame(count); };
  globalThis.framesSeen = 0;
  globalThis.frameTimer = requestAnimationFrame(count);
}"""


class NoModelExplorer(LookupError):
    """Model Explorer is not here."""


@dataclass(frozen=True)
class Contestant:
    name: str
    url: str
    graph: str  # selector of what the graph is drawn in
    moment: str  # "any" or "whole": what of WATCH_CANVASES is its first paint


@dataclass(frozen=True)
class Visit:
    """What was found in one page, in milliseconds."""

    first_paint: float  # inf where it took longer than anybody waits
    drawn: float  # the calls that drew what was then painted
    frame: float  # of a pan, on the clock; nan where there was nothing to pan
    main_thread: float  # of a frame


def middle(page: Page, graph: str) -> tuple[float, float]:
    """The middle of what of the graph's element is in view."""
    box = page.locator(graph).first.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + min(box["height"], SIZE["height"] - box["y"]) / 2


def first_paint(page: Page, contestant: Contestant) -> tuple[float, float]:
    """Milliseconds from the navigation until the graph is shown, and until it was drawn; inf where nobody waits."""
    page.goto(contestant.url, wait_until="commit")
    shown, drawn = f"{contestant.moment}Shown", f"{contestant.moment}Drawn"
    try:
        found = page.wait_for_function(f"() => globalThis.{shown}", timeout=GIVE_UP_SECONDS * 1000, polling=100)
        return float(found.json_value()), float(page.evaluate(f"globalThis.{drawn}"))
    except TimeoutError:
        return math.inf, math.inf


def pan(page: Page, contestant: Contestant, thread: MainThread) -> tuple[float, float]:
    """Milliseconds a frame while the mouse drags the graph to and fro: on the clock, and of the main thread."""
    x, y = middle(page, contestant.graph)
    page.mouse.move(x + 3, y + 3)
    page.mouse.down()
    page.evaluate(FRAMES)
    before, began, step = thread.ms(), time.monotonic(), 0
    while (seconds := time.monotonic() - began) < PAN_SECONDS:
        step += 1
        page.mouse.move(x + 3 + 5 * (step % 40), y + 3 + 3 * (step % 40))
    frames = page.evaluate("() => { cancelAnimationFrame(globalThis.frameTimer); return globalThis.framesSeen; }")
    seconds, used = time.monotonic() - began, thread.ms() - before
    page.mouse.up()
    return seconds * 1000 / max(1, frames), used / max(1, frames)


def converted(recording: Recording) -> dict[str, Any]:
    """The recording's graph in Model Explorer's format, in the boxes that the workbench shows."""
    (role,) = recording[0].data.stages[0].graphs
    rows = recording[0].graph(role).nodes
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
                        "namespace": namespace(row.module_path or weight_of(row.descriptor), row.is_backward),
                        "incomingEdges": edges[row.name],
                    }
                    for row in rows.itertuples()
                ],
            }
        ]
    }


def weight_of(descriptor: str) -> str:
    """E.g. "blocks.0.weight" -> "blocks.0"; "" for what is no weight and stays outside of all modules."""
    module, _, name = descriptor.rpartition(".")
    return module if name == "weight" else ""


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
        yield Contestant(OURS, f"{viewer.url}#view=graph", "canvas.drawing", "whole")
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
        yield Contestant(THEIRS, f"{address}?data={chosen}", "canvas", "any")
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


def measure(browser: Browser, contestant: Contestant, picture: Path | None) -> Visit:
    page = browser.new_page(viewport=SIZE)  # type: ignore[arg-type]
    page.add_init_script(WATCH_CANVASES)
    page.route(lambda url: not url.startswith("http://127.0.0.1:"), lambda route: route.abort())  # no fonts from afar
    thread = MainThread(page)
    try:
        painted, drawn = first_paint(page, contestant)
        if math.isinf(painted):
            return Visit(painted, drawn, math.nan, math.nan)
        page.wait_for_timeout(SETTLED_MS)
        frame, main_thread = pan(page, contestant, thread)
        if picture is not None:
            page.screenshot(path=picture, timeout=120_000)
        return Visit(painted, drawn, frame, main_thread)
    finally:
        page.close()


Case = tuple[str, int]  # kind of graph, nodes
Found = dict[tuple[Case, str], list[Visit]]
KINDS = {"training": synthetic_graphs.BLOCKS, "inference": 2 * synthetic_graphs.BLOCKS}  # kind -> blocks


def run(
    rounds: int = 3, sizes: tuple[int, ...] = synthetic_graphs.SIZES, pictures: Path | None = None
) -> list[results.Result]:
    """Two results: first paint, and panning. With `pictures`, a screenshot of each goes there.

    Raises NoModelExplorer, tests.ui.browser.NoBrowser.
    """
    found: Found = {}
    with finder.browser() as browser, tempfile.TemporaryDirectory() as name:
        for kind, blocks in KINDS.items():
            for size in sizes:
                recording = synthetic_graphs.recording(f"{size} nodes", size, blocks, training=kind == "training")
                with ours(recording) as first, theirs(recording, Path(name)) as second:
                    for at in range(rounds):
                        for one in (first, second):
                            picture = pictures / f"{one.name} {kind} {size}.png" if pictures and at == 0 else None
                            visits = found.setdefault(((kind, size), one.name), [])
                            if not visits or not math.isinf(visits[0].first_paint):  # nobody waits for that twice
                                visits.append(measure(browser, one, picture))
    settings = {
        "rounds": rounds, "blocks": synthetic_graphs.BLOCKS, "pan_seconds": int(PAN_SECONDS),
        "give_up_seconds": int(GIVE_UP_SECONDS),
    }  # fmt: skip
    return [paint_result(found, settings), pan_result(found, settings)]


def cases(found: Found) -> list[Case]:
    return list(dict.fromkeys(case for case, _ in found))


def medians(found: Found, case: Case, quantity: str) -> dict[str, float]:
    """By contestant, of the visits that have the quantity."""
    both = {name: [getattr(visit, quantity) for visit in found[case, name]] for name in (OURS, THEIRS)}
    return {name: statistics.median(times) for name, times in both.items() if not any(map(math.isnan, times))}


def title(case: Case) -> str:
    kind, nodes = case
    return f"{kind}, {nodes:,} nodes"


def paint_result(found: Found, settings: dict[str, int]) -> results.Result:
    rows = []
    for case in cases(found):
        values = medians(found, case, "first_paint")
        gave_up = math.isinf(values[THEIRS])
        if gave_up:
            values[THEIRS] = GIVE_UP_SECONDS * 1000
        else:
            values |= {f"{name}, drawn": ms for name, ms in medians(found, case, "drawn").items()}
        target = 1 / TIMES_FASTER if case[1] == synthetic_graphs.SIZES[-1] else 1.0
        name = title(case) + (f" ({THEIRS} given up)" if gave_up else "")
        rows.append(results.Row(name, values[OURS] / values[THEIRS], target, values, "ms"))
    about = "From the navigation until the graph is shown (and until it was drawn), blocks closed: time on the clock."
    return results.result("first_paint", about, "ours / theirs", rows, settings)


def pan_result(found: Found, settings: dict[str, int]) -> results.Result:
    """On the clock beside theirs, and against 50 frames a second."""
    rows = []
    for case in cases(found):
        clock, thread = medians(found, case, "frame"), medians(found, case, "main_thread")
        values = clock | {f"{name}, main thread": ms for name, ms in thread.items()}
        if THEIRS in clock:
            rows.append(results.Row(title(case), clock[OURS] / clock[THEIRS], 1.0, values, "ms a frame"))
        smooth = {OURS: clock[OURS], f"{OURS}, main thread": thread[OURS], "50 frames a second": FRAME_MS}
        rows.append(results.Row(f"{title(case)}, to be smooth", clock[OURS] / FRAME_MS, 1.0, smooth, "ms a frame"))
    about = "One frame while the mouse drags the graph: time on the clock, and processor time of the main thread."
    return results.result("panning", about, "ours / theirs", rows, settings)
