"""Where Dynamo analysed a function again from its first line, and what that cost.

It does so when it learns something too late: that the graph must end early, or that a value may not be a constant.
Restarts at a graph break are told together, because each graph break is explained by itself.
"""

from __future__ import annotations

import re
from collections import defaultdict

from aotviz.explain import graph_breaks, misses
from aotviz.explain.cures import break_cures
from aotviz.explain.cures.registry import NO_ADVICE
from aotviz.explain.explanation import Point, counted, seconds, sentence
from aotviz.explain.rows import Facts
from aotviz.recording import spans
from aotviz.recording.schema import MetricsRecord

LOST = ("dynamo_compile_time_before_restart_us", "dynamo_time_before_restart_s")  # the best known first
MOST_NAMED = 3
RAISED = re.compile(r"<class '(?:.*\.)?(?P<name>\w+)'>")
LEARNT = {
    "TensorifyScalarRestartAnalysis": "a number that it had made a symbol has to be a constant",
}


def explain_all(facts: Facts, only: int | None = None) -> list[Point]:
    """One point for the restarts at graph breaks and one for each other reason, the costliest first."""
    met: dict[str, list[int]] = defaultdict(list)  # reason -> compilations, once for each restart
    lost: dict[str, float] = defaultdict(float)
    for record in facts.data.metrics:
        place = record.origin.compilation
        reasons = spans.restart_reasons(facts.text(record.texts.get(spans.RESTARTS, -1)))
        if place < 0 or not reasons or only not in (None, place):
            continue
        spent = _lost(record)
        broken = bool(facts.about(place, facts.data.graph_breaks))
        for reason in reasons:
            said = "" if broken else _in_words(" ".join(reason.partition("\n")[0].split()))
            met[said].append(place)
            lost[said] += spent / len(reasons)  # the log has one time for all restarts of a compilation
    meant = {id for one in graph_breaks.find(facts) if one.is_meant for id in one.compilations}
    mended = {id for one in graph_breaks.find(facts) if one.mendable for id in one.compilations}
    points = []
    for reason in sorted(met, key=lambda reason: -lost[reason]):
        names = [f"`{name}`" for name in dict.fromkeys(map(facts.function, met[reason]))]
        more = f" and {counted(len(names) - MOST_NAMED, 'other function')}" if len(names) > MOST_NAMED else ""
        told = f"Dynamo analysed {', '.join(names[:MOST_NAMED])}{more} again from the first line"
        often = counted(len(met[reason]), "time")
        cost = (
            f"what it had done before took {seconds(lost[reason])}"
            if lost[reason]
            else f"the {facts.source} does not time it"
        )
        why = "at a graph break that it had not expected" if not reason else f"because: {reason}"
        where = misses.users_place(facts, met[reason][0]) if len(names) == 1 else ""
        ids = tuple(map(facts.id, met[reason]))
        if not reason and meant - mended >= {*ids}:
            continue  # at a break that is not to be mended
        mendable = not reason and not mended.isdisjoint(ids)
        fix = break_cures.RESTARTS.said() if mendable else NO_ADVICE
        spent = lost[reason] if reason or mendable else 0.0
        text = sentence(f"{told} ({often}; {cost}) {why}")
        points.append(Point(text, "", where, fix, seconds=spent, kind="restart", title=f"{told} {why}", ids=ids))
    return points


def _in_words(reason: str) -> str:
    """What Dynamo learnt too late.

    >>> _in_words("<class 'torch._dynamo.exc.TensorifyScalarRestartAnalysis'>"), _in_words("<class 'a.Later'>")
    ('a number that it had made a symbol has to be a constant', 'Later')
    """
    if (raised := RAISED.fullmatch(reason)) is None:
        return reason
    return LEARNT.get(raised["name"], raised["name"])


def told(text: str) -> str:
    """The reasons of a compilation's restarts, from torch's text, in words. Torch does not keep their order.

    >>> told('["a new size", "it differs"]')
    'a new size; or: it differs'
    """
    found = spans.restart_reasons(text)
    words = (graph_breaks.in_words(one) if graph_breaks.EXPLAINED.search(one) else _in_words(one) for one in found)
    return "; or: ".join(said.partition("\n")[0].rstrip(".") for said in words)


def lost(facts: Facts) -> dict[str, float]:
    """The seconds that each compilation's restarts cost, by its id."""
    found: dict[str, float] = defaultdict(float)
    for record in facts.data.metrics:
        if record.origin.compilation >= 0:
            found[facts.id(record.origin.compilation)] += _lost(record)
    return found


def _lost(record: MetricsRecord) -> float:
    times = ((record.numbers.get(name) or 0) / (1e6 if name.endswith("_us") else 1) for name in LOST)
    return next((time for time in times if time), 0.0)
