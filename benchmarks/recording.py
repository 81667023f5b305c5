"""What recording costs: its share of a compilation, and the bytes of a recording.

The share is measured directly: each of the recorder's own turns is timed, and set against the whole compilation,
recorder included. That is steadier than the difference between two compilations, with a recorder and without, of
which the larger part is noise.
"""

from __future__ import annotations

import gc
import time
from statistics import median
from typing import Any

from aotviz.frontends.functions import aot_module
from aotviz.recorder.recorder import Recorder
from aotviz.recording.files import pack

from .compiling import LAYERS, PARTITIONERS, Step, training_step
from .measure import cpu_ns
from .results import Result, Row, result


class Timed:
    """Adds up the CPU nanoseconds of every turn of every recorder, late ones too, while it is active."""

    def __init__(self) -> None:
        self.total_ns = 0

    def __enter__(self) -> Timed:
        self._originals = {name: vars(Recorder)[name] for name in ("before", "after")}
        for name, method in self._originals.items():
            setattr(Recorder, name, self._timed(method))
        return self

    def __exit__(self, *_: object) -> None:
        for name, method in self._originals.items():
            setattr(Recorder, name, method)

    def _timed(self, method: Any) -> Any:
        def timed(*args: Any, **kwargs: Any) -> None:
            began = time.thread_time_ns()
            method(*args, **kwargs)
            self.total_ns += time.thread_time_ns() - began

        return timed


def run(rounds: int = 7, layers: int = LAYERS) -> Result:
    model, batch = training_step(layers)
    rows: list[Row] = []
    for label, partitioner in PARTITIONERS.items():
        step = Step(aot_module, model, batch, partition_fn=partitioner)
        step()  # imports and caches that later compilations find warm
        shares, wholes = [], []
        for _ in range(rounds):
            gc.collect()
            with Timed() as timed:
                wholes.append(cpu_ns(step) / 1e6)
            shares.append(timed.total_ns / 1e6)
        figure = median(share / whole for share, whole in zip(shares, wholes, strict=True))
        rows.append(
            Row(f"{label}: time", figure, 0.03, {"recording": median(shares), "compiling": median(wholes)}, "ms")
        )
        data = step.compiled.recording.data
        nodes = sum(len(graph.op) for graph in data.compilations[-1].graphs)
        packed = len(pack(data))
        rows.append(Row(f"{label}: bytes a node", packed / nodes, 25.0, {"nodes": nodes, "bytes": packed}, ""))
    about = f"what recording adds to compiling a training step of a {layers}-layer GPT-2, without a compiler"
    return result("recording", about, "share, or bytes", rows, {"rounds": rounds, "layers": layers})
