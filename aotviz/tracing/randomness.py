"""Random numbers that a trace cannot follow: from Python and NumPy, or from a torch generator that the
function seeds."""

from __future__ import annotations

import contextlib
import random
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from aotviz.ir.forms import Request
from aotviz.ir.refusals import Refused
from aotviz.ir.user_code import is_library
from aotviz.tracing import seeding


def refuse(what: str) -> None:
    raise Refused("random state inside", what)


@contextlib.contextmanager
def followed(request: Request) -> Iterator[None]:
    """Refuse a function that seeds a torch generator; warn if it draws from another library's generator.

    Raises:
        Refused: "random state inside".
    """
    before = _states()
    with seeding.noted(refuse, is_library, (*request.arguments().items(), *request.references)):
        yield
    for name, state in _states().items():
        if name in before and before[name] != state:
            warnings.warn(
                f"{request.name} draws a random number from {name}. Compiled calls use the number drawn when "
                "the function was compiled. Draw it with torch, or pass it as an argument",
                stacklevel=2,
            )


def _states() -> dict[str, Any]:
    """The states of the generators of Python and NumPy."""
    found: dict[str, Any] = {"the module random": random.getstate()}
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        kind, keys, *rest = numpy.get_state()
        found["numpy.random"] = (kind, keys.tobytes(), *rest)
    return found
