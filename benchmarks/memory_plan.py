"""What a plan of memory costs: its time beside compiling the program that it is of, and what showing it costs.

    python -m benchmarks memory_plan

The plan is read from the recording of a GPT-2's training step: its graphs are made readable, and every storage gets the
moments at which it is made and freed. Nothing is kept from one plan to the next.

The view of 20,000 nodes that run (synthetic_graphs.py) is opened and panned as in viewer.py: the figures are
milliseconds of the page's main thread.
"""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path
from statistics import median

from aotviz.frontends.functions import aot_module
from aotviz.reading.recording import Recording
from tests.ui.browser import browser

from . import synthetic_graphs, viewer
from .compiling import Step, training_step
from .measure import cpu_ns
from .results import Result, Row, result

LAYERS = (12, 96)
NODES = 20_000
TARGET = 0.02
TARGETS_OF_VIEW = {"first paint of the memory": viewer.FLAT_MS, "a frame of the memory": viewer.FRAME_MS}


def run(rounds: int = 3, sizes: tuple[int, ...] = LAYERS, nodes: int = NODES) -> Result:
    """Raises tests.ui.browser.NoBrowser."""
    rows = [*of_plans(rounds, sizes), *of_the_view(rounds, nodes)]
    about = (
        "the plan of which bytes are alive at each node of a GPT-2's training step, beside compiling it; and its view"
    )
    figure = "share of compiling; of the view, ms of the main thread"
    return result("memory_plan", about, figure, rows, {"rounds": rounds})


def of_the_view(rounds: int, nodes: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, browser() as instance:
        html = Path(folder) / "plan.html"
        synthetic_graphs.recording("net", nodes, training=False).to_html(html)
        visits = [viewer.visit_memory(instance, html, viewer.PAN_SECONDS) for _ in range(rounds)]
    rows = []
    for quantity, target in TARGETS_OF_VIEW.items():
        clock = median(one[quantity].clock for one in visits)
        main_thread = median(one[quantity].main_thread for one in visits)
        values = {"clock": clock, "main thread": main_thread}
        rows.append(Row(f"{nodes:,} nodes: {quantity}", main_thread, target, values, "ms"))
    return rows


def of_plans(rounds: int, sizes: tuple[int, ...]) -> list[Row]:
    rows = []
    for layers in sizes:
        model, batch = training_step(layers)
        step = Step(aot_module, model, batch, partition_fn="min_cut_rematerialization_partition")
        step()  # imports and caches that later compilations find warm
        shares, wholes = [], []
        for _ in range(rounds):
            gc.collect()
            wholes.append(cpu_ns(step) / 1e6)
            data = step.compiled.recording.data
            gc.collect()
            shares.append(cpu_ns(lambda data=data: Recording(data)[-1].memory().peak) / 1e6)
        figure = median(share / whole for share, whole in zip(shares, wholes, strict=True))
        nodes = sum(len(graph.op) for graph in data.compilations[-1].graphs[-2:])
        values = {"plan": median(shares), "compiling": median(wholes)}
        rows.append(Row(f"{layers} layers, {nodes:,} nodes", figure, TARGET, values, "ms"))
    return rows
