"""What differs between the ranks of a job: compilations, graphs, cache keys, and the collectives that they run.

Ranks that compile different programs wait for one another, and ranks whose programs run different collectives hang.
Compilations are matched by their function and by how often it was compiled before. Compile ids do not match: they
count all functions, so one extra function on a rank shifts them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotviz.explain import explained_tables, recompiles
from aotviz.explain.explanation import Explanation, Point, counted, sentence
from aotviz.explain.key_parts import first_difference, short
from aotviz.explain.rows import Facts
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
HANG = (
    "Ranks that do not run the same collectives in the same order hang or mix up their data. Make the "
    "condition that selects them the same on all ranks, or move it out of the compiled function."
)
SAME = "Give all ranks inputs with the same properties, or mark what varies as dynamic before the first call."

COLLECTIVE = "_c10d_functional."
DYNAMOS = re.compile(r" \[(\d+)/\d+\]$")  # the compile id behind the name in a recording of our own

Match = tuple[str, str, int, int]  # function, its place, index among those with both, earlier compilations of it


@dataclass(frozen=True)
class RankDifference:
    """One thing in which ranks differ."""

    kind: str  # "collectives", "compilation", "graph" or "cache key"
    function: str
    ids: tuple[str, ...]  # the compilations, as the recording names them
    words: str
    fix: str


def find(facts: Facts) -> list[RankDifference]:
    """All differences, the dangerous ones first."""
    by_rank = _matched(facts)
    if len(by_rank) < 2:
        return []
    reasons = {recompile.place: recompile.why for recompile in recompiles.find(facts)}
    matches = list(dict.fromkeys(match for places in by_rank.values() for match in places))
    found = []
    for match in matches:
        places = {rank: known[match] for rank, known in by_rank.items() if match in known}
        found.extend(_of_match(facts, match, places, list(by_rank), reasons))
    order = ("collectives", "compilation", "graph", "cache key")
    return sorted(found, key=lambda difference: order.index(difference.kind))


COLUMNS: explained_tables.Columns = {
    "kind": ("str", lambda one: one.kind),
    "function": ("str", lambda one: one.function),
    "compilations": ("object", lambda one: one.ids),
    "why": ("str", lambda one: one.words),
    "fix": ("str", lambda one: one.fix),
}


def frame(facts: Facts) -> ExplainedTable:
    """One row for each difference."""
    return explained_tables.table(COLUMNS, find(facts), marked=("why",))


def explain_all(facts: Facts) -> Explanation:
    ranks = len(_matched(facts))
    if ranks < 2:
        return Explanation("There is only one rank.", ())
    found = find(facts)
    if not found:
        return Explanation(f"The {ranks} ranks compiled the same programs.", ())
    return Explanation(
        f"{counted(ranks, 'rank')} differ in {counted(len(found), 'thing')}",
        tuple(Point(one.words, fix=one.fix) for one in found),
    )


def _matched(facts: Facts) -> dict[str, dict[Match, int]]:
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


def _of_match(
    facts: Facts, match: Match, places: Mapping[str, int], ranks: list[str], reasons: Mapping[int, str]
) -> list[RankDifference]:
    function, where, _, number = match
    ids = tuple(facts.id(place) for place in places.values())
    named = f"`{function}` ({where})" if where else f"`{function}`"
    if len(places) < len(ranks):
        missing = [rank for rank in ranks if rank not in places]
        ordinal = {2: "second", 3: "third"}.get(number + 1, f"{number + 1}th")
        times = f" a {ordinal} time" if number else ""
        did, did_not = _listed(list(places)), _listed(missing)
        why = next((reasons[place] for place in places.values() if place in reasons), "")
        words = sentence(f"{did} compiled {named}{times}, {did_not} did not", why)
        return [RankDifference("compilation", function, ids, words, SAME)]
    found = []
    collectives = {rank: _collectives(facts, place) for rank, place in places.items()}
    if _differ(collectives):
        told = "; ".join(f"{rank} runs {_operations(operations)}" for rank, operations in collectives.items())
        words = sentence(f"The ranks run different collectives in {named}: {told}")
        found.append(RankDifference("collectives", function, ids, words, HANG))
    graph = _graph_difference(facts, places)
    if graph and not found:
        found.append(RankDifference("graph", function, ids, sentence(f"In {named}, {graph}"), SAME))
    keys = {rank: _keys(facts, place) for rank, place in places.items()}
    if _differ(keys) and not graph:
        words = sentence(f"The ranks looked up different cache keys for {named}, although the code is the same")
        fix = "See `recording.cache_misses()` for the part of the key that differs."
        found.append(RankDifference("cache key", function, ids, words, fix))
    return found


def _graph_difference(facts: Facts, places: Mapping[str, int]) -> str:
    """The first graph of the pipeline that differs, and its first statement that does."""
    for kind, name in GRAPHS.items():
        texts = {rank: _graph(facts, place, kind) for rank, place in places.items()}
        (first_rank, first), *others = texts.items()
        for rank, text in others:
            if not first or not text:
                continue
            before, after = first_difference(first, text)
            if before or after:
                shown = [f"`{short(code)}`" if code else "nothing there" for code in (before, after)]
                return f"{name} differs: {first_rank} has {shown[0]}, {rank} has {shown[1]}"
    return ""


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


def _collectives(facts: Facts, place: int) -> tuple[str, ...]:
    schedules = facts.about(place, facts.data.collectives)
    if schedules:
        return tuple(facts.text(operation) for schedule in schedules for operation in schedule.operations)
    found = (_recorded(facts, place, role) for role in ("inference", "forward", "backward"))
    return tuple(node.target for graph in found if graph for node in graph.rows if COLLECTIVE in node.target)


def _keys(facts: Facts, place: int) -> tuple[str, ...]:
    return tuple(sorted(lookup.key for lookup in facts.about(place, facts.data.cache_lookups) if lookup.key))


def _operations(operations: tuple[str, ...]) -> str:
    names = [name.rpartition(COLLECTIVE)[2].removesuffix(".default") for name in operations]
    names = [name.rstrip("_") for name in names if name != "wait_tensor"]
    return ", ".join(f"`{name}`" for name in names) or "none"


def _differ(values: Mapping[str, Hashable]) -> bool:
    return len(set(values.values())) > 1


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
