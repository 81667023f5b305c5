"""Why aotviz's cache and torch's compile caches hit, missed or were bypassed.

A key is a hash of hundreds of parts, and one different part is enough to miss. Each miss is compared with the most
similar earlier key of the same cache, in this process, in another process's log or on another rank, and only the
parts that differ are reported. The most similar key is the one with the fewest differences, of the same function if
several have as few. aotviz's cache tells the nearest key by itself (own_misses.py).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from aotviz.explain import explained_tables, key_parts, misses, own_misses, ranks, recompiles
from aotviz.explain.cures import cache_cures
from aotviz.explain.cures.registry import NO_ADVICE, Advice, Cure
from aotviz.explain.explanation import (
    Explanation,
    Point,
    by_urgency,
    counted,
    listed,
    seconds,
    sentence,
    without_addresses,
)
from aotviz.explain.key_parts import Difference
from aotviz.explain.rows import Facts
from aotviz.recording import printed_lines
from aotviz.recording.schema import NONE, CacheLookup
from aotviz.recording.sources import SourceLine

if TYPE_CHECKING:
    from aotviz.explain.marked_frame import ExplainedTable

NAMES = {
    own_misses.CACHE: "aotviz",
    "aotautograd": "AOTAutograd",
    "fx": "FX graph",
    "fx bundled": "bundled FX graph",
    "dynamo": "Dynamo",
}
UNSET = ("None", "[]")
DISABLING = re.compile(r"\.force_disable_caches$")
BECAUSE = re.compile(r" because(?:, (?:for example )?compared with [^`]*?,)? (?P<why>(?:`[^`]*`|[^`.])*)")
MOST_COMPARED = 32  # earlier lookups that a miss is compared with
MOST_TOLD = 3  # differences in a sentence; the table has all
BYPASSES: tuple[tuple[str, str, Cure | None], ...] = (
    (
        r"autograd_function_apply",
        "the graph calls a custom `torch.autograd.Function`, whose Python code is not part of the cache key",
        cache_cures.AUTOGRAD_FUNCTION,
    ),
    (
        r"Unsupported call_(?:function|method) target (?:<(?:built-in )?function )?(?P<what>[\w.]+)",
        "the graph calls `{what}`, which is not on the cache's list of safe functions",
        cache_cures.UNSAFE_FUNCTION,
    ),
    (
        r"compiled autograd",
        "compiled autograd is on, whose graphs are cached only within the process, as is expected",
        None,
    ),
    (r"freezing", "weights are frozen into the graph, as is expected with `torch._inductor.config.freezing`", None),
    (r"uuid|custom[ _]pass", "a custom pass{settings} has no `uuid()`", cache_cures.PASS),
    (r"(?:pickle|serializ)", "a part of the cache key cannot be pickled", None),
    (r"[Ff]ake", "the inputs are fake tensors, as is expected inside an export or another trace", None),
)


ADVISED = re.compile(r"(?<![\w.])(?P<name>torch\.[\w.]+) = (?P<value>\w+)")


@dataclass(frozen=True)
class Lookup:
    """One cache lookup and its explanation."""

    record: CacheLookup
    id: str  # of the compilation, in the recording
    rank: int
    function: str
    seconds: float  # saved by a hit, spent after a miss; 0 if unknown
    why: str
    fix: Advice = NO_ADVICE
    nearest: str = ""  # id of the compilation with the most similar earlier key, or ""
    differences: tuple[Difference, ...] = ()
    own: own_misses.Told | None = None  # what there is to say of a look-up in aotviz's cache


class _Candidate:
    """A lookup to compare with, and the recording that it is from."""

    def __init__(self, facts: Facts, record: CacheLookup, label: str) -> None:
        self.facts, self.record, self.label = facts, record, label

    @property
    def place(self) -> int:
        return self.record.origin.compilation

    @property
    def id(self) -> str:
        return self.label + self.facts.id(self.place)

    @property
    def named(self) -> str:
        """In a sentence."""
        return self.facts.id(self.place) + (" of the earlier run" if self.label else "")

    @property
    def function(self) -> str:
        return self.facts.function(self.place)

    @cached_property
    def parts(self) -> dict[str, tuple[str, str]]:
        return key_parts.parts(self.facts, self.record)

    @cached_property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """The parts by their hashes, to be counted quickly."""
        return frozenset((name, hash) for name, (hash, _) in self.parts.items())

    @cached_property
    def settings(self) -> dict[str, str]:
        return key_parts.settings(self.facts, self.place)


class _Known:
    """The earlier lookups, indexed by what a later one may have in common with them."""

    def __init__(self) -> None:
        self._by: dict[tuple[str, str, str], list[_Candidate]] = defaultdict(list)

    def add(self, candidate: _Candidate) -> None:
        cache = candidate.record.cache
        if candidate.record.key:
            self._by[cache, "key", candidate.record.key].append(candidate)
            self._by[cache, "function", candidate.function].append(candidate)
            if code := _hash(candidate, "gm"):
                self._by[cache, "code", code].append(candidate)

    def like(self, candidate: _Candidate, what: str, value: str) -> list[_Candidate]:
        """The latest MOST_COMPARED lookups of the same cache that have this in common, the latest first."""
        return self._by.get((candidate.record.cache, what, value), [])[: -MOST_COMPARED - 1 : -1] if value else []


def find(facts: Facts, earlier: Facts | None = None) -> list[Lookup]:
    """Every lookup, in order of time. `earlier` is a recording of an earlier run."""
    asked = "lookups", id(earlier)
    if asked not in facts.memory:
        facts.memory[asked] = _found(facts, earlier)
    found: list[Lookup] = facts.memory[asked]
    return found


def _found(facts: Facts, earlier: Facts | None) -> list[Lookup]:
    known = _Known()
    if earlier is not None:
        for record in earlier.data.cache_lookups:
            known.add(_Candidate(earlier, record, "earlier run, "))
    mine = [_Candidate(facts, record, "") for record in facts.data.cache_lookups]
    mine.sort(key=lambda candidate: candidate.record.origin.unix_ns)
    found = []
    for candidate in mine:
        found.append(_read(candidate, known))
        known.add(candidate)
    return found


COLUMNS: explained_tables.Columns = {
    "compilation": ("str", lambda lookup: lookup.id),
    "rank": ("int64", lambda lookup: lookup.rank),
    "function": ("str", lambda lookup: lookup.function),
    "cache": ("str", lambda lookup: lookup.record.cache),
    "outcome": ("str", lambda lookup: lookup.record.outcome),
    "why": ("str", lambda lookup: lookup.why),
    "differs": ("object", lambda lookup: tuple(difference.subject for difference in lookup.differences)),
    "before": ("object", lambda lookup: tuple(key_parts.short(difference.before) for difference in lookup.differences)),
    "after": ("object", lambda lookup: tuple(key_parts.short(difference.after) for difference in lookup.differences)),
    "nearest": ("str", lambda lookup: lookup.nearest),
    "seconds": ("float64", lambda lookup: lookup.seconds),
    "key": ("str", lambda lookup: lookup.record.key),
    "fix": ("str", lambda lookup: lookup.fix),
}


def frame(facts: Facts, earlier: Facts | None = None) -> ExplainedTable:
    """One row for each lookup."""
    lookups = find(facts, earlier)
    return explained_tables.table(COLUMNS, lookups, marked=("differs", "before", "after"), hidden=("key", "rank"))


def explain_one(facts: Facts, place: int, earlier: Facts | None = None) -> list[Point]:
    """The lookups of one compilation."""
    lookups = [lookup for lookup in find(facts, earlier) if lookup.record.origin.compilation == place]
    return [
        Point(one.why, one.own.code if one.own else "", one.own.place if one.own else "", one.fix) for one in lookups
    ]


def explain_all(facts: Facts, earlier: Facts | None = None) -> Explanation:
    """The avoidable misses and the bypasses, the costliest first; the title counts all lookups.

    A recompile makes a new program, which always misses: such misses are only counted.
    """
    lookups = find(facts, earlier)
    recompiled = {record.origin.compilation for record in facts.data.recompiles}
    recompiled |= {one.place for one in recompiles.find(facts)}
    if not lookups:
        return Explanation("No compile cache was used.", tuple(_switched_off(facts)))
    own = own_misses.points(_own_to_tell(lookups, recompiled))
    points = by_urgency([*own, *_misses(facts, lookups, recompiled), *_bypasses(facts, lookups)])
    outcomes = Counter(one.record.outcome for one in lookups)
    misses = [one for one in lookups if one.record.outcome == "miss"]
    follow = sum(one.record.origin.compilation in recompiled for one in misses)
    others = (one for one in misses if one.record.origin.compilation not in recompiled)
    first = sum(not one.nearest and not one.differences for one in others)
    guards = f"{counted(outcomes['guard miss'], 'guard miss', 'guard misses')}, " if outcomes["guard miss"] else ""
    kinds = {
        "not seen before": first,
        "of recompiles" if follow > 1 else "of a recompile": follow,
    }
    of_misses = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count)
    title = (
        f"{counted(len(lookups), 'cache lookup')}: {counted(outcomes['hit'], 'hit')}, {guards}"
        f"{counted(outcomes['miss'], 'miss', 'misses')}{f' ({of_misses})' if of_misses else ''}, "
        f"{counted(outcomes['bypass'], 'bypass', 'bypasses')}"
    )
    return Explanation(title, tuple(points))


def cold_start(facts: Facts, earlier: Facts | None = None) -> list[Point]:
    """One remark on what was compiled for the first time, so that no cache could have it."""
    lookups = find(facts, earlier)
    recompiled = {one.place for one in recompiles.find(facts)}
    answered = {
        one.record.origin.compilation
        for one in lookups
        if one.record.outcome != "miss" or one.nearest or one.differences
    }
    first = {one.record.origin.compilation for one in lookups if _is_first(facts, one)}
    missed = {one.record.origin.compilation for one in lookups if one.record.outcome == "miss"}
    cold = (first | (missed - answered)) - recompiled - {NONE}
    if not cold:
        return []
    spent = sum(map(facts.seconds, cold))
    them = "it" if len(cold) == 1 else "them"
    told = (
        f"{counted(len(cold), 'compilation')} found nothing in the caches because nothing like {them} was compiled "
        "before"
    )
    text = sentence(told, f"Compiling {them} took {seconds(spent)}" if spent else "")
    return [Point(text, seconds=spent, title=told, ids=tuple(map(facts.id, sorted(cold))))]


def _is_first(facts: Facts, one: Lookup) -> bool:
    """Whether a miss is of another program than the one that it is compared with: another function with other code."""
    if not any(found.part.startswith("gm") and not found.hidden for found in one.differences):
        return False
    place, nearest = one.record.origin.compilation, facts.place_of(one.nearest)
    if nearest < 0:  # of an earlier run, which may have compiled this function
        return False
    before, now = facts.data.compilations[nearest], facts.data.compilations[place]
    again = facts.frame_place(nearest) == facts.frame_place(place) != ""  # the frame has another number after a reset
    return before.log == now.log and facts.frame(nearest) != facts.frame(place) and not again


def _misses(facts: Facts, lookups: Sequence[Lookup], recompiled: set[int]) -> Iterator[Point]:
    """One point for each cause. What ranks diverge in is told by itself, so misses that follow from it are left out."""
    apart = [set(difference.ids) for difference in ranks.find(facts) if difference.kind != "cache key"]
    told: set[int] = set()  # compilations whose miss is reported: the FX graph cache misses for the same reason
    causes: dict[Hashable, list[Lookup]] = defaultdict(list)
    for one in lookups:
        place = one.record.origin.compilation
        if one.own is None and one.record.outcome == "miss" and one.nearest and place not in recompiled | told:
            if _is_first(facts, one):
                continue
            told.add(place)
            if not one.differences or not any({one.id, one.nearest} <= ids for ids in apart):
                differs = tuple((found.part, found.before, found.after) for found in one.differences)
                causes[one.record.cache, one.fix, differs].append(one)
    for those in causes.values():
        cache = NAMES.get(those[0].record.cache, those[0].record.cache)
        words = those[0].why.partition(f"missed the {cache} cache")[2]
        if len(those) > 1 and cache_cures.ONE_FIRST in those[0].fix.cures:
            words = (
                f" with keys that other processes had looked up before ({those[0].id} with that of {those[0].nearest}, "
                "for example): those had not finished compiling, or they use another cache folder"
            )
        elif len(those) > 1:
            words = words.replace(" compared with ", " for example compared with ", 1)
        yield _point(facts, those, f"missed the {cache} cache{words}")


def _point(facts: Facts, those: Sequence[Lookup], words: str) -> Point:
    """What is said of lookups with one cause, and how long their compilations took."""
    places = [one.record.origin.compilation for one in those]
    names = [facts.called(place) if place >= 0 else "a lookup outside any compilation" for place in places]
    names = list(dict.fromkeys(names))
    more = f" and {counted(len(names) - MOST_TOLD, 'other compilation')}" if len(names) > MOST_TOLD else ""
    spent = sum(facts.seconds(place) for place in {one.record.origin.compilation for one in those} if place >= 0)
    cost = f"Compiling {'it' if len(names) == 1 else 'them'} took {seconds(spent)}" if spent else ""
    told = sentence(f"{', '.join(names[:MOST_TOLD])}{more} {words}", cost)
    ids = tuple(dict.fromkeys(one.id for one in those if one.id))
    line, why = _line(facts, those[0]), BECAUSE.search(words)
    title = f"{names[0]} {words.split()[0]} the cache: {why['why']}" if why else ""
    return Point(told, line.code, str(line), those[0].fix, seconds=spent, kind="cache", title=title, ids=ids)


def _line(facts: Facts, one: Lookup) -> SourceLine:
    """The user's line of the statement that differs, or that of the compiled function."""
    place, code = one.record.origin.compilation, next((d.after for d in one.differences if d.part == "gm"), "")
    text = facts.text(facts.text_of(place, "dynamo_output_graph")) if place >= 0 and code else ""
    where, source = printed_lines.line_of_statement(text, code)
    if not where or misses.LIBRARY.search(where):
        return misses.users_line(facts, place)
    file, _, number = where.rpartition(":")
    return SourceLine(file, int(number), "", source)


