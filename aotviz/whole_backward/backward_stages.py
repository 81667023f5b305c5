"""The stages of a captured backward, in a list like those of a forward (pipeline.py), run by the same loop."""

from __future__ import annotations

from aotviz import pipeline
from aotviz.pipeline import Observer, Stage
from aotviz.whole_backward import dead_nodes, eager_order, replayed
from aotviz.whole_backward.captured import Replay, ReplayedBackward, WholeBackward
from aotviz.whole_backward.compiled_parts import CompiledParts


def stages(parts: CompiledParts) -> tuple[Stage, ...]:
    """The stages, with the one that compiles graphs."""
    return (
        Stage("eager order", eager_order.run),  # WholeBackward -> WholeBackward
        Stage("dead nodes", dead_nodes.run),  # WholeBackward -> WholeBackward
        Stage("compiled parts", parts.run),  # WholeBackward -> WholeBackward
        Stage("replay", replayed.run),  # WholeBackward -> ReplayedBackward
    )


def compiled(call: WholeBackward, observer: Observer, parts: CompiledParts) -> Replay:
    """What replays a captured backward. Its parts are compiled when they first run."""
    with pipeline.lock:
        made: ReplayedBackward = pipeline.run(stages(parts), call, observer)
    return made.function
