"""What is alive while a graph runs operator by operator, measured: a net under `Compilation.memory()`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotviz.lowerings import run_graph
from aotviz.recorder.live_storages import LiveStorages
from aotviz.recording import measured_bytes
from aotviz.recording.compilation import Compilation

_measuring: list[LiveStorages] = []


def run_watched(graph_module: Any, inputs: Any) -> Callable[[list[Any]], Any]:
    """As `run_graph`. While something is measured, its operators are known from those of the wrapper."""
    run = run_graph(graph_module, inputs)

    def watched(args: list[Any]) -> Any:
        for mode in _measuring:
            mode.in_graph = True
        try:
            return run(args)
        finally:
            for mode in _measuring:
                mode.in_graph = False

    watched._boxed_call = True  # type: ignore[attr-defined]
    return watched


run_watched.takes_lazy_graphs = True  # type: ignore[attr-defined]


def differences(
    compilation: Compilation, run: Callable[[], Any], known: Sequence[torch.Tensor], watched: bool = False
) -> list[str]:
    """Where the plan of a compilation and the memory that a call needs differ: a line for each node.

    `run` calls the compiled function, and its backward if it has one; it returns what the caller holds. `watched`: its
    graphs are run by `run_watched`.
    """
    with LiveStorages(known) as mode:
        mode.in_graph = not watched
        _measuring.append(mode)
        held = run()
        mode.close()
    _measuring.clear()
    del held
    _, found = measured_bytes.compared(compilation.memory(), mode.ran)
    return found