def _switched_off(facts: Facts) -> list[Point]:
    """That no cache was asked, where a setting forbids it."""
    for place in range(len(facts.data.compilations)):
        kinds = (facts.text(one.type) for one in facts.about(place, facts.data.artifacts))
        settings = key_parts.settings(facts, place) if "inductor_output_code" in kinds else {}
        off = next((name for name, value in settings.items() if DISABLING.search(name) and value == "True"), "")
        if off:
            told = f"No compile cache was used, because `{off}` disables all of them: each process compiles again"
            return [Point(sentence(told), fix=cache_cures.OFF.said(), kind="cache", ids=(facts.id(place),))]
    return []


def _bypasses(facts: Facts, lookups: Sequence[Lookup]) -> Iterator[Point]:
    """One point for each cause: both caches, and every compilation, may be bypassed for one."""
    causes: dict[str, list[Lookup]] = defaultdict(list)
    for one in lookups:
        if one.own is None and one.record.outcome == "bypass":
            causes[facts.text(one.record.reason)].append(one)
    for those in causes.values():
        caches = list(dict.fromkeys(NAMES.get(one.record.cache, one.record.cache) for one in those))
        told = those[0].why.partition(f"bypassed the {caches[0]} cache")[2]
        yield _point(facts, those, f"bypassed the {' cache and the '.join(caches)} cache{told}")


