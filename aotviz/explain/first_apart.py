"""Where the ranks of a job part for the first time: the rank, the guard and the collective, in one sentence.

Of 64 ranks that wait for one another, one did something else first. Compilations are matched as in `ranks.py`, and
their order is that of the ranks which agree. Ranks whose programs run other collectives hang, so the first of these
comes before the first compilation that a rank made and most did not, or that most made and it did not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from aotviz.explain import log_ends, misses, rank_conditions, ranks, recompiles
from aotviz.explain.cures import rank_cures
from aotviz.explain.explanation import Point, named_ranks, sentence
from aotviz.explain.rank_runs import ordinal
from aotviz.explain.ranks import Match
from aotviz.explain.rows import Facts
from aotviz.recording.dynamo_stage import REST

Runs = Mapping[str, Mapping[Match, int]]  # rank -> its compilations
COMPARED = frozenset({"value", "length", "tensor", "keys", "attribute", "global state"})  # the same in all processes


@dataclass(frozen=True)
class Apart:
    """The first difference that may let ranks wait for one another."""

    rank: str
    match: Match
    like: tuple[str, ...]  # ranks that do the same here
    others: tuple[str, ...]  # the rest


def first(points: Sequence[Point], facts: Facts) -> list[Point]:
    """The points, that of the first difference at the head of them and with a sentence on it."""
    ended = {f"rank {rank}" for rank in log_ends.ranks_that_ended(facts)}
    runs = {rank: known for rank, known in ranks.matched(facts).items() if rank not in ended}
    apart = _find(facts, runs) if len(runs) > 1 else None
    if apart is None:
        return list(points)
    words, title = _words(facts, runs, apart), _title(facts, runs, apart)
    about = {facts.id(known[apart.match]) for known in runs.values() if apart.match in known}
    if (broken := _graph_break(points, apart)) is not None:  # all that differs in this function follows from it
        about.update(broken.ids)
        alike = [point for point in points if point.kind == "ranks" and about.intersection(point.ids)]
        followed = (*broken.followed, *(point.text for point in alike))
        condition = _condition(facts, runs, apart)
        title = f"{title} because {broken.cause}" + (f", and {condition.differs}" if condition else "")
        everywhere = condition is None and _all_ranks(facts, runs, broken)
        fix = broken.fix if everywhere else rank_cures.SOME_BREAK.said()
        text = sentence(words, condition.words if condition else "", broken.text)
        told = replace(broken, text=text, title=title, fix=fix, kind="ranks", followed=followed)
        return [told, *(point for point in points if point is not broken and point not in alike)]
    alike = [point for point in points if point.kind in ("ranks", "recompile") and about.intersection(point.ids)]
    found = alike[0] if alike else Point("", fix=rank_cures.SAME.said(), kind="ranks", ids=tuple(about))
    again = next((point for point in alike if point.kind == "recompile"), None)
    if again is not None and found.failed and found is not again:  # the recompile is why the ranks hang
        text = sentence(words, again.text.replace(recompiles.OTHERS_WAIT, ""))
        followed = (*again.followed, found.text)
        told = replace(again, text=text, title=title, fix=found.fix, failed=True, kind="ranks", followed=followed)
        return [told, *(point for point in points if point not in (found, again))]
    told = replace(found, text=sentence(words, found.text), title=title)
    return [told, *(point for point in points if point is not found)]


def _graph_break(points: Sequence[Point], apart: Apart) -> Point | None:
    """The graph break after which the function that only some ranks compiled is the rest of another one."""
    rest = REST.fullmatch(apart.match[0])
    if rest is None:
        return None
    place = f"{apart.match[1].rpartition(':')[0]}:{rest['line']}"
    return next((point for point in points if point.kind == "graph break" and point.place == place), None)


def _all_ranks(facts: Facts, runs: Runs, point: Point) -> bool:
    """Whether each rank has a compilation that a point is about."""
    return all(any(facts.id(place) in point.ids for place in known.values()) for known in runs.values())


def _condition(facts: Facts, runs: Runs, apart: Apart) -> rank_conditions.Condition | None:
    """What the ranks differ by in the function whose rest only some of them compiled."""
    whole = apart.match[1].rpartition(":")[0]
    for match in dict.fromkeys(match for known in runs.values() for match in known):
        places = {rank: known[match] for rank, known in runs.items() if match in known}
        is_begin = match[1].rpartition(":")[0] == whole and not REST.fullmatch(match[0])
        if is_begin and len(places) == len(runs) and (found := rank_conditions.find(facts, places)):
            return found
    return None


def _find(facts: Facts, runs: Runs) -> Apart | None:
    done = {
        rank: {match: ranks.scheduled_names(facts, place) for match, place in known.items()}
        for rank, known in runs.items()
    }
    hanging = _hanging(facts)
    orders = Counter(tuple(known) for known in runs.values())
    usual = {match: number for number, match in enumerate(orders.most_common(1)[0][0])}
    found: list[tuple[bool, int, int, Apart]] = []
    for match in dict.fromkeys(match for known in runs.values() for match in known):
        here = {rank: done[rank].get(match) for rank in runs}
        counts = Counter(here.values())
        most = max(counts, key=lambda one: (counts[one], one is None))
        if len(counts) == 1:
            continue
        rank = next(rank for rank in sorted(runs, key=_number) if here[rank] != most)
        number = usual.get(match, list(runs[rank]).index(match) if match in runs[rank] else len(usual))
        like = tuple(other for other in runs if here[other] == here[rank])
        others = tuple(other for other in runs if here[other] == most)
        made = next(facts.id(known[match]) for known in runs.values() if match in known)
        waits = (here[rank] is None or most is None) and made not in hanging  # or they run other collectives, and hang
        found.append((waits, number, _number(rank), Apart(rank, match, like, others)))
    return min(found, key=lambda one: one[:3])[3] if found else None


def _number(rank: str) -> int:
    return int(rank.removeprefix("rank "))


def _hanging(facts: Facts) -> set[str]:
    """The compilations whose programs run other collectives than those of the other ranks."""
    return {id for one in ranks.find(facts) if one.kind == "collectives" for id in one.ids}


def _programs(facts: Facts, runs: Runs, apart: Apart) -> tuple[int | None, int | None]:
    """What the rank and the others run of the function: where only some compiled it again and so run other
    collectives, the latest earlier program of the rest."""
    found = [runs[rank].get(apart.match) for rank in (apart.rank, apart.others[0])]
    made = next(place for place in found if place is not None)
    if None in found and facts.id(made) in _hanging(facts):
        rank = (apart.rank, apart.others[0])[found.index(None)]
        found[found.index(None)] = [place for one, place in runs[rank].items() if one[:3] == apart.match[:3]][-1]
    return found[0], found[1]


def _words(facts: Facts, runs: Runs, apart: Apart) -> str:
    function, where, _, number = apart.match
    named = f"`{function}`" + (f" ({where})" if where else "")
    them = named_ranks(list(apart.others))
    rest = named_ranks([one for one in apart.like if one != apart.rank]) if len(apart.like) > 1 else ""
    as_well = f", as {rest}" if rest else ""
    place, other = _programs(facts, runs, apart)
    if place is not None and other is not None:
        what = _guard(facts, place, other, them) + _other_collective(facts, place, other, them)
        return f"{apart.rank} is the first that runs other collectives{as_well}: in {named}, {what}"
    begin = f"{apart.rank} is the first that differs{as_well}"
    because = _because(facts, place if place is not None else other)
    again = " again" if number else ""
    who, whose = (apart.rank, apart.others) if place is not None else (apart.others[0], (apart.rank,))
    waits = _waits(facts, list(runs[who].items()), apart.match)
    verb = "waits" if len(whose) == 1 else "wait"
    if place is not None:
        return f"{begin}: it compiled {named}{again}{because}, and {them} {verb} at {waits}"
    return f"{begin}: it did not compile {named}{again} as {them} did{because}, and {verb} at {waits}"


def _title(facts: Facts, runs: Runs, apart: Apart) -> str:
    """The effect, then the cause."""
    function, _, _, number = apart.match
    them, alike = named_ranks(list(apart.others)), named_ranks(list(apart.like))
    place, other = _programs(facts, runs, apart)
    if place is not None and other is not None:
        everyone = named_ranks([*apart.like, *apart.others])
        at, *names = _first_other(facts, place, other)
        here, there = (name or f"no {'further ' if at else ''}collective" for name in names)
        guard = _guard(facts, place, other, them).replace(", and ", ": ")
        runs_here = f"{alike} {_verb(apart.like, 'run')} {here} where {them} {_verb(apart.others, 'run')} {there}"
        return f"{everyone} will hang: in `{function}`, {guard}{runs_here}"
    waiting, busy = (apart.others, apart.like) if place is not None else (apart.like, apart.others)
    because = _because(facts, place if place is not None else other)
    again = " again" if number else ""
    named = f"{named_ranks(list(waiting))} {_verb(waiting, 'wait')} for {named_ranks(list(busy))}"
    return f"{named}: only {'it' if len(busy) == 1 else 'they'} compiled `{function}`{again}{because}"


def _verb(ranks: Sequence[str], verb: str) -> str:
    return f"{verb}s" if len(ranks) == 1 else verb


def _because(facts: Facts, made: int | None) -> str:
    why = next((one.main.failure.words for one in recompiles.find(facts) if one.place == made), "")
    return f" because {why}" if why else ""


def _guard(facts: Facts, place: int, other: int, them: str) -> str:
    """The first guard that requires one value on the rank and another one on the rest."""
    here, there = misses.required(facts, place), misses.required(facts, other)
    for key, mine in here.items():
        theirs = there.get(key)
        if key[0] in COMPARED and theirs is not None and theirs.value != mine.value:
            return f"`{key[1]}` is {mine.value} where it is {theirs.value} on {them}, and "
    because = _because(facts, place) or _because(facts, other)  # of the one that compiled it again
    return f"{because.removeprefix(' because ')}, and " if because else ""


def _other_collective(facts: Facts, place: int, other: int, them: str) -> str:
    at, *names = _first_other(facts, place, other)
    mine, theirs = (name or "missing" for name in names)
    return f"its {ordinal(at + 1)} collective is {mine} where that of {them} is {theirs}"


def _first_other(facts: Facts, place: int, other: int) -> tuple[int, str, str]:
    """The number of the first collective that is not the same, and what it is on both; "" where one has no more."""
    mine, theirs = ranks.scheduled_names(facts, place), ranks.scheduled_names(facts, other)
    at = next((n for n, pair in enumerate(zip(mine, theirs, strict=False)) if len(set(pair)) > 1), None)
    at = min(len(mine), len(theirs)) if at is None else at
    here, there = (f"`{names[at]}`" if at < len(names) else "" for names in (mine, theirs))
    return at, here, there


def _waits(facts: Facts, known: Sequence[tuple[Match, int]], match: Match) -> str:
    """The first collective from a compilation on."""
    matches = [one for one, _ in known]
    for (function, *_), place in known[matches.index(match) :]:
        if names := ranks.scheduled_names(facts, place):
            return f"`{names[0]}` of `{function}`"
    return "the next collective"
