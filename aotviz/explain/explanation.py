"""An explanation: sentences, the user's line that they are about, and what to do, for a terminal and a notebook.

Text from a log is escaped in HTML, because recordings may come from untrusted sources.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aotviz.explain.cures.registry import NO_ADVICE, Advice, advice
from aotviz.recording.dynamo_stage import rests_named
from aotviz.recording.spoken import BEFORE_BREAK

NAMELESS = re.compile(  # in quotes, what has no name, and what is asked of it
    rf"`(?P<length>len\()?(?P<value>value \d+ of {BEFORE_BREAK})(?P<asked>\.[^`]{{1,200}}?)?(?(length)\))`"
)
SIZE = re.compile(r"\.shape\[(\d+)\]")

WIDTH = 100
MARKED = "background:rgba(255,193,7,.28);color:inherit;padding:0 .2em;border-radius:2px"
QUIET = "opacity:.75"


@dataclass(frozen=True)
class Point:
    """One thing to know."""

    text: str  # sentences; `code` in backquotes
    code: str = ""  # the user's source line that it is about
    place: str = ""  # where that line is: "model.py:17"
    fix: Advice = NO_ADVICE  # what to do; empty if nothing
    failed: bool = False  # something failed, runs in eager since, or may hang
    seconds: float = 0.0  # what it cost, as far as that is timed
    kind: str = ""  # as in CauseRecord (recording/findings.py); "" of a remark
    title: str = ""  # the cause in some words; "" where the first sentence of the text is short enough
    ids: tuple[str, ...] = ()  # the compilations that it is about
    followed: tuple[str, ...] = ()  # what came of it, in sentences

    def __post_init__(self) -> None:
        advice(self.fix)

    @property
    def cause(self) -> str:
        """The title after the effect: "`forward` was recompiled: `x` changed" is "`x` changed"."""
        return self.title.partition(": ")[2] or self.title


def by_urgency(points: Iterable[Point]) -> list[Point]:
    """What failed first, then the costliest, then that about which nothing is to be done, and misses of caches last.

    Points that are not timed stay in order. A restart of which nothing is to be mended happens once, and is last.

    >>> [point.text for point in by_urgency([Point("a"), Point("b", seconds=1), Point("c", failed=True)])]
    ['c', 'b', 'a']
    """
    return sorted(
        points,
        key=lambda point: (
            not point.failed,
            point.kind == "restart" and not point.fix,
            point.kind == "cache",
            point.fix.settled,
            -point.seconds,
        ),
    )


@dataclass(frozen=True, repr=False)
class Explanation:
    """Points, the most important first. It prints itself, and displays itself in a notebook.

    >>> from aotviz.explain.cures.guard_cures import DEVICE
    >>> fix = DEVICE.said(name="x", before="cpu")
    >>> print(Explanation("Recompiles", (Point("`x` moved.", "y = x + 1", "model.py:3", fix),)))
    Recompiles
    <BLANKLINE>
    - `x` moved.
      model.py:3    y = x + 1
      What to do: If you meant to use one device, move it before the call: `x.to('cpu')`. Each program is
      kept and reused, so this happens once for each value.
    """

    title: str
    points: tuple[Point, ...]

    @property
    def sentences(self) -> list[str]:
        """Of the points, each before those on what followed from it."""
        return [text for point in self.points for text in (point.text, *point.followed)]

    def first(self, count: int) -> Explanation:
        return Explanation(self.title, self.points[:count])

    @property
    def fix(self) -> str:
        """What to do about the most important point that has a fix."""
        return next((point.fix for point in self.points if point.fix), "")

    @property
    def source(self) -> str:
        """The user's line that the most important point is about: "model.py:3    y = x + 1"."""
        return next((_line(point) for point in self.points if point.place), "")

    def __str__(self) -> str:
        parts = [self.title, ""]
        for point in self.points:
            parts.append(_wrapped(point.text, "- "))
            if point.place:
                parts.append(f"  {_line(point)}")
            if point.fix:
                parts.append(_wrapped(f"What to do: {point.fix}", "  "))
            parts += [textwrap.indent(_wrapped(text, "→ "), "  ") for text in point.followed]
        return "\n".join(parts).rstrip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        items = "".join(f"<li style='margin:.4em 0'>{_point_html(point)}</li>" for point in self.points)
        return f"<div><p><b>{in_html(self.title)}</b></p><ul style='margin:0'>{items}</ul></div>"


