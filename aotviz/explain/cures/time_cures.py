"""What to do where compiling takes long, although nothing is wrong."""

from __future__ import annotations

from aotviz.explain.cures.registry import Cure

UNROLLED = Cure(
    "loop that is unrolled",
    "A line with that many operators stands in a Python loop, of which each pass becomes a part of the graph. Compile "
    "the body of the loop as a function of its own, and loop outside of it.",
)
