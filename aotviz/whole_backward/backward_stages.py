"""The stages of a captured backward, in a list like those of a forward (pipeline.py), run by the same loop."""

from __future__ import annotations

from aotviz import pipeline
from aotviz.pipeline import Observer, Role, Stage
from aotviz.whole_backward import dead_nodes, eager_order, replayed
from aotviz.whole_backward.captured import BackwardCall, Replay, ReplayedBackward, WholeBackward
from aotviz.whole_backward.compiled_parts import CompiledParts

CAPTURE = "capture"  # what comes before the list: C++ tells of autograd's nodes


def stages(parts: CompiledParts) -> tuple[Stage, ...]:
    """The stages, with the one that compiles graphs."""
    return (
        Stage("eager order", eager_order.run, Role.PASS),  # WholeBackward -> WholeBackward
        Stage("dead nodes", dead_nodes.run, Role.PASS),  # WholeBackward -> WholeBackward
        Stage("compiled parts", parts.run, Role.LOWER),  # WholeBackward -> PartedBackward
        Stage("replay", replayed.run, Role.LINK),  # PartedBackward -> ReplayedBackward
    )


def compiled(asked: BackwardCall, call: WholeBackward, observer: Observer, parts: CompiledParts) -> Replay:
    """What replays a captured backward. Its parts are compiled when they first run."""
    with pipeline.lock:
        observer.before(CAPTURE, asked)
        observer.after(CAPTURE, asked, call, call.elapsed_ns)
        made: ReplayedBackward = pipeline.run(stages(parts), call, observer)
    return made.function


class NotCaptured(RuntimeError):
    """Autograd's engine runs a backward."""


def by_the_engine(asked: BackwardCall, observer: Observer, why: str, place: str) -> None:
    """Record that autograd's engine ran a backward. `place` is "file:line in function"."""
    observer.before(CAPTURE, asked)
    observer.failed(CAPTURE, asked, NotCaptured(why))
    observer.ran_in_eager(why, place)
