"""What a reader sees in place of torch's texts in the rows of a recording: why a graph broke, what a guard is on.

Torch's own text stays beside it. A text that is plain already has no entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from aotviz.explain import exports, graph_breaks, restarts
from aotviz.explain.explanation import sentence
from aotviz.recording.schema import GraphBreak, GuardRecord, MetricsRecord, PlainText, ShapeRecord
from aotviz.recording.spans import RESTARTS
from aotviz.recording.spoken import spoken


class Rows(Protocol):
    """A recording, or rows of some kinds of it."""

    @property
    def graph_breaks(self) -> list[GraphBreak]: ...
    @property
    def guards(self) -> list[GuardRecord]: ...
    @property
    def shapes(self) -> list[ShapeRecord]: ...
    @property
    def metrics(self) -> list[MetricsRecord]: ...


def find(rows: Rows, strings: Sequence[str]) -> list[PlainText]:
    """One entry for each text of the graph breaks, guards, symbolic shapes and metrics that is said in other words.

    >>> import aotviz, torch
    >>> with aotviz.record() as recording:
    ...     _ = aotviz.compile(lambda x: x.sin(), backend="eager")(torch.ones(3))
    >>> data = recording.data
    >>> {data.strings[one.text]: one.words for one in find(data, data.strings)}["L['x']"]
    'x'
    """
    found = {}
    for number, words in _said(rows, strings):
        if number >= 0 and number not in found and words != strings[number]:
            found[number] = words
    return [PlainText(number, words) for number, words in found.items()]


def _said(rows: Rows, strings: Sequence[str]) -> Iterator[tuple[int, str]]:
    for one in rows.graph_breaks:
        number = graph_breaks.text_of(one)
        yield number, graph_breaks.in_words(strings[number]) if number >= 0 else ""
    for number in (*(guard.source for guard in rows.guards), *(shape.source for shape in rows.shapes)):
        yield number, spoken(strings[number]) if number >= 0 else ""
    for metrics in rows.metrics:
        if (number := metrics.texts.get(RESTARTS, -1)) >= 0:
            yield number, restarts.told(strings[number])
        if metrics.fail_reason >= 0 and graph_breaks.EXPLAINED.search(text := strings[metrics.fail_reason]):
            brief = exports.brief(text)
            yield metrics.fail_reason, sentence(brief) if brief else graph_breaks.in_words(text)
