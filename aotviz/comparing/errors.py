"""How wrong each node is, and the graph of a recording painted with it.

The error of a node is the largest absolute difference between the elements of its value and those of the right value.
It is NaN if only one of them is NaN, and infinite if the two cannot be subtracted (another dtype, shape or device).
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from aotviz.reading.recording import Recording
from aotviz.recorder.sessions import Session, live

LABEL = "largest difference"
RECEIVED = " in the backward"  # after the name of a saved value that the backward receives


def error(expected: Any, found: Any) -> float:
    """
    >>> error(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5])), error(torch.ones(2), torch.ones(3))
    (0.5, inf)
    >>> error(torch.tensor([1.0]), torch.tensor([math.nan]))
    nan
    """
    if isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)):
        if len(expected) != len(found):
            return math.inf
        errors = [error(one, other) for one, other in zip(expected, found, strict=True)]
        return next((one for one in errors if math.isnan(one)), max(errors, default=0.0))
    if not (isinstance(expected, torch.Tensor) and isinstance(found, torch.Tensor)):
        return 0.0 if expected == found else math.inf
    if (expected.dtype, expected.shape, expected.device) != (found.dtype, found.shape, found.device):
        return math.inf
    if expected.numel() == 0 or torch.equal(expected, found):
        return 0.0
    wide = torch.complex128 if expected.is_complex() else torch.float64
    apart = (expected.to(wide) - found.to(wide)).abs()
    same = (expected == found) | (expected.isnan() & found.isnan())
    return float(apart.masked_fill(same, 0).max())


def painted(
    sessions: Iterable[Session], stage: str, node: str, values: Mapping[str, float | str], note: str
) -> Recording | None:
    """The recording of the last session whose graph after `stage` has the node, painted and to be opened at the node.

    None if there is no such graph.
    """
    import pandas as pd  # imported here because it takes half a second

    keys = [("backward", name.removesuffix(RECEIVED)) if name.endswith(RECEIVED) else ("", name) for name in values]
    series = pd.Series(list(values.values()), index=pd.MultiIndex.from_tuples(keys, names=["graph", "node"]))
    for session in reversed([*sessions]):
        if session.store is None or not len(live(session.store)):
            continue
        recording = Recording(live(session.store).data)
        roles = [role for one in recording[0].data.stages if one.name == stage for role in one.graphs]
        if not any(row.name == node for role in roles for row in recording[0].graph(role, stage).rows):
            continue
        label = LABEL if all(isinstance(value, float) for value in values.values()) else "compared with eager"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a value of another stage's graph
            recording.paint(series, label, stage=stage, note=note, node=node)
        return recording
    return None


def display(text: str, html: str, recording: Recording | None) -> None:
    """Show a report in IPython: its text, and in a notebook also the graph."""
    from IPython.display import display  # only where IPython runs

    display({"text/plain": text, "text/html": html}, raw=True)
    if recording is not None and "ipykernel" in sys.modules:
        display(recording)
