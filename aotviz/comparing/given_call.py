"""The call that `verify` and `bisect` compare. It runs several times, first in eager, each time on fresh copies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from aotviz.comparing import copies
from aotviz.comparing.judging import Expectation, expect, judge
from aotviz.comparing.observed import Candidate, EagerRaised, Setup, Trial

_PLACE = re.compile(r'File "([^"]+)", line (\d+)')


def in_eager(fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, Trial, Expectation]:
    """The name of `fn`, its call as a program, and eager's results. Raises RuntimeError if eager fails."""
    name = str(getattr(fn, "__name__", type(fn).__name__))
    program = trial_of(fn, args, kwargs)
    try:
        expected = expect(program, brief=True)
    except EagerRaised as error:
        raise RuntimeError(f"{name} fails in eager, so there is nothing to compare with: {error}") from error
    return name, program, expected


def refuse_unsteady(name: str, program: Trial, expected: Expectation) -> None:
    """Raise RuntimeError for a call that returns different results each time, e.g. because of a counter."""
    again = judge(program, Candidate("eager", lambda fn, _: fn), expected)
    if again.status == "wrong":
        first = next(d for d in again.differences if not d.soft)
        raise RuntimeError(
            f"{name} returns different results each time in eager, so there is nothing to compare with: {first}"
        )


def trial_of(fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Trial:
    """A call as a program that can be run many times, each time on fresh copies."""

    def build() -> Setup:
        new_fn, new_args, new_kwargs, held = copies.fresh(fn, args, kwargs)
        return Setup(new_fn, new_args, new_kwargs, watch=held)

    return Trial(str(getattr(fn, "__name__", type(fn).__name__)), (build,), "")


def place(stack: str) -> str:
    """The innermost line of a stack, e.g. "model.py:12", or ""."""
    found = _PLACE.findall(stack)
    return f"{found[-1][0]}:{found[-1][1]}" if found else ""
