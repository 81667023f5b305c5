"""The explanations of a recording as HTML: sentences, tables, and a drawing of where the time went.

The HTML has no script and loads nothing, and every text of the recording is escaped. The drawing is an icicle like
`plot_timeline`'s, in SVG, so that a page stays small.
"""

from __future__ import annotations

import html
from collections.abc import Iterator

from aotviz.explain import answers, cache_misses, overview, ranks, recompiles, timeline
from aotviz.explain.explanation import counted, in_html, seconds
from aotviz.explain.rows import Facts
from aotviz.explain.timeline import Span
from aotviz.recording.findings import RankDifference
from aotviz.recording.holders import Recorded

WIDTH, ROW = 1000, 18  # of the drawing, in its own units
DEEPEST = 12  # rows
NARROWEST = 1.5  # a span below this width is left out
COLOURS = ("#8fb8de", "#f2c078", "#9fd0a5", "#d9a5c7", "#c9c3a0", "#a9b4d9")
BOX, SAME, OTHER = "padding:2px 8px;border-radius:3px;color:#111", "#dfe6ee", "#f2a39b"
LETTER = 6.2  # width of a letter of a label


def preamble(recording: Recorded, facts: Facts) -> str:
    """What `explain` says, and all explanations by topic, at the top of a recording's page; "" if the Overview says
    all: nothing needs attention, and no topic has a point."""
    first, sections = answers.findings(recording, facts).explanation, answers.sections(facts)
    if not sections and overview.is_healthy(first.points):
        return ""
    parts = [first._repr_html_(), *(_lanes(difference) for difference in ranks.find(facts) if difference.lanes)]
    if sections:
        parts.append(_folded("By topic", "".join(section._repr_html_() for section in sections)))
    if recompiles.find(facts):
        parts.append(_folded("All recompiles", recompiles.frame(facts)._repr_html_()))
    if len(facts.data.cache_lookups):
        parts.append(_folded("All cache lookups", cache_misses.frame(facts)._repr_html_()))
    drawn = icicle(timeline.tree(facts))
    if drawn:
        parts.append(_folded("Where the time went", drawn))
    notes = [*facts.data.notes, *_bad_lines(recording)]
    if notes:
        items = "".join(f"<li>{in_html(note)}</li>" for note in notes)
        parts.append(_folded("How the logs were read", f"<ul>{items}</ul>"))
    return f"<section style='padding:.2rem 1rem;max-width:80rem'>{_folded('As text', ''.join(parts))}</section>"


def _lanes(difference: RankDifference) -> str:
    """A row of boxes for each group of ranks; a box that differs from the first group's is red."""
    first = difference.lanes[0].steps
    drawn = []
    for lane in difference.lanes:
        boxes = [f"<td>{lane.before} alike</td>"] if lane.before else []
        for number, name in enumerate(lane.steps):
            colour = SAME if number < len(first) and first[number] == name else OTHER
            boxes.append(f"<td style='{BOX};background:{colour}'>{html.escape(name)}</td>")
        more = f"<td>and {lane.after} more</td>" if lane.after else ""
        drawn.append(f"<tr><th style='text-align:left;padding-right:1em'>{lane.ranks}</th>{''.join(boxes)}{more}</tr>")
    title = (
        f"Collectives in `{difference.function}`" if difference.function else "Graphs in the order in which they ran"
    )
    caption = f"<caption style='text-align:left'>{in_html(title)}</caption>"
    return f"<table style='margin:.6em 0;border-spacing:4px;border-collapse:separate'>{caption}{''.join(drawn)}</table>"


def icicle(top: Span) -> str:
    """The tree of events as an SVG: widths are seconds, a span's name and time in its tooltip."""
    if not top.seconds:
        return ""
    boxes = list(_boxes(top, 0.0, 0, WIDTH / top.seconds))
    height = (1 + max(depth for *_, depth in boxes)) * ROW
    drawn = "".join(_box(span, left, width, depth) for span, left, width, depth in boxes)
    return (
        f"<svg viewBox='0 0 {WIDTH} {height}' width='100%' role='img' aria-label='where the compile time went' "
        f"font-family='system-ui,sans-serif' font-size='11'>{drawn}</svg>"
    )


def _boxes(span: Span, left: float, depth: int, scale: float) -> Iterator[tuple[Span, float, float, int]]:
    width = span.seconds * scale
    if width < NARROWEST or depth >= DEEPEST:
        return
    yield span, left, width, depth
    for child in sorted(span.children.values(), key=lambda child: -child.seconds):
        yield from _boxes(child, left, depth + 1, scale)
        left += child.seconds * scale


def _box(span: Span, left: float, width: float, depth: int) -> str:
    colour = COLOURS[sum(span.name.encode("utf-8", "replace")) % len(COLOURS)]
    letters = int((width - 6) / LETTER)
    label = span.name if len(span.name) <= letters else f"{span.name[: letters - 2]}.." if letters > 4 else ""
    times = f"{seconds(span.seconds)}, {seconds(span.own_seconds)} of its own, {counted(span.count, 'time')}"
    top = depth * ROW
    return (
        f"<g><title>{html.escape(f'{span.name}: {times}')}</title>"
        f"<rect x='{left:.2f}' y='{top}' width='{max(width - 0.5, 0.5):.2f}' height='{ROW - 1}' fill='{colour}'/>"
        f"<text x='{left + 3:.2f}' y='{top + 12}' fill='#111'>{html.escape(label)}</text></g>"
    )


def _folded(title: str, content: str) -> str:
    return f"<details style='margin:.6em 0'><summary><b>{html.escape(title)}</b></summary>{content}</details>"


def _bad_lines(recording: Recorded) -> list[str]:
    return [
        f"{log.name}: {counted(log.bad_lines, 'line')} could not be read, the first is line {log.bad[0].line} "
        f"({log.bad[0].reason})"
        for log in recording.rows[0].logs
        if log.bad
    ]