def in_html(text: str) -> str:
    """Escaped, with `code` in backquotes as code.

    >>> in_html("`a<b>` & c")
    '<code>a&lt;b&gt;</code> &amp; c'
    """
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))


def seconds(value: float) -> str:
    """
    >>> seconds(0.0123), seconds(75.2)
    ('12 ms', '75.2 s')
    """
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.1f} s"


def counted(count: int, noun: str, plural: str = "") -> str:
    """
    >>> counted(1, "recompile"), counted(2, "miss", "misses")
    ('1 recompile', '2 misses')
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def listed(parts: Sequence[str]) -> str:
    """
    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def some_of(parts: Sequence[str], most: int = 4) -> str:
    """The first few parts.

    >>> some_of(["a", "b", "c"], 2)
    'a; b; and 1 more'
    """
    more = f"; and {len(parts) - most} more" if len(parts) > most else ""
    return "; ".join(parts[:most]) + more


def named_ranks(names: list[str]) -> str:
    """
    >>> named_ranks(["rank 0", "rank 2"]), named_ranks(["rank 0", "rank 1", "rank 2", "rank 7"])
    ('ranks 0 and 2', 'ranks 0 to 2 and 7')
    """
    if len(names) == 1:
        return names[0]
    spans: list[list[int]] = []
    for number in sorted(int(name.removeprefix("rank ")) for name in names):
        if spans and spans[-1][-1] == number - 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    parts = [part for span in spans for part in ([f"{span[0]} to {span[-1]}"] if len(span) > 2 else map(str, span))]
    return f"ranks {listed(parts)}"


OBJECT = re.compile(r"<(?:[\w.]+\.)?(\w+) object at 0x[0-9a-f]+>")
METHOD = re.compile(r"<bound method [\w.]+ of ([\w ]+)>")


def sentence(*parts: str) -> str:
    """Parts that say something, as sentences: each begins with a capital and ends in a full stop.

    >>> sentence("", "`torch_dynamo_resume_in_f_at_7` ran twice", "found in <torch.ops.Cond object at 0x7f12ab>")
    'The rest of `f` after line 7 ran twice. Found in Cond.'
    """
    said = (without_addresses(_without_quotes(rests_named(part.strip()))) for part in parts if part.strip())
    return " ".join(part if part[-1] in ".!?:" else part + "." for part in (p[0].upper() + p[1:] for p in said))


def _without_quotes(text: str) -> str:
    """A text in which values without a name are not written like code.

    >>> _without_quotes("`value 0 of those before the graph break.shape[1]` was 2")
    'size 1 of value 0 of those before the graph break was 2'
    >>> _without_quotes("`len(value 0 of those before the graph break.__self__)` was 2")
    'the length of the object of the method that is value 0 of those before the graph break was 2'
    """
    return NAMELESS.sub(_nameless, text)


def _nameless(match: re.Match[str]) -> str:
    said, asked = match["value"], match["asked"] or ""
    if size := SIZE.fullmatch(asked):
        said = f"size {size[1]} of {said}"
    elif asked == ".__self__":
        said = f"the object of the method that is {said}"
    elif asked:
        said = f"`{asked[1:]}` of {said}"
    return f"the length of {said}" if match["length"] else said


def without_addresses(text: str) -> str:
    """
    >>> without_addresses("<bound method Op.name of <torch.ops.Cond object at 0x7f12ab>> and <function f at 0x7f>")
    'Cond and <function f>'
    """
    if " at 0x" not in text:
        return text
    return re.sub(r" at 0x[0-9a-f]+", "", METHOD.sub(r"\1", OBJECT.sub(r"\1", text)))


def _line(point: Point) -> str:
    return f"{point.place}    {point.code}".rstrip()


def _wrapped(text: str, first: str) -> str:
    lines = textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines)


def _point_html(point: Point) -> str:
    parts = [in_html(point.text)]
    if point.place:
        code = f" <code style='{MARKED}'>{html.escape(point.code)}</code>" if point.code else ""
        parts.append(f"<span style='{QUIET}'>{html.escape(point.place)}</span>{code}")
    if point.fix:
        parts.append(f"<b>What to do:</b> {in_html(point.fix)}")
    parts += [f"<span style='{QUIET}'>→ {in_html(text)}</span>" for text in point.followed]
    return "<br>".join(parts)
