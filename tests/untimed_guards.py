"""What Dynamo does for its logs alone."""

from __future__ import annotations

import sys


def without_timing_of_guards() -> None:
    """Dynamo times its guards after each compilation, and empties the processor's caches first: 25 to 100 ms."""
    guards = sys.modules.get("torch._dynamo.guards")
    if guards is not None:
        guards.profile_guard_manager = lambda *_: 0.0  # type: ignore[attr-defined]
