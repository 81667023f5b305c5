"""What differs between the ranks of a job: collectives, execution order, compilations, graphs, tensors, keys, times.

Ranks that compile different programs wait for one another, and ranks whose programs run different collectives hang.
That a rank has its tensors on a device of its own (`cuda:0` here, `cuda:1` there) is not a difference.
Compilations are matched by their function and by how often it was compiled before. Compile ids do not match: they
count all functions, so one extra function on a rank shifts them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aotviz.explain import explained_tables, misses, rank_conditions, rank_runs, recompiles
from aotviz.explain.cures import guard_cures, rank_cures
from aotviz.explain.cures.registry import NO_ADVICE, Advice, advice
from aotviz.explain.explanation import Explanation, Point, counted, listed, named_ranks, seconds, sentence
from aotviz.explain.key_parts import first_difference, short
from aotviz.explain.rank_runs import Operation
from aotviz.explain.rows import Facts
from aotviz.recording.dynamo_stage import rests_named
from aotviz.recording.findings import RankDifference, RankLane
from aotviz.recording.graph import Graph
from aotviz.recording.listing import call

if TYPE_CHECKING:
    from aotviz.explain.marked_frame import ExplainedTable

GRAPHS = {
    "dynamo_output_graph": "Dynamo's graph",
    "aot_joint_graph": "the joint graph",
    "aot_forward_graph": "the forward graph",
    "aot_backward_graph": "the backward graph",
    "aot_inference_graph": "the inference graph",
}
UNSURE = "This may be wrong: torch logs a graph that comes from its cache under the id of another."
HANGS = {rank_cures.HANG, rank_cures.SKIPPED, rank_cures.ORDER}

MOST_NAMED = 3  # functions
MOST_STEPS, CONTEXT = 40, 5  # of a lane that is drawn; before the first step that differs
COLLECTIVE = "_c10d_functional."
CALLED = re.compile(r"_c10d_functional\.(\w+?)_?(?:\.default)?\(")  # in the text of a graph
KINDS = (
    "collectives",
    "execution order",
    "compilation",
    "graph",
    "tensor metadata",
    "inputs",
    "cache key",
    "cache",
    "estimated time",
)
CACHES = ("aotviz", "aotautograd", "fx bundled", "fx")  # the outermost first
COMMENT = re.compile(r"^\s*#.*$", re.M)  # which quotes the line that an operator is of
DEVICE = re.compile(r"\b(cuda|xpu|hpu|mtia|npu)(?::|', index=)\d+")  # a device with its number
DYNAMOS = re.compile(r" \[(\d+)/\d+\]$")  # the compile id behind the name in a recording of our own

Match = tuple[str, str, int, int]  # function, its place, index among those with both, earlier compilations of it


def find(facts: Facts) -> list[RankDifference]:
    """All differences, the dangerous ones first."""
    if "ranks" not in facts.memory:
        facts.memory["ranks"] = _found(facts)
    found: list[RankDifference] = facts.memory["ranks"]
    return found


def _found(facts: Facts) -> list[RankDifference]:
    by_rank = matched(facts)
    if len(by_rank) < 2:
        return []
    reasons = {recompile.place: recompile.why for recompile in recompiles.find(facts)}
    fixes = {id: point.fix for point in recompiles.points(facts) for id in point.ids}  # as `explain` tells them
    operations = rank_runs.by_place(rank_runs.operations(facts))
    matches = list(dict.fromkeys(match for places in by_rank.values() for match in places))
    found = list(_of_job(facts, by_rank, operations))
    for match in matches:
        places = {rank: known[match] for rank, known in by_rank.items() if match in known}
        found.extend(_of_match(facts, match, places, by_rank, reasons, fixes, operations))
    found.extend(_found_by_some(facts, by_rank))
    return sorted(found, key=lambda difference: KINDS.index(difference.kind))


def records(facts: Facts) -> list[RankDifference]:
    """The same in the wire format."""
    return [replace(one, fix=str(one.fix)) for one in find(facts)]


COLUMNS: explained_tables.Columns = {
    "kind": ("str", lambda one: one.kind),
    "function": ("str", lambda one: one.function),
    "compilations": ("object", lambda one: tuple(one.ids)),
    "why": ("str", lambda one: one.words),
    "fix": ("str", lambda one: one.fix),
}


def frame(facts: Facts) -> ExplainedTable:
    """One row for each difference."""
    return explained_tables.table(COLUMNS, find(facts), marked=("why",))


def explain_all(facts: Facts) -> Explanation:
    ranks = len(matched(facts))
    if ranks < 2:
        return Explanation("There is only one rank.", ())
    found = find(facts)
    if not found:
        return Explanation(f"The {ranks} ranks compiled the same programs.", ())
    return Explanation(
        f"{counted(ranks, 'rank')} differ in {counted(len(found), 'thing')}",
        tuple(points(found)),
    )


PLACE = re.compile(r" \((?P<place>\S+:\d+)\)")  # of a function, in the words of a difference


def points(found: Iterable[RankDifference]) -> list[Point]:
    points = []
    for one in found:
        fix, place, branch = advice(one.fix), PLACE.search(one.words), rank_conditions.TOLD.search(one.words)
        points.append(
            Point(
                one.words,
                code=branch["code"] if branch else "",
                place=branch["place"] if branch else place["place"] if place else "",
                fix=fix,
                failed=not HANGS.isdisjoint(fix.cures),
                kind="ranks",
                title=PLACE.sub("", one.words).partition(". ")[0],
                ids=tuple(one.ids),
            )
        )
    return points


def _lanes(values: Mapping[str, tuple[str, ...]]) -> list[RankLane]:
    """What the ranks run, those together that run the same. Of long lanes, the steps around the first that differs."""
    groups = _alike(values)
    first, most = min(map(len, groups.values())), max(map(len, groups.values()))
    apart = next((n for n in range(first) if len({steps[n] for steps in groups.values()}) > 1), first)
    start = max(0, apart - CONTEXT) if most > MOST_STEPS else 0
    return [
        RankLane(ranks, list(steps[start : start + MOST_STEPS]), start, max(0, len(steps) - start - MOST_STEPS))
        for ranks, steps in groups.items()
    ]


def _alike(values: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The ranks that have the same value, named together -> the value."""
    ranks: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for rank, value in values.items():
        ranks[value].append(rank)
    return {named_ranks(same): value for value, same in ranks.items()}


