"""Tells apart compilations of one compile id: after `torch._dynamo.reset()`, Dynamo counts from 0/0 again.

A compile id is unique from one reset to the next only. `Resets` numbers these stretches for one process, and says of
each record in which stretch its compilation began. No record says that there was a reset; it shows when a compilation
begins whose id can't be new:

- the function ("frame") of that number has been compiled as often as that before, or more often;
- a function that is compiled for the first time has a lower number than one that is known;
- the number is that of another function: another name or line, or in a live process another code object.

A live process knows more than its log: the object that Dynamo keeps for as long as anything of a compilation may
still run. It tells in which stretch a backward belongs that is compiled after a reset (`WatchedLog`), and the watch
writes the stretch into its lines as `MARK`, which is believed.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

MARK = "aotviz_reset"  # the stretch, in the JSON of a record of a watch, once there was a reset
BEGINS = re.compile(r'\s*\{\s*"name": "(?:dynamo|compiled_autograd)",')  # the first event of a compilation
BEGIN_BYTES = 1000  # of an event's text, in which it says what it is
AUTOGRAD = "compiled autograd"  # counts its captures as if they were compilations of one function

_BEGIN = re.compile(r'"ph": "B"')


def begins(kind: str, payload: str) -> bool:
    """Whether a record is the event by which a compilation begins. `payload` is the record's text.

    >>> begins("chromium_event", '{"name": "dynamo", "ts": 1.0, "ph": "B"}'), begins("chromium_event", '{"name": "gc"}')
    (True, False)
    """
    return kind == "chromium_event" and bool(BEGINS.match(payload)) and bool(_BEGIN.search(payload))


def frame_and_number(head: dict[str, Any]) -> tuple[Hashable, int] | None:
    """The function's number and how often it had been compiled before, of a record; None where it says neither.

    >>> frame_and_number({"frame_id": 2, "frame_compile_id": 1}), frame_and_number({"compiled_autograd_id": 4})
    ((2, 1), ('compiled autograd', 4))
    """
    frame, number, autograd = (head.get(key) for key in ("frame_id", "frame_compile_id", "compiled_autograd_id"))
    if type(frame) is int and type(number) is int:
        return frame, number
    return (AUTOGRAD, autograd) if type(autograd) is int else None


def labelled(compile_id: str, reset: int, where: str = "") -> str:
    """A compile id that is the only one of its kind in a recording.

    >>> labelled("0/3", 0), labelled("0/3", 1), labelled("0/3", 1, "rank 2")
    ('0/3', 'reset 1: 0/3', 'rank 2, reset 1: 0/3')
    """
    marks = [where] * bool(where) + [f"reset {reset}"] * bool(reset)
    return f"{', '.join(marks)}: {compile_id}" if marks else compile_id


class Resets:
    """The stretches of one process, and what began in each.

    >>> resets = Resets()
    >>> [resets.begun(frame, number) for frame, number in ((0, 0), (1, 0), (0, 1), (0, 0), (1, 0))]
    [0, 0, 0, 1, 1]
    """

    def __init__(self) -> None:
        self.number = 0  # how many resets are known of
        self._newest: dict[Hashable, int] = {}  # function -> how often it had been compiled when it last was
        self._highest = -1  # number of a function that is known
        self._codes: dict[Hashable, Hashable] = {}  # function -> what it is
        self._announced: tuple[Hashable, int] | None = None  # begun by its event; its `dynamo_start` may follow

    def begun(self, frame: Hashable, number: int, code: Hashable = None) -> int:
        """A compilation begins: the stretch that it is in."""
        self._announced = (frame, number)
        if frame in self._newest:
            repeated = number <= self._newest[frame]
        else:
            repeated = number == 0 and isinstance(frame, int) and frame < self._highest
        if repeated or self._differs(frame, code):
            self._forget()
        return self._note(frame, number, code)

    def started(self, frame: Hashable, number: int, code: Hashable) -> int:
        """Dynamo's account of a first attempt: it names the function. The stretch, which may be a later one."""
        if self._announced != (frame, number):
            found = self.begun(frame, number, code)
            self._announced = None
            return found
        self._announced = None
        if self._differs(frame, code):
            self._forget()
        return self._note(frame, number, code)

    def at(self, number: int) -> None:
        """What is known from elsewhere: so many resets there were."""
        if number > self.number:
            self._forget()
            self.number = number

    def _differs(self, frame: Hashable, code: Hashable) -> bool:
        return code is not None and self._codes.get(frame, code) != code

    def _forget(self) -> None:
        self.number += 1
        self._highest = -1
        self._newest.clear()
        self._codes.clear()

    def _note(self, frame: Hashable, number: int, code: Hashable) -> int:
        self._newest[frame] = number
        if isinstance(frame, int):
            self._highest = max(self._highest, frame)
        if code is not None:
            self._codes[frame] = code
        return self.number