def _own_to_tell(lookups: Sequence[Lookup], recompiled: Collection[int]) -> Iterator[own_misses.Told]:
    """Those in aotviz's cache, but for the misses of recompiles: a new program always misses."""
    for lookup in lookups:
        if lookup.own is None:
            continue
        if lookup.record.outcome in ("miss", "guard miss") and lookup.record.origin.compilation in recompiled:
            continue
        yield lookup.own


def _read(candidate: _Candidate, known: _Known) -> Lookup:
    record, facts = candidate.record, candidate.facts
    if record.cache == own_misses.CACHE:
        return _own(candidate, known)
    cache = f"{NAMES.get(record.cache, record.cache)} cache"
    what = facts.called(candidate.place) if candidate.place >= 0 else "A lookup outside any compilation"
    spent = _seconds(facts, record)
    if record.outcome == "hit":
        told = _hit(what, cache, spent, candidate)
    elif record.outcome == "bypass":
        told = _without_what_is_set(_bypass(what, cache, candidate), candidate)
    else:
        told = _miss(what, cache, candidate, known)
    return Lookup(record, candidate.id, facts.rank(candidate.place), candidate.function, spent, *told)


def _own(candidate: _Candidate, known: _Known) -> Lookup:
    """A look-up in aotviz's cache. What it does not say is compared like one in torch's caches."""
    record, facts = candidate.record, candidate.facts
    differs = own_misses.texts(facts, record)
    nearest = next(iter(known.like(candidate, "key", record.nearest or record.key)), None)
    if record.outcome == "miss" and not differs and (nearest := nearest or _nearest(candidate, known)) is not None:
        names = [*candidate.parts, *(name for name in nearest.parts if name not in candidate.parts)]
        contents = {name: [one.parts.get(name, ("", ""))[1] for one in (nearest, candidate)] for name in names}
        differs = {name: (was, now) for name, (was, now) in contents.items() if was != now}
    own = own_misses.told(facts, record, differs, nearest.id if nearest is not None else "")
    return Lookup(
        record,
        candidate.id,
        facts.rank(candidate.place),
        candidate.function,
        own.seconds,
        own.why,
        own.fix,
        own.nearest,
        own.differences,
        own,
    )