def _orders(facts: Facts) -> dict[str, list[str]]:
    """Rank -> the functions of the graphs that it ran, in order."""
    names: dict[str, list[str]] = defaultdict(list)
    for run in rank_runs.runs(facts):
        if run.rank >= 0:
            names[f"rank {run.rank}"].append(facts.function(run.place) or run.compile_id or "a graph compiled earlier")
    return dict(names)


def matched(facts: Facts) -> dict[str, dict[Match, int]]:
    """Rank -> its compilations by what they are matched by."""
    by_rank: dict[str, dict[Match, int]] = defaultdict(dict)
    seen: dict[Hashable, int] = defaultdict(int)
    others: dict[Hashable, dict[str, int]] = defaultdict(dict)
    for place, compilation in enumerate(facts.data.compilations):
        if compilation.rank < 0 or not (compilation.compile_id or compilation.stages):
            continue  # two logs without ranks may be of two jobs, which need not agree on anything
        rank = f"rank {compilation.rank}"
        function, where = facts.function(place), facts.frame_place(place)
        ours = None if compilation.compile_id else DYNAMOS.search(function)
        function = DYNAMOS.sub("", function) if ours else function
        alike = others[rank, function, where]
        which = alike.setdefault(ours[1] if ours else "", len(alike))
        number = seen[rank, function, where, which]
        seen[rank, function, where, which] += 1
        by_rank[rank][function, where, which, number] = place
    return dict(by_rank)


