"""Where the compile time went: the events of a log as a tree, by compilation and over all.

Events with the same name and the same ancestors are added up. An event's own time excludes its children.

No second is counted twice. A compilation that begins inside another one (compiled autograd, a backend that compiles)
takes its time from the event around it. What other threads do meanwhile, such as building kernels, is time for which
the compilation waits; only what lies before and after all compilations is time of its own, and is told apart.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aotviz.explain import explained_tables
from aotviz.explain.explanation import Explanation, Point, seconds, sentence
from aotviz.explain.rows import Facts
from aotviz.explain.time_parts import UNKNOWN, part_of
from aotviz.recording.dynamo_stage import plain_name
from aotviz.recording.schema import EventTable

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from aotviz.explain.marked_frame import ExplainedTable

OUTSIDE = "outside any compilation"
ALL = "all compilations"
NOTABLE = 0.05  # seconds before and between compilations that are worth a sentence
LEAST = 0.005  # of the time, that is told
DEEPEST = 1000  # events in events; deeper ones count as time of the one around them


@dataclass
class Span:
    """An event, or several of one name at one place in the tree."""

    name: str
    path: tuple[str, ...]  # names from the top, its own last
    seconds: float = 0.0
    count: int = 0
    unfinished: int = 0  # events without an end: the process stopped, or the log was cut
    children: dict[str, Span] = field(default_factory=dict)

    @property
    def own_seconds(self) -> float:
        return max(0.0, self.seconds - sum(child.seconds for child in self.children.values()))

    def child(self, name: str) -> Span:
        return self.children.setdefault(name, Span(name, (*self.path, name)))

    def walk(self, depth: int = 0) -> Iterator[tuple[Span, int]]:
        """This span and those below that took time or did not end, with their depths, the longest of siblings first."""
        left = [(self, depth)]
        while left:
            span, depth = left.pop()
            yield span, depth
            below = [child for child in reversed(span.children.values()) if child.seconds > 0 or child.unfinished]
            longest = sorted(below, key=lambda child: child.seconds, reverse=True)  # of equals, the last first
            left.extend((child, depth + 1) for child in reversed(longest))

    def settle(self) -> None:
        """Make every span at least as long as its children together."""
        spans = [self]
        for span in spans:  # it grows: parents come before their children
            spans.extend(span.children.values())
        for span in reversed(spans):
            span.seconds = max(span.seconds, sum(child.seconds for child in span.children.values()))


def tree(facts: Facts, only: int | None = None) -> Span:
    """All events, below one span a compilation; with `only`, those of that compilation."""
    top = Span(ALL, (ALL,))
    events = facts.data.events
    took_us = _without_twice(events)
    spans: list[Span] = []
    for row, parent in enumerate(events.parent):
        place = events.compilation[row]
        under = spans[parent] if 0 <= parent < row and events.compilation[parent] == place else None
        if under is None:
            under = top.child(_label(facts, place)) if only is None or only == place else Span("", ())
        if len(under.path) > DEEPEST:
            spans.append(under)
            continue
        span = under.child(facts.text(events.name[row]))
        span.seconds += took_us[row] / 1e6
        span.count += 1
        span.unfinished += events.duration_us[row] < 0
        spans.append(span)
    top.settle()
    if only is not None and len(top.children) == 1:
        return next(iter(top.children.values()))
    return top


def span_of(facts: Facts, place: int) -> Span | None:
    """The tree of one compilation; None if the log has no events of it."""
    if "tree" not in facts.memory:
        facts.memory["tree"] = tree(facts)
    top: Span = facts.memory["tree"]
    return top.children.get(_label(facts, place))


def by_part(top: Span) -> Iterator[tuple[Span, str]]:
    """Each span of a tree with the part of the compile time that it is: by its own name, or that of a span around."""
    spans = [(top, UNKNOWN)]
    for span, above in spans:  # it grows
        part = part_of(span.name) or above if span.count else above
        yield span, part
        spans += [(child, part) for child in span.children.values()]


def spent(facts: Facts, place: int, pattern: re.Pattern[str]) -> float:
    """The seconds of a compilation in the outermost events whose names begin like this."""
    left, found = [*filter(None, [span_of(facts, place)])], 0.0
    for span in left:  # it grows
        if span.count and pattern.match(span.name):
            found += span.seconds
        else:
            left += span.children.values()
    return found


def _label(facts: Facts, place: int) -> str:
    return f"{facts.id(place)} {plain_name(facts.function(place))}".strip() if place >= 0 else OUTSIDE


def _without_twice(events: EventTable) -> list[float]:
    """The duration of each event in microseconds, without what counts for another compilation."""
    took = [max(duration, 0.0) for duration in events.duration_us]
    end = [start + duration for start, duration in zip(events.start_us, took, strict=True)]
    inside: dict[int, list[int]] = defaultdict(list)  # row -> the events of its compilation directly inside it
    roots: dict[int, list[int]] = defaultdict(list)  # log -> the others, in order of time
    for row, parent in enumerate(events.parent):
        if 0 <= parent < row and events.compilation[parent] == events.compilation[row]:
            inside[parent].append(row)
        else:
            roots[events.log[row]].append(row)
    for rows in roots.values():
        around: list[int] = []  # compilations' events in which this one lies, the outermost first
        reached = 0.0  # up to here, time belongs to a compilation or to an earlier event
        compiling = [row for row in rows if events.compilation[row] >= 0]
        for row in compiling:
            while around and end[around[-1]] < end[row]:
                around.pop()
            within = around[-1:]
            for event in within:  # it grows
                took[event] = max(0.0, took[event] - took[row])
                within += [
                    child for child in inside[event] if events.start_us[child] <= events.start_us[row] <= end[child]
                ][-1:]
            around.append(row)
        spans = sorted(((events.start_us[row], end[row]) for row in compiling), reverse=True)
        for row in (row for row in rows if events.compilation[row] < 0):
            begun, free = events.start_us[row], 0.0
            while spans and spans[-1][0] < end[row]:
                start, stop = spans.pop()
                free += max(0.0, start - max(begun, reached))
                reached = max(reached, stop)
            free += max(0.0, end[row] - max(begun, reached))
            reached = max(reached, end[row])
            share = free / took[row] if took[row] else 0.0
            those = [row]
            for event in those:  # it grows
                took[event] *= share
                those += inside[event]
    return took


COLUMNS: explained_tables.Columns = {  # of (span, its depth, the seconds of the whole tree)
    "event": ("str", lambda row: row[0].name),
    "depth": ("int64", lambda row: row[1]),
    "seconds": ("float64", lambda row: row[0].seconds),
    "own_seconds": ("float64", lambda row: row[0].own_seconds),
    "share": ("float64", lambda row: row[0].seconds / row[2] if row[2] else 0.0),
    "count": ("int64", lambda row: row[0].count),
    "unfinished": ("int64", lambda row: row[0].unfinished),
    "path": ("object", lambda row: row[0].path),
}


def frame(facts: Facts, only: int | None = None) -> ExplainedTable:
    """One row for each span, from the top of the tree down, the longest of its siblings first."""
    top = tree(facts, only)
    rows = [(span, depth, top.seconds) for span, depth in top.walk()]
    return explained_tables.table(COLUMNS, rows, marked=("seconds",), hidden=("path", "unfinished"))


def figure(facts: Facts, only: int | None = None) -> Figure:
    """The tree as a plotly icicle: widths are seconds; click to zoom."""
    import plotly.graph_objects as go  # half a second, which only a plot should pay

    rows = frame(facts, only).to_dict("records")
    ids = ["\x1f".join(row["path"]) for row in rows]
    known = set(ids)
    parents = ["\x1f".join(row["path"][:-1]) for row in rows]
    drawn = go.Icicle(
        ids=ids,
        labels=[row["event"] for row in rows],
        parents=[parent if parent in known else "" for parent in parents],
        values=[row["seconds"] for row in rows],
        branchvalues="total",
        customdata=[[row["own_seconds"], row["count"]] for row in rows],
        hovertemplate="%{label}<br>%{value:.3f} s, %{customdata[0]:.3f} s of its own<br>%{customdata[1]} times"
        "<extra></extra>",
        tiling={"orientation": "v"},
    )
    made = go.Figure(drawn)
    made.update_layout(margin={"t": 30, "l": 5, "r": 5, "b": 5}, title_text="Where the compile time went", height=480)
    return made


def explain_all(facts: Facts, only: int | None = None) -> Explanation:
    """The total, its parts, and of each part the event with the most time of its own."""
    top, apart = compiling(facts, only)
    if not top.seconds:
        return Explanation("This recording contains no times.", ())
    parts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))  # the seconds of its events, by name
    for span, part in by_part(top):
        if span.count:  # it is an event
            parts[part][span.name] += span.own_seconds
    told = [
        f"{part} {seconds(took)} ({took / top.seconds:.0%}, {_longest(parts[part])})"
        for took, part in sorted(((sum(own.values()), part) for part, own in parts.items()), reverse=True)
        if took >= LEAST * top.seconds
    ]
    points = [Point(sentence(f"Of {seconds(top.seconds)} of compiling: {'; '.join(told)}"))]
    if apart.seconds >= NOTABLE:
        names = ", ".join(f"{one.name} {seconds(one.seconds)}" for one, depth in apart.walk() if depth == 1)
        points.append(
            Point(sentence(f"Before and between the compilations, {seconds(apart.seconds)} went to: {names}"))
        )
    return Explanation(f"Compiling took {seconds(top.seconds)}", tuple(points))


def _longest(own: dict[str, float]) -> str:
    name, took = max(own.items(), key=lambda item: item[1])
    return f"all in `{name}`" if took == sum(own.values()) else f"{seconds(took)} of it in `{name}`"


def compiling(facts: Facts, only: int | None = None) -> tuple[Span, Span]:
    """The tree of the compilations, and that of the events before and between them."""
    top = tree(facts, only)
    apart = top.children.pop(OUTSIDE, None) if only is None else None
    if apart is None:
        return top, Span(OUTSIDE, (OUTSIDE,))
    top.seconds = sum(child.seconds for child in top.children.values())
    return top, apart
