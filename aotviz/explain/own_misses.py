"""What aotviz's own cache answered, in sentences: what differs from the nearest key, the user's line, what to do.

Unlike torch's caches, aotviz's tells its recording all that it knows (recording/own_lookups.py), so nothing is gathered
from logs. Several misses with one cause are told once: an upgrade of torch makes every look-up miss.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from aotviz.explain import ingredients
from aotviz.explain.cures import cache_cures
from aotviz.explain.cures.registry import NO_ADVICE, Advice
from aotviz.explain.explanation import Point, counted, listed, seconds, sentence
from aotviz.explain.ingredients import PROGRAM
from aotviz.explain.key_parts import Difference, short_pair
from aotviz.explain.rows import Facts
from aotviz.recording import own_lookups
from aotviz.recording.dynamo_stage import COMPILE_ID
from aotviz.recording.schema import CacheLookup
from aotviz.recording.sources import SourceLine

CACHE = own_lookups.CACHE
NAMED = 3  # functions, or differences, in a sentence
_PLACE = re.compile(r"(?P<file>.*):(?P<line>\d{1,9})(?: in (?P<function>.*))?", re.S)


@dataclass(frozen=True)
class Told:
    """A look-up in words. `cause` is the same for look-ups that have one cause."""

    function: str
    outcome: str
    words: str  # the end of a sentence that begins with the function
    fix: Advice = NO_ADVICE
    place: str = ""  # of the user's line: "file:line"
    code: str = ""
    nearest: str = ""  # id of the compilation with the nearest key, if it is in the recording
    differences: tuple[Difference, ...] = ()
    cause: Hashable = ()
    seconds: float = 0.0  # saved by a hit, spent after a miss
    unlike: bool = False  # a miss of a program that the cache has never seen
    id: str = ""  # of the compilation

    @property
    def why(self) -> str:
        return sentence(f"`{self.function}` {self.words}")


def told(facts: Facts, record: CacheLookup, differs: Mapping[str, tuple[str, str]], nearest: str) -> Told:
    """One look-up. `differs` are the texts of the ingredients that differ from those of the key of `nearest`."""
    return replace(_told(facts, record, differs, nearest), id=facts.id(record.origin.compilation))


def _told(facts: Facts, record: CacheLookup, differs: Mapping[str, tuple[str, str]], nearest: str) -> Told:
    place = record.origin.compilation
    function = COMPILE_ID.sub("", facts.function(place)) or "a function"
    spent = facts.seconds(place) if place >= 0 else 0.0
    reason = facts.text(record.reason).strip().rstrip(".")
    file, code = _line(facts, place, facts.text(record.place))
    match record.outcome:
        case "hit":
            saved = record.saved_ns / 1e9
            words = "came from aotviz's cache" + (f", which saved {seconds(saved)}" if saved else "")
            return Told(function, "hit", words, nearest=nearest, cause="hit", seconds=saved)
        case "bypass":
            because, fix = _advised(reason or "the reason is not known")
            words = f"cannot be cached: {because}"
            return Told(function, "bypass", words, fix, file, code, cause=("bypass", reason, file), seconds=spent)
        case "guard miss":
            why = f": {reason}" if reason else ""
            words = f"was compiled again although aotviz's cache has it: its programs are for other sizes{why}"
            return Told(
                function,
                "guard miss",
                words,
                cache_cures.GUARDS.said(),
                file,
                code,
                nearest,
                cause=("guards", reason),
                seconds=spent,
            )
    return _miss(facts, record, differs, Told(function, "miss", "", NO_ADVICE, file, code, nearest, seconds=spent))


def _miss(facts: Facts, record: CacheLookup, differs: Mapping[str, tuple[str, str]], start: Told) -> Told:
    place, reason = record.origin.compilation, facts.text(record.reason).strip().rstrip(".")
    if reason:
        words = f"was compiled again although it was cached before: {reason}"
        return Told(start.function, "miss", words, cause=("entry", reason), seconds=start.seconds)
    if not differs:
        words = "was not in aotviz's cache, and nothing like it"
        return Told(start.function, "miss", words, seconds=start.seconds, unlike=True)
    program = differs.get(PROGRAM)
    if program is not None and not own_lookups.similar(*program):
        words = "was not in aotviz's cache, which has only other programs"
        return Told(start.function, "miss", words, seconds=start.seconds, unlike=True)
    compilation = facts.compilation(place)
    names = [one.name for one in compilation.inputs] if compilation is not None else []
    found = [one for name, texts in differs.items() for one in ingredients.differences(name, *texts, names)]
    *others, last = (f"'{name}'" for name in differs)
    which = f"{', '.join(others)} and {last}" if others else last
    changed = "; ".join(_changed(one) for one in found[:NAMED])
    more = f"; and {counted(len(found) - NAMED, 'other difference')}" if len(found) > NAMED else ""
    verb = "differ" if len(differs) > 1 or which.endswith("s'") else "differs"
    words = f"was compiled again although it was cached before: its {which} {verb}: {changed}{more}"
    file, code = start.place, start.code
    line = _of_node(facts, place, program) or _of_input(facts, place, found)
    if line is not None:
        file, code = str(line), line.code
    return Told(
        start.function,
        "miss",
        words,
        ingredients.fix(found),
        file,
        code,
        start.nearest,
        tuple(found),
        cause=tuple((one.part, one.before, one.after) for one in found),
        seconds=start.seconds,
    )


def points(found: Iterable[Told]) -> Iterator[Point]:
    """One point for each cause of misses, guard misses and bypasses, then one for all hits."""
    found = list(found)
    causes: dict[Hashable, list[Told]] = defaultdict(list)
    for one in found:
        if one.outcome != "hit" and not one.unlike:
            causes[one.outcome, one.cause].append(one)
    for several in causes.values():
        first = several[0]
        names = list(dict.fromkeys(one.function for one in several))
        plural = len(names) > 1
        cost = sum(one.seconds for one in several)
        cost_words = f"Compiling {'them' if plural else 'it'} took" if first.outcome == "bypass" else "It cost"
        spent = f"{cost_words} {seconds(cost)}" if cost else ""
        words = _plural(first.words) if plural else first.words
        told = sentence(f"{_named(names)} {words}", spent)
        code, place = ("", "") if plural else (first.code, first.place)
        ids = tuple(one.id for one in several)
        yield Point(told, code, place, first.fix, seconds=cost, kind="cache", title=first.why, ids=ids)
    hits = [one for one in found if one.outcome == "hit"]
    if hits:
        saved = sum(one.seconds for one in hits)
        came = f"{counted(len(hits), 'program')} came from aotviz's cache"
        yield Point(sentence(f"{came}, which saved {seconds(saved)}" if saved else came))


def texts(facts: Facts, record: CacheLookup) -> dict[str, tuple[str, str]]:
    """The ingredients that differ, as the look-up says: name -> (text in the nearest key, text now)."""
    return {one.name: (facts.text(one.before), facts.text(one.after)) for one in record.differs}


def _changed(one: Difference) -> str:
    """
    >>> _changed(Difference("torch", "torch", "2.12", "2.13")), _changed(Difference("program", "the program", "", "%1"))
    ('`2.12` before, now `2.13`', 'nothing before, now `%1`')
    """
    before, after = short_pair(one.before, one.after)
    if not before and not after:
        return f"{one.subject} changed"
    before, after = (f"`{value}`" if value else "nothing" for value in (before, after))
    if one.subject in (one.part, f"the {one.part}"):
        return f"{before} before, now {after}"
    return f"{one.subject} was {before}, now {after}"


def _plural(words: str) -> str:
    """
    >>> _plural("was compiled again although it was cached before: its 'torch' differs")
    "were compiled again although they were cached before: their 'torch' differs"
    """
    pairs = (
        ("was compiled", "were compiled"),
        ("it was", "they were"),
        ("its ", "their "),
        ("cache has it", "cache has them"),
    )
    for one, several in pairs:
        words = words.replace(one, several, 1)
    return words


def _named(names: Sequence[str]) -> str:
    """
    >>> _named(["f"]), _named(["f", "g"]), _named(["f", "g", "h", "i", "j"])
    ('`f`', '`f` and `g`', '`f`, `g`, `h` and 2 other functions')
    """
    shown = [f"`{name}`" for name in names[:NAMED]]
    rest = len(names) - NAMED
    return listed([*shown, counted(rest, "other function")] if rest > 0 else shown)


def _advised(reason: str) -> tuple[str, Advice]:
    """A reason and the advice in it.

    >>> _advised("option 'decompositions': a lambda is unknown; give it a method uuid()")
    ("option 'decompositions': a lambda is unknown", 'Give it a method uuid().')
    """
    because, _, advice = reason.partition("; ")
    return because, cache_cures.FROM_CACHE.said(advice=sentence(advice)) if advice else NO_ADVICE


def _line(facts: Facts, place: int, where: str) -> tuple[str, str]:
    """(place, code) of the user's line: the one that a look-up names, or the function that was compiled."""
    match = _PLACE.fullmatch(where)
    if match is None:
        return (facts.frame_place(place) if place >= 0 else ""), ""
    return f"{match['file']}:{match['line']}", _code(facts, place, match["file"], int(match["line"]))


