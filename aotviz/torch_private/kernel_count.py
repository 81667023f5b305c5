"""How many kernels Inductor has generated in this process."""

from __future__ import annotations

import sys


def generated() -> int:
    """0 until something has loaded Inductor, which takes a second: so this does not load it."""
    metrics = sys.modules.get("torch._inductor.metrics")
    return int(getattr(metrics, "generated_kernel_count", 0))
