"""What the generated wrapper raises when a call is not of the kind that it was compiled for.

A program may hold only for calls whose arguments alias each other as they did when it was traced. The wrapper looks
before it runs anything, so whoever holds the original function can still run that, or compile again.
"""

from __future__ import annotations


class CallDiffers(RuntimeError):
    """This call needs another program. Nothing of it has been run."""


def refuse(message: str) -> None:
    """Raise CallDiffers."""
    raise CallDiffers(message)
