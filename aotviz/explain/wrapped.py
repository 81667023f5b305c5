"""Functions that Dynamo compiles inside a wrapper of its own, because it does not compile their own frames.

They are functions and modules of torch, such as `torch.compile(F.gelu)` and `torch.compile(nn.Sequential(...))`. All of
them share the wrapper's code, where they are called `fn`. So a guard on `fn` fails for another function, which is no
recompile, and for one module that changed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from aotviz.explain import advice, misses
from aotviz.explain.cures import guard_cures
from aotviz.explain.misses import Miss, Reason
from aotviz.explain.rows import Facts
from aotviz.recording.sources import user_frames

WRAPPER = re.compile(r"_dynamo/external_utils\.py:")
OF_WRAPPER = re.compile(r"(?:args|kwargs|fn)\b")  # its variables
OF_ONE_MODULE = advice.MODULES_CHANGED | {guard_cures.TRAINING, guard_cures.MODULE_HOOKS}


def is_wrapper(facts: Facts, place: int) -> bool:
    return bool(WRAPPER.search(facts.frame_place(place)))


def reasons(facts: Facts, place: int, found: Sequence[Reason]) -> tuple[Reason, ...]:
    """Why the earlier programs of this one function did not match, at the line that calls it, where the guard is of no
    line of the user's."""
    called = misses.own_line(user_frames(facts.text(facts.data.compilations[place].stack)))
    code, where = called.code, str(called)
    return tuple(
        replace(
            reason,
            misses=tuple(
                miss if has_own_line(miss) else replace(miss, code=code, place=where) for miss in reason.misses
            ),
        )
        for reason in found
        if not _of_another_function(reason)
    )


def has_own_line(miss: Miss) -> bool:
    """Whether a guard is of a line of the user's, as in a hook, and not of what is passed to the wrapper."""
    return bool(miss.place) and not misses.LIBRARY.search(miss.place) and not OF_WRAPPER.match(miss.failure.subject)


def _of_another_function(reason: Reason) -> bool:
    about = [miss.failure for miss in reason.misses if re.search(r"\bfn\b", miss.failure.subject)]
    return any(not OF_ONE_MODULE & {*failure.fix.cures} for failure in about)