# What is said of a lookup: `Lookup.why`, and as many of the fields after it as there is something to say in.
_Told = tuple[str] | tuple[str, Advice] | tuple[str, Advice, str] | tuple[str, Advice, str, tuple[Difference, ...]]


def _hit(what: str, cache: str, saved: float, candidate: _Candidate) -> _Told:
    words = f"{what} was found in the {cache}" + (f", which saved {seconds(saved)}" if saved else "")
    hidden = f"so its graphs were not created again and are not in this {candidate.facts.source}"
    aot = candidate.record.cache in ("aotautograd", "fx bundled")
    return sentence(f"{words}; {hidden}" if aot else words), cache_cures.FORCE.said() if aot else NO_ADVICE


def _bypass(what: str, cache: str, candidate: _Candidate) -> _Told:
    reason = candidate.facts.text(candidate.record.reason)
    line = without_addresses(" ".join(reason.split()))
    for pattern, words, cure in BYPASSES:
        match = re.search(pattern, reason)
        if match:
            because = words.format(**match.groupdict(), settings=_of_passes(candidate.settings, reason))
            return sentence(
                f"{what} bypassed the {cache} because {because}", f"Torch says: {line}"
            ), cure.said() if cure else NO_ADVICE
    said = f"Torch says: {line}" if line else "Torch does not say why"
    return (sentence(f"{what} bypassed the {cache}", said),)