def _of_job(
    facts: Facts, by_rank: Mapping[str, Mapping[Match, int]], operations: Mapping[int, list[Operation]]
) -> Iterator[RankDifference]:
    """Differences that are not about one function: the order in which graphs run, and the times that they take."""
    names = _orders(facts)
    if len(names) > 1 and (order := rank_runs.order_difference(names)):
        looked_up = facts.data.cache_lookups
        cached = {f"rank {facts.rank(row.origin.compilation)}" for row in looked_up if row.outcome == "hit"}
        sure = rank_runs.order_difference({rank: runs for rank, runs in names.items() if rank not in cached})
        words, cure = (sure, rank_cures.ORDER) if sure else (f"{order} {UNSURE}", rank_cures.ORDER_UNCACHED)
        drawn = _lanes({rank: tuple(runs) for rank, runs in names.items()})
        yield RankDifference("execution order", "", [], words, cure.said(), drawn)
    shared = set.intersection(*(set(known) for known in by_rank.values()))
    estimated = {
        rank: [one for match in shared for one in operations.get(known[match], ())] for rank, known in by_rank.items()
    }
    if all(estimated.values()) and (told := rank_runs.estimate_difference(estimated)):
        yield RankDifference("estimated time", "", [], sentence(told), rank_cures.SLOW.said())


def _found_by_some(facts: Facts, by_rank: Mapping[str, Mapping[Match, int]]) -> Iterator[RankDifference]:
    """Functions that some ranks found in their cache and others compiled."""
    apart: dict[tuple[str, str], list[Match]] = defaultdict(list)
    for match in next(iter(by_rank.values())):
        outcomes = {rank: _outcome(facts, known[match]) for rank, known in by_rank.items() if match in known}
        hit, missed = ([rank for rank, outcome in outcomes.items() if outcome == one] for one in ("hit", "miss"))
        if hit and missed:
            apart[named_ranks(hit), named_ranks(missed)].append(match)
    for (did, did_not), matches in apart.items():
        named = [f"`{function}`" for function, *_ in matches[:MOST_NAMED]]
        more = [counted(len(matches) - MOST_NAMED, "other")] if len(matches) > MOST_NAMED else []
        words = sentence(
            f"{did} found {listed([*named, *more])} in the cache, {did_not} did not and had to compile",
            _waiting(facts, did, did_not, matches, by_rank),
        )
        ids = [facts.id(known[match]) for match in matches for known in by_rank.values() if match in known]
        yield RankDifference("cache", "", ids, words, rank_cures.ONE_CACHE.said())


def _waiting(
    facts: Facts, did: str, did_not: str, matches: Sequence[Match], by_rank: Mapping[str, Mapping[Match, int]]
) -> str:
    """How long the ranks that found their programs wait for the others, and why that is dangerous."""
    spent = {rank: sum(facts.seconds(known[one]) for one in matches if one in known) for rank, known in by_rank.items()}
    apart = max(spent.values()) - min(spent.values())
    long = f", about {seconds(apart)}" if apart else ""
    waits = "waits" if did.startswith("rank ") else "wait"
    return f"{did} {waits} for {did_not} at the next collective{long}: if that exceeds its timeout, the job fails"


def _outcome(facts: Facts, place: int) -> str:
    """What the outermost cache said of a compilation; "" if none was asked."""
    said = {lookup.cache: lookup.outcome for lookup in facts.about(place, facts.data.cache_lookups)}
    return next((said[cache] for cache in CACHES if cache in said), "")


