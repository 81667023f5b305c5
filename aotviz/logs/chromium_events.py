"""The timeline of a log: torch's "begin" and "end" events are paired, and each event gets its parent.

Events are logged in the format of Chromium's tracer, all with the same thread number. So an "end" belongs to the last
open "begin" with the same name in the same compilation, and the parent of an event is the innermost open event of its
compilation. Several threads may work on one compilation, and their events may overlap: a parent that does not contain
the whole event is replaced by its own parent.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec.structs import replace

from aotviz.recording.schema import NONE, EventTable

BEGIN, END, COMPLETE = "B", "E", "X"  # others are instants
UNFINISHED = -1.0
SLACK_US = 1.0  # because torch rounds times: a child may appear to begin this much before its parent


class ChromiumEvent(msgspec.Struct):
    """One event as logged."""

    name: str
    ts: float  # microseconds
    ph: str
    args: msgspec.Raw = msgspec.Raw()
    dur: float = 0.0
    tid: Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)] = 0


class Timeline:
    """The events of all processes of a log, in columns."""

    def __init__(self) -> None:
        self.table = EventTable([], [], [], [], [], [], [], [], [])
        self._open: dict[tuple[int, int], list[int]] = {}  # (process, compilation) -> rows, the outermost first

    def add(self, event: ChromiumEvent, name: int, args: int, process: int, compilation: int, line: int) -> None:
        """Add an event. `process` is any number that identifies the process."""
        key = (process, compilation)
        if event.ph == END:
            row = self._close(key, name)
            if row is not None:
                self.table.duration_us[row] = max(0.0, event.ts - self.table.start_us[row])
                if args != NONE:
                    self.table.args[row] = args
                return
        stack = self._open.get(key)
        parent = stack[-1] if stack else NONE
        duration = {BEGIN: UNFINISHED, COMPLETE: event.dur}.get(event.ph, 0.0)
        if event.ph == BEGIN:
            self._open.setdefault(key, []).append(len(self.table.name))
        for column, value in zip(
            (getattr(self.table, field) for field in EventTable.__struct_fields__),
            (name, event.ts, duration, parent, compilation, 0, line, event.tid, args),
            strict=True,
        ):
            column.append(value)

    def finish(self) -> EventTable:
        """The table in order of time, with corrected parents."""
        return in_order(replace(self.table, parent=[self._around(row) for row in range(len(self.table.name))]))

    def _close(self, key: tuple[int, int], name: int) -> int | None:
        """Close the last open event with this name and return its row. Events that were opened inside it stay open."""
        stack = self._open.get(key, [])
        for place in range(len(stack) - 1, -1, -1):
            if self.table.name[stack[place]] == name:
                return stack.pop(place)
        return None

    def _around(self, row: int) -> int:
        """The innermost event that contains the whole of this one, or NONE."""
        starts, durations = self.table.start_us, self.table.duration_us
        end = starts[row] + max(0.0, durations[row])
        parent = self.table.parent[row]
        while parent >= 0:
            if starts[parent] <= starts[row] + SLACK_US and (
                durations[parent] < 0 or end <= starts[parent] + durations[parent] + SLACK_US
            ):
                return parent
            parent = self.table.parent[parent]
        return NONE


def in_order(table: EventTable) -> EventTable:
    """The events in order of time; those with the same time stay in their order."""
    order = sorted(range(len(table.name)), key=table.start_us.__getitem__)
    places = [0] * len(order) + [NONE]  # places[NONE] is NONE
    for place, row in enumerate(order):
        places[row] = place
    columns = {field: [getattr(table, field)[row] for row in order] for field in EventTable.__struct_fields__}
    return EventTable(**columns | {"parent": [places[parent] for parent in columns["parent"]]})
