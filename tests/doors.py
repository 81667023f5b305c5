"""The pipeline by itself, for tests of what it does with a function that Dynamo has not captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aotviz
from aotviz.lowerings import run_graph
from aotviz.torch_private.partitioners import min_cut_rematerialization_partition


def alone(fn: Callable[..., Any], **options: Any) -> Any:
    """`fn` by `aot_function`, its graphs run as they are."""
    return aotviz.aot_function(fn, run_graph, **{"partition_fn": min_cut_rematerialization_partition, **options})