def _code(facts: Facts, place: int, file: str, line: int) -> str:
    """The text of a line of the user's, if a node of the compilation comes from it."""
    graph = facts.graph(place, "dynamo") if place >= 0 else None
    sources = (row.source for row in graph.rows) if graph is not None else ()
    return next((source.code for source in sources if (source.file, source.line) == (file, line)), "")


def _of_node(facts: Facts, place: int, program: tuple[str, str] | None) -> SourceLine | None:
    """The user's line of the first node that differs: the program has a line for each node of Dynamo's graph."""
    graph = facts.graph(place, "dynamo") if program is not None and place >= 0 else None
    if program is None or graph is None:
        return None
    number, _, now = ingredients.first_difference(*program)
    lines = program[1].splitlines()
    first = next((i for i, line in enumerate(lines) if line == "input" or line.startswith("%")), None)
    rows = graph.rows
    if first is None or not now or not 0 <= number - first < len(rows):
        return None
    source = rows[number - first].source
    return source if source.file else None


def _of_input(facts: Facts, place: int, found: Sequence[Difference]) -> SourceLine | None:
    """The user's line that first reads the input that differs, if only one does."""
    names = {one.part.removeprefix("inputs: ").strip("`") for one in found if one.part.startswith("inputs: `")}
    if len(names) != 1 or place < 0:
        return None
    (name,) = names
    return facts.first_use(place, f"L['{name}']")