def _of_passes(settings: Mapping[str, str], reason: str) -> str:
    """The settings that hold a custom pass of the stage which torch names, in brackets."""
    stage = re.search(r"Unsupported (?P<stage>\w{1,20}(?: grad)?) custom pass", reason)
    begin = f"torch._inductor.config.{stage['stage'].replace(' ', '_')}_custom_" if stage else "?"
    names = [f"`{name}`" for name, value in settings.items() if name.startswith(begin) and value not in UNSET]
    return f" ({listed(names)})" if names else ""


def _without_what_is_set(told: _Told, candidate: _Candidate) -> _Told:
    """No advice to set a setting that has that value in the log."""
    advised = ADVISED.search(told[1]) if len(told) > 1 else None
    if advised is None or candidate.settings.get(advised["name"]) != advised["value"]:
        return told
    return (sentence(told[0], f"`{advised[0]}` is set, and torch bypasses the cache anyway"),)


def _miss(what: str, cache: str, candidate: _Candidate, known: _Known) -> _Told:
    record = candidate.record
    twin = next(iter(known.like(candidate, "key", record.key)), None)
    if "guard" in candidate.facts.text(record.fields.get("cache_status_detailed", -1)):
        why = "the entry was compiled for other sizes, and its shape guards do not hold for these"
        told = sentence(f"{what} missed the {cache} although its key is there: {why}")
        return told, cache_cures.GUARDS.said(), twin.id if twin else ""
    if twin is not None:
        return _twin(what, cache, candidate, twin)
    nearest, source = _nearest(candidate, known), candidate.facts.source
    if nearest is None:
        return (sentence(f"{what} missed the {cache}: this {source} contains no similar compilation before it"),)
    found = key_parts.differences(nearest.parts, candidate.parts, (nearest.settings, candidate.settings))
    if not found:
        differs = (
            f"its key differs from that of {nearest.named}, but the {source} does not contain the part that differs"
        )
        fix = NO_ADVICE if record.components else cache_cures.DETAILED.said()
        return sentence(f"{what} missed the {cache}; {differs}"), fix, nearest.id
    told = "; ".join(difference.words for difference in found[:MOST_TOLD])
    more = f"; and {counted(len(found) - MOST_TOLD, 'other part')}" if len(found) > MOST_TOLD else ""
    why = sentence(f"{what} missed the {cache} because, compared with {nearest.named}, {told}{more}")
    return why, _advice(found), nearest.id, tuple(found)


