"""Distinguish compilations with the same compile id: after `torch._dynamo.reset()`, Dynamo starts again at 0/0.

A compile id is unique only between two resets. `Resets` counts the resets of one process, and finds how many there were
before each compilation. Torch does not log a reset. It is detected when a compilation begins whose id cannot follow the
earlier ones:

- the function ("frame") with that number has already been compiled at least as often;
- a function is compiled for the first time, but its number is lower than that of a known function;
- the number belongs to another function: the name or line differs, or, in a live process, the code object.

A live process knows more than its log: Dynamo has an object that lives as long as any part of a compilation may still
run. With it a watch finds the right compilation for a backward that is compiled after a reset (`watched.Stretches`).
The watch writes the number of resets to its lines as `MARK`, and the reader trusts it.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

MARK = "aotviz_reset"  # the JSON key for the number of resets, in a watch's records after the first reset
BEGINS = re.compile(r'\s*\{\s*"name": "(?:dynamo|compiled_autograd)",')  # the first event of a compilation
BEGIN_BYTES = 1000  # an event's name and phase are in the first so many bytes of its text
AUTOGRAD = "compiled autograd"  # its captures are numbered like the compilations of one function

_BEGIN = re.compile(r'"ph": "B"')


def begins(kind: str, payload: str) -> bool:
    """Whether a record is the event that begins a compilation. `payload` is the record's text.

    >>> begins("chromium_event", '{"name": "dynamo", "ts": 1.0, "ph": "B"}'), begins("chromium_event", '{"name": "gc"}')
    (True, False)
    """
    return kind == "chromium_event" and bool(BEGINS.match(payload)) and bool(_BEGIN.search(payload))


def frame_and_number(head: dict[str, Any]) -> tuple[Hashable, int] | None:
    """(the function's number, how often it had been compiled before) in a record; None if the record has no id.

    >>> frame_and_number({"frame_id": 2, "frame_compile_id": 1}), frame_and_number({"compiled_autograd_id": 4})
    ((2, 1), ('compiled autograd', 4))
    """
    frame, number, autograd = (head.get(key) for key in ("frame_id", "frame_compile_id", "compiled_autograd_id"))
    if type(frame) is int and type(number) is int:
        return frame, number
    return (AUTOGRAD, autograd) if type(autograd) is int else None


def labelled(compile_id: str, reset: int, where: str = "") -> str:
    """A compile id with prefixes that make it unique in a recording.

    >>> labelled("0/3", 0), labelled("0/3", 1), labelled("0/3", 1, "rank 2")
    ('0/3', 'reset 1: 0/3', 'rank 2, reset 1: 0/3')
    """
    marks = [where] * bool(where) + [f"reset {reset}"] * bool(reset)
    return f"{', '.join(marks)}: {compile_id}" if marks else compile_id


class Resets:
    """Counts the resets of one process by the compilations that begin.

    >>> resets = Resets()
    >>> [resets.begun(frame, number) for frame, number in ((0, 0), (1, 0), (0, 1), (0, 0), (1, 0))]
    [0, 0, 0, 1, 1]
    """

    def __init__(self) -> None:
        self.number = 0  # how many resets were detected
        self._newest: dict[Hashable, int] = {}  # function -> the number of its latest compilation
        self._highest = -1  # the highest number of a known function
        self._codes: dict[Hashable, Hashable] = {}  # function -> what identifies its code
        self._announced: tuple[Hashable, int] | None = None  # begun by its event; its `dynamo_start` may follow

    def begun(self, frame: Hashable, number: int, code: Hashable = None) -> int:
        """Note that a compilation begins, and return the number of resets before it."""
        self._announced = (frame, number)
        if frame in self._newest:
            repeated = number <= self._newest[frame]
        else:
            repeated = number == 0 and isinstance(frame, int) and frame < self._highest
        return self._note(frame, number, code, repeated)

    def started(self, frame: Hashable, number: int, code: Hashable) -> int:
        """Note the `dynamo_start` of a first attempt, which names the function, and return the number of resets.

        The number may be higher than `begun` returned, because the function's code may show that there was a reset.
        """
        announced = self._announced == (frame, number)
        found = self._note(frame, number, code, False) if announced else self.begun(frame, number, code)
        self._announced = None
        return found

    def at(self, number: int) -> None:
        """Note that there were at least `number` resets, which a watch has written to its lines."""
        if number > self.number:
            self._forget()
            self.number = number

    def _note(self, frame: Hashable, number: int, code: Hashable, repeated: bool) -> int:
        if repeated or (code is not None and self._codes.get(frame, code) != code):
            self._forget()
        self._newest[frame] = number
        if isinstance(frame, int):
            self._highest = max(self._highest, frame)
        if code is not None:
            self._codes[frame] = code
        return self.number

    def _forget(self) -> None:
        self.number += 1
        self._highest = -1
        self._newest.clear()
        self._codes.clear()
