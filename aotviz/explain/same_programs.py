"""Functions that became one program of Inductor: their graphs have the same key in the FX graph cache.

That key has no names of inputs and values, AOTAutograd's has. So where two graphs differ only in names, the second one
misses AOTAutograd's cache, is traced again, and then finds its kernels in the FX graph cache.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from aotviz.explain.explanation import Point, counted, sentence
from aotviz.explain.rows import Facts
from aotviz.recording.schema import CacheLookup

MOST_TOLD = 3
PARAMETER = re.compile(r'\b(\w+): "')
PARAMETERS = re.compile(r"^ *def forward\(self, (?P<all>.*)\):", re.MULTILINE)
VALUE = re.compile(r'^ *(\w+)(?:: "[^"]*")? = ', re.MULTILINE)
ALIAS = re.compile(r"^ *(\w+) = (\w+)$", re.MULTILINE)
COMMENT = re.compile(r"^ *#.*\n|^ *\n", re.MULTILINE)
NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


def found(facts: Facts, only: int | None = None) -> Iterator[Point]:
    """One remark for each later function whose kernels those of an earlier one were."""
    firsts: dict[tuple[int, str], CacheLookup] = {}  # (log, key) -> the first look-up
    twins: dict[tuple[int, int], list[CacheLookup]] = defaultdict(list)  # (first, later compilation) -> its look-ups
    for lookup in sorted(facts.data.cache_lookups, key=lambda one: one.origin.unix_ns):
        place = lookup.origin.compilation
        if lookup.cache == "fx" and lookup.key and place >= 0:
            first = firsts.setdefault((lookup.origin.log, lookup.key), lookup).origin.compilation
            if _function(facts, first) != _function(facts, place):
                twins[first, place].append(lookup)
    told = [pair for pair in twins if only in (None, pair[1])]
    for first, place in told[:MOST_TOLD]:
        yield Point(_told(facts, first, place, twins[first, place]), ids=(facts.id(first), facts.id(place)))
    if len(told) > MOST_TOLD:
        others = counted(len(told) - MOST_TOLD, "other compilation")
        yield Point(sentence(f"So it is with {others}, whose keys in the FX graph cache earlier functions have too"))


def _function(facts: Facts, place: int) -> str:
    return facts.frame_place(place) or facts.function(place)


def _told(facts: Facts, first: int, place: int, lookups: list[CacheLookup]) -> str:
    earlier, later = map(facts.called, (first, place))
    texts = [facts.text(facts.text_of(one, "dynamo_output_graph")) for one in (first, place)]
    names = names_apart(*texts)
    graph = (
        f"The graph of {later} is that of {earlier}"
        if names
        else f"Inductor got the same graph of {later} as of {earlier}"
    )
    but = f" but for the names of its {names}" if names else ""
    hit = all(one.outcome == "hit" for one in lookups)
    entries = counted(len(lookups), "entry", "entries")
    told = f"{graph}{but}: {entries} of the FX graph cache{', so its kernels were not built again' if hit else ''}"
    missed = {one.outcome for one in facts.about(place, facts.data.cache_lookups) if one.cache == "aotautograd"}
    traced = "AOTAutograd traced it again, because the key of its cache has the names" if missed == {"miss"} else ""
    return sentence(told, traced if names else "")


def names_apart(before: str, after: str) -> str:
    """What two printed graphs name differently: "inputs", or "inputs and values"; "" if more differs, or nothing.

    >>> graph = '''
    ... def forward(self, {0}: "f32[8]"):
    ...     {1}: "f32[8]" = {0} * 2
    ...     return ({1},)
    ... '''
    >>> names_apart(graph.format("x", "mul"), graph.format("a", "mul"))
    'inputs'
    >>> names_apart(graph.format("x", "mul"), graph.format("a", "y"))
    'inputs and values'
    >>> names_apart(graph.format("x", "mul"), graph.format("x", "mul").replace("2", "3"))
    ''
    """
    graphs = [COMMENT.sub("", text + "\n") for text in (before, after)]
    inputs = [_inputs(graph) for graph in graphs]
    values = [VALUE.findall(graph) for graph in graphs]
    if graphs[0] != graphs[1] and _numbered(graphs[0], inputs[0]) == _numbered(graphs[1], inputs[1]):
        return "inputs"
    if _numbered(graphs[0], inputs[0] + values[0]) != _numbered(graphs[1], inputs[1] + values[1]):
        return ""
    return "inputs and values" if inputs[0] != inputs[1] else "values" if values[0] != values[1] else ""


def _inputs(graph: str) -> list[str]:
    """The names of the parameters, and those that Dynamo gives to them in the first lines."""
    parameters = [name for line in PARAMETERS.findall(graph) for name in PARAMETER.findall(line)]
    return [*parameters, *(name for name, of in ALIAS.findall(graph) if of in parameters)]


def _numbered(graph: str, names: list[str]) -> str:
    """The graph with numbers in place of these names."""
    number = {name: f"%{i}" for i, name in enumerate(dict.fromkeys(names))}
    return NAME.sub(lambda match: number.get(match[0], match[0]), graph)