SETTINGS = {"inductor_config", "autograd_config", "dynamo_config", "setting", "inductor_config_comms"}


def _twin(what: str, cache: str, candidate: _Candidate, twin: _Candidate) -> _Told:
    apart = (candidate.record.origin.unix_ns - twin.record.origin.unix_ns) / 1e9
    other_log = (twin.facts, twin.record.origin.log) != (candidate.facts, candidate.record.origin.log)
    if other_log and twin.facts is candidate.facts:
        words = (
            f"{what} missed the {cache} with the same key that {twin.named} looked up {seconds(abs(apart))} "
            "earlier: that process had not finished compiling it, or it uses another cache folder"
        )
        fix = cache_cures.ONE_FIRST.said()
    else:
        words = f"{what} missed the {cache} with the key of {twin.named}: the entry was not saved, or was deleted"
        fix = cache_cures.FOLDER.said()
    return sentence(words), fix, twin.id


def _nearest(candidate: _Candidate, known: _Known) -> _Candidate | None:
    """The lookup with the fewest differing parts, of those of the same function or the same code."""
    kin = known.like(candidate, "function", candidate.function)
    kin = [other for other in kin if _direction(other) == _direction(candidate)]
    near = known.like(candidate, "code", _hash(candidate, "gm"))
    before = [other for other in (*kin, *near) if not _was_made_later(other, candidate)]
    return min(before, key=lambda other: len(other.pairs - candidate.pairs), default=None)  # the first of equals


def _was_made_later(other: _Candidate, candidate: _Candidate) -> bool:
    """Whether a program was made after this one in its process, though its backward was looked up before."""
    here, there = candidate.record.origin, other.record.origin
    return other.facts is candidate.facts and there.log == here.log and there.compilation > here.compilation


def _hash(candidate: _Candidate, name: str) -> str:
    return candidate.parts.get(name, ("", ""))[0] if candidate.record.components else ""


def _direction(candidate: _Candidate) -> str:
    return candidate.parts.get("fx_kwargs[is_backward]", ("", ""))[1] if candidate.record.components else ""


def _seconds(facts: Facts, record: CacheLookup) -> float:
    for name, scale in (("time_saved_ms", 1e3), ("time_saved_ns", 1e9), ("time_taken_ns", 1e9)):
        text = facts.text(record.fields.get(name, -1))
        try:
            return float(text) / scale
        except ValueError:
            continue
    return 0.0


def _without_numbers(code: str) -> str:
    return re.sub(r"\d[\d.e+-]*", "0", code)


def _advice(found: Sequence[Difference]) -> Advice:
    kinds = {difference.part.partition("[")[0] for difference in found}
    subjects = " ".join(difference.subject for difference in found)
    if any(one.hidden for one in found):
        return (cache_cures.HIDDEN_SETTING if kinds & SETTINGS else cache_cures.HIDDEN).said()
    if "gm" in kinds:
        numbers = all(_without_numbers(one.before) == _without_numbers(one.after) for one in found if "gm" in one.part)
        return (cache_cures.CONSTANT if numbers else cache_cures.CODE).said()
    if "example_inputs" in kinds:
        return (cache_cures.SHAPE if "the shape of" in subjects else cache_cures.INPUT).said()
    if kinds & SETTINGS:
        return cache_cures.SETTINGS.said()
    if kinds & {"torch_version", "system_info"}:
        return cache_cures.VERSION.said()
    return cache_cures.PART.said()
