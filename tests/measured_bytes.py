"""What is alive while a graph runs operator by operator, measured: a net under `Compilation.memory()`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotviz.recorder.live_storages import LiveStorages
from aotviz.recording import measured_bytes
from aotviz.recording.compilation import Compilation


def differences(compilation: Compilation, run: Callable[[], Any], known: Sequence[torch.Tensor]) -> list[str]:
    """Where the plan of a compilation and the memory that a call needs differ: a line for each node.

    `run` calls the compiled function, and its backward if it has one; it returns what the caller holds.
    """
    with LiveStorages(known) as mode:
        held = run()
        mode.close()
    del held
    _, found = measured_bytes.compared(compilation.memory(), mode.ran)
    return found
