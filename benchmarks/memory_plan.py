"""What a plan of memory costs: its time beside compiling the program that it is of.

    python -m benchmarks memory_plan

The plan is read from the recording of a GPT-2's training step: its graphs are made readable, and every storage gets the
moments at which it is made and freed. Nothing is kept from one plan to the next.
"""

from __future__ import annotations

import gc
from statistics import median

from aotviz.frontends.functions import aot_module
from aotviz.reading.recording import Recording

from .compiling import Step, training_step
from .measure import cpu_ns
from .results import Result, Row, result

LAYERS = (12, 96)
TARGET = 0.02


def run(rounds: int = 3, sizes: tuple[int, ...] = LAYERS) -> Result:
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
    about = "the plan of which bytes are alive at each node of a GPT-2's training step, beside compiling it"
    return result("memory_plan", about, "share of compiling", rows, {"rounds": rounds})
