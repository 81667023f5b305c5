"""Trying a cure: the user's calls are repeated as they are, and with torch's settings that apply the cure.

Both runs begin with nothing compiled and with the same state of the random number generators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from aotviz.explain.cures.registry import Cure
from aotviz.explain.explanation import Point
from aotviz.explain.trials import CureNeedsEdit, Run, Trial
from aotviz.live.watching import watch
from aotviz.reading.recording import Recording
from aotviz.torch_private import configs


def tried(recording: Recording, point: Point | int, calls: Callable[[], object]) -> Trial:
    """What `Recording.try_cure` does."""
    chosen = recording.explain().points[point] if isinstance(point, int) else point
    settings = {name: value for cure in chosen.fix.cures for name, value in cure.settings.items()}
    if not settings:
        needed = f"this cure is a change of the code: {chosen.fix}" if chosen.fix else "no cure is known for this point"
        raise CureNeedsEdit(f"nothing was run, because {needed}")
    before, _, expected = _run(calls, {})
    after, cured, result = _run(calls, settings)
    left = {cure for one in cured.explain().points for cure in one.fix.cures}
    written = "; ".join(f"{name} = {_written(value)}" for name, value in settings.items())
    return Trial(written, before, after, _equal(expected, result), not _of_settings(chosen) & left)


def _of_settings(point: Point) -> set[Cure]:
    return {cure for cure in point.fix.cures if cure.settings}


def _run(calls: Callable[[], object], settings: Mapping[str, object]) -> tuple[Run, Recording, object]:
    torch.compiler.reset()
    with torch.random.fork_rng(), configs.patched(settings), watch() as recording:
        result = calls()
    torch.compiler.reset()
    breaks, again = len(recording.graph_breaks), len(recording.recompiles())
    return Run(len(recording), again, breaks, recording.overview().seconds), recording, result


def _equal(expected: object, result: object) -> bool | None:
    if expected is None and result is None:
        return None
    try:
        torch.testing.assert_close(result, expected, equal_nan=True)
    except AssertionError:
        return False
    return True


def _written(value: object) -> str:
    return f"{{{', '.join(sorted(one.__name__ for one in value))}}}" if isinstance(value, set) else repr(value)
