"""Which line made a size a constant that was meant to stay dynamic.

Torch logs it at the moment: the symbol, what it is the size of, the value, and the user's frames.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from aotviz.explain.cures import export_cures
from aotviz.explain.cures.registry import Advice
from aotviz.explain.explanation import Point, listed, sentence
from aotviz.explain.misses import LIBRARY, own_line
from aotviz.explain.rows import EXPORTS, Facts
from aotviz.recording.schema import ShapeRecord
from aotviz.recording.sources import UNKNOWN, SourceLine, user_frames
from aotviz.recording.spoken import spoken

VIOLATED = re.compile(r"You marked (?P<source>\S+) as dynamic but your code specialized it to be a constant")
DIMENSION = re.compile(r"(?P<name>.+)\.shape\[(?P<index>\d+)\]")


@dataclass(frozen=True)
class Fixed:
    """A size that a line of the user's made a constant."""

    size: str  # "x.shape[0]"
    value: str
    line: SourceLine


def found(facts: Facts, place: int) -> list[Fixed]:
    """The sizes that one compilation made constants, in the order of the log."""
    made, guarded = [], UNKNOWN  # the line of the latest guard, which made the constant if its own record has no line
    for row in facts.about(place, facts.data.shapes):
        if row.kind in ("guard_added", "guard_added_fast"):
            guarded = _decided_at(facts, place, row) or guarded
        if sizes := facts.specialized(row):
            line = own_line(user_frames(facts.text(row.stack)))
            line = line if line.line else guarded
            made += [Fixed(size, facts.text(row.value), line) for size in sizes]
    return made


def _decided_at(facts: Facts, place: int, row: ShapeRecord) -> SourceLine | None:
    """The user's line at which a guard was added. An export that runs the module in Python has no user's stack of its
    own: the module's frames are among those of torch, within the call of the export."""
    line = own_line(user_frames(facts.text(row.stack)))
    compilation = facts.data.compilations[place]
    if not line.line and compilation.kind in EXPORTS:
        frames = user_frames(facts.text(row.framework_stack))
        line, called = own_line(frames), next((one for one in frames if not LIBRARY.search(one.file)), UNKNOWN)
        line = UNKNOWN if line == called else line
    return line if line.line else None


def line_of(facts: Facts, places: Iterable[int], size: str) -> SourceLine | None:
    """The line that made a size a constant in one of these compilations, although it had been a symbol."""
    fixed = (one for place in places for one in found(facts, place) if one.size == size)
    return next((one.line for one in fixed if one.line.line), None)


def violated(facts: Facts, place: int, message: str) -> list[Point]:
    """One point for each line that fixed a size which the user had marked as dynamic, from the message of the error."""
    marked = [spoken(match["source"]) for match in VIOLATED.finditer(message)]
    fixed = found(facts, place) if marked else []
    known = [one for one in fixed if one.size in marked]
    if not known:  # an export names its dimension, and not the size
        known = [replace(one, size=name) for one in fixed[:1] for name in marked]
    lines: dict[SourceLine, list[Fixed]] = {}
    for one in known:
        lines.setdefault(one.line, []).append(one)
    function, points = facts.called(place), []
    is_export = facts.data.compilations[place].kind.endswith("export")
    for line, sizes in lines.items():
        named = listed([f"`{one.size}`" for one in sizes])
        values = listed(list(dict.fromkeys(one.value for one in sizes)))
        told = (
            f"{function} failed: {named} {'was' if len(sizes) == 1 else 'were'} marked as dynamic, and this line made "
        )
        told += f"{'it' if len(sizes) == 1 else 'them'} the constant {values}"
        cost, ids = facts.seconds(place), (facts.id(place),)
        kind = "export" if is_export else "failed"
        fix = keeping(sizes[0]) if is_export else _fix(sizes)
        points.append(Point(sentence(told), line.code, str(line), fix, True, cost, kind=kind, ids=ids))
    return points


def keeping(fixed: Fixed) -> Advice:
    """What keeps the size dynamic: a line that has it as a number, as `x.view(4, 64)`, needs another text."""
    if re.search(rf"[(,\s]{re.escape(fixed.value)}\s*[,)]", fixed.line.code):
        return export_cures.WRITTEN_SIZE.said(value=fixed.value, size=fixed.size)
    return export_cures.FIXED_SIZE.said()


def _fix(sizes: list[Fixed]) -> Advice:
    """What keeps the size dynamic, and what accepts the constant."""
    matches = [match for match in (DIMENSION.fullmatch(one.size) for one in sizes) if match is not None]
    marks = listed([f"`torch._dynamo.maybe_mark_dynamic({match['name']}, {match['index']})`" for match in matches])
    keep = keeping(sizes[0])
    return keep.together_with(export_cures.ACCEPTED_SIZE.said(marks=marks)) if marks else keep
