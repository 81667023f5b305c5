"""What needs a GPU: `make gpu` runs these tests, the sweeps and step times, and keeps the figures.

Without a GPU the tests are skipped. `AOTVIZ_GPU=cpu` runs on the CPU those that have a meaning there, to try them.
"""

from __future__ import annotations

import importlib.util
import os

DEVICE = os.environ.get("AOTVIZ_GPU", "cuda")


def _there() -> bool:
    if DEVICE == "cpu":
        return True
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


THERE = _there()