def _of_match(
    facts: Facts,
    match: Match,
    places: Mapping[str, int],
    by_rank: Mapping[str, Mapping[Match, int]],
    reasons: Mapping[int, str],
    fixes: Mapping[str, Advice],
    operations: Mapping[int, list[Operation]],
) -> list[RankDifference]:
    function, where, _, number = match
    ids = [facts.id(place) for place in places.values()]
    named = f"`{function}` ({where})" if where else f"`{function}`"
    if len(places) < len(by_rank):
        missing = [rank for rank in by_rank if rank not in places]
        times = f" a {rank_runs.ordinal(number + 1)} time" if number else ""
        did, did_not = named_ranks(list(places)), named_ranks(missing)
        why = next((reasons[place] for place in places.values() if place in reasons), "")
        if number and (others := _of_earlier_programs(facts, match, places, by_rank)):
            return [_other_collectives(facts, match, places, others, why)]
        words = sentence(f"{did} compiled {named}{times}, {did_not} did not", why)
        fix = rank_cures.SAME.said() if number else rank_cures.CALLED.said(function=rests_named(f"`{function}`"))
        fix = next((fixes[id] for id in ids if fixes.get(id)), fix)
        return [RankDifference("compilation", function, ids, words, fix)]
    found = []
    collectives = {rank: collectives_of(facts, place) for rank, place in places.items()}
    if _differ(collectives):
        names = {rank: collective_names(schedule) for rank, schedule in collectives.items()}
        words = sentence(f"The ranks run different collectives in {named}: {_told(names)}")
        drawn = _lanes(names) if _differ(names) else []
        found.append(RankDifference("collectives", function, ids, words, rank_cures.HANG.said(), drawn))
    graph = _graph_difference(facts, places)
    if graph and not found:
        condition = rank_conditions.find(facts, places)
        words = sentence(f"In {named}, {graph}", condition.words if condition else "")
        fix = rank_cures.CONDITION.said(name=condition.name) if condition else rank_cures.SAME.said()
        found.append(RankDifference("graph", function, ids, words, fix))
    logged = {rank: operations[place] for rank, place in places.items() if place in operations}
    tensors = rank_runs.metadata_difference(logged) if len(logged) > 1 and not found else ""
    if tensors:
        found.append(
            RankDifference("tensor metadata", function, ids, sentence(f"In {named}, {tensors}"), rank_cures.SAME.said())
        )
    inputs = "" if found else _inputs_difference(facts, places)
    if inputs:
        told = sentence(f"In {named}, {inputs}, so the ranks compiled different programs")
        found.append(RankDifference("inputs", function, ids, told, rank_cures.SAME.said()))
    keys = {rank: _keys(facts, place) for rank, place in places.items()}
    if _differ(keys) and not graph and not tensors and not inputs and not _on_other_devices(facts, places):
        told = f"The ranks looked up different cache keys for {named}, although the code is the same"
        words = sentence(told, "`recording.cache_misses()` has the part that differs")
        found.append(RankDifference("cache key", function, ids, words, NO_ADVICE))
    return found


def _of_earlier_programs(
    facts: Facts, match: Match, places: Mapping[str, int], by_rank: Mapping[str, Mapping[Match, int]]
) -> dict[str, int]:
    """The programs that the other ranks run of a function that some ranks compiled again, if none of them runs the
    collectives of the new one."""
    new = {scheduled_names(facts, place) for place in places.values()}
    found = {}
    for rank, known in by_rank.items():
        if rank not in places:
            earlier = [place for one, place in known.items() if one[:3] == match[:3]]
            if not earlier or not new.isdisjoint(scheduled_names(facts, place) for place in earlier):
                return {}
            found[rank] = earlier[-1]
    return found


def _other_collectives(
    facts: Facts, match: Match, places: Mapping[str, int], others: Mapping[str, int], why: str
) -> RankDifference:
    """Some ranks compiled a function again, and the new program runs other collectives than that of the other ranks."""
    function, where, *_ = match
    names = {rank: scheduled_names(facts, place) for rank, place in [*places.items(), *others.items()]}
    named = f"`{function}` ({where})" if where else f"`{function}`"
    words = sentence(f"The ranks run different collectives in {named}: {_told(names)}", why)
    made = {one.place: one for one in recompiles.find(facts)}
    causes = [made[place].main.failure.fix.cures for place in places.values() if place in made]
    skips = any(guard_cures.TENSOR_OR_NONE in cures for cures in causes)
    fix = (rank_cures.SKIPPED if skips else rank_cures.HANG).said()
    ids = [facts.id(place) for place in places.values()]
    return RankDifference("collectives", function, ids, words, fix, _lanes(names))


def _told(names: Mapping[str, tuple[str, ...]]) -> str:
    """What each rank runs, those together that run the same."""
    return "; ".join(
        f"{ranks} {'run' if ranks.startswith('ranks') else 'runs'} {', '.join(f'`{n}`' for n in run) or 'none'}"
        for ranks, run in _alike(names).items()
    )


def scheduled_names(facts: Facts, place: int) -> tuple[str, ...]:
    """The collectives that a compilation runs, as Inductor scheduled them, or as the first logged graph has them."""
    if scheduled := collective_names(collectives_of(facts, place)):
        return scheduled
    for kind in ("aot_forward_graph", "aot_inference_graph", "dynamo_output_graph"):
        found = CALLED.findall(COMMENT.sub("", facts.text(facts.text_of(place, kind))))
        if found:
            return tuple(name for name in found if name != "wait_tensor")
    return ()


def _inputs_difference(facts: Facts, places: Mapping[str, int]) -> str:
    """The first property of an input, such as a size, that the guards require to have other values on other ranks."""
    guards = {rank: misses.required(facts, place) for rank, place in places.items()}
    for key in next(iter(guards.values())):
        if key[0] == "tensor" and all(key in held for held in guards.values()):
            values = {rank: (held[key].value,) for rank, held in guards.items()}
            if _differ(values):
                return f"`{key[1]}` is {listed([f'{one[0]} on {ranks}' for ranks, one in _alike(values).items()])}"
    return ""


def _graph_difference(facts: Facts, places: Mapping[str, int]) -> str:
    """The first graph of the pipeline that differs, and its first statement that does."""
    for kind, name in GRAPHS.items():
        texts = {rank: DEVICE.sub(r"\1", _graph(facts, place, kind)) for rank, place in places.items()}
        (first_rank, first), *others = texts.items()
        for rank, text in others:
            if not first or not text:
                continue
            before, after = first_difference(first, text)
            if before or after:
                shown = [f"`{short(code)}`" if code else "nothing there" for code in (before, after)]
                return f"{name} differs: {first_rank} has {shown[0]}, {rank} has {shown[1]}"
    return ""


def _on_other_devices(facts: Facts, places: Mapping[str, int]) -> bool:
    """Whether the graphs name devices of other numbers on other ranks, so that their cache keys have to differ."""
    texts = {rank: "\n".join(_graph(facts, place, kind) for kind in GRAPHS) for rank, place in places.items()}
    return _differ({rank: frozenset(match[0] for match in DEVICE.finditer(text)) for rank, text in texts.items()})


def _graph(facts: Facts, place: int, kind: str) -> str:
    logged = facts.text(facts.text_of(place, kind))
    recorded = None if logged else _recorded(facts, place, kind.removeprefix("aot_").removesuffix("_graph"))
    if recorded is None:
        return logged
    statements = (f"{node.name} = {call(node)}" for node in recorded.rows if node.op not in ("placeholder", "output"))
    return "\n".join((*statements, *(f"return ({node.args})" for node in recorded.rows if node.op == "output")))


def _recorded(facts: Facts, place: int, role: str) -> Graph | None:
    """A graph of our own pipeline. An inference has a forward too, which became its one graph."""
    is_inference = facts.data.compilations[place].kind == "inference"
    return facts.graph(place, role) if is_inference == (role == "inference") else None


def collectives_of(facts: Facts, place: int) -> tuple[str, ...]:
    schedules = facts.about(place, facts.data.collectives)
    if schedules:
        return tuple(facts.text(operation) for schedule in schedules for operation in schedule.operations)
    found = (_recorded(facts, place, role) for role in ("inference", "forward", "backward"))
    return tuple(node.target for graph in found if graph for node in graph.rows if COLLECTIVE in node.target)


def _keys(facts: Facts, place: int) -> tuple[str, ...]:
    return tuple(sorted(lookup.key for lookup in facts.about(place, facts.data.cache_lookups) if lookup.key))


def collective_names(operations: tuple[str, ...]) -> tuple[str, ...]:
    """The collectives' own names, without the waits for them."""
    names = (name.rpartition(COLLECTIVE)[2].removesuffix(".default") for name in operations)
    return tuple(name.rstrip("_") for name in names if name != "wait_tensor")


def _differ(values: Mapping[str, Hashable]) -> bool:
    return len(set(values.values())) > 1
