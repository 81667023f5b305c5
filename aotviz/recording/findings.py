"""The part of the wire format (events.py) that no compiler recorded: what was found in a recording, in words, and the
values that the user painted its nodes with."""

from __future__ import annotations

from aotviz.recording.frozen import Frozen


class InputSet(Frozen, frozen=True):
    """One of several sets of inputs that a function was compiled for."""

    name: str  # the user's
    compilation: str  # its id, "" if nothing was recorded
    error: str  # why it was not compiled, in words; "" if it was


class ComparedInputs(Frozen, frozen=True):
    """One function, compiled for several sets of inputs."""

    function: str
    sets: list[InputSet]
    sentences: list[str]  # one for each difference; `code` in backquotes


class Painting(Frozen, frozen=True):
    """A number or a category of the user's for each of some nodes, shown as the colour of these nodes."""

    compilation: str  # its id
    label: str  # the user's; one compilation has each label once
    unit: str  # of the numbers, "" if unknown
    note: str  # a remark to show with it, or ""
    groups: str  # what a closed module shows: "largest" | "sum" of its nodes
    names: list[str]  # of the nodes
    stages: list[str]  # one per name: the stage that it is of; "" means every stage
    graphs: list[str]  # one per name: the role of the graph that it is of; "" means every graph
    numbers: list[float]  # one per name; empty for categories
    texts: list[str]  # one per name: its category; empty for numbers
    stage: str  # where it is opened: the name of the stage
    graph: str  # the role of the graph
    node: str = ""  # the node that is selected, or ""


class RankLane(Frozen, frozen=True):
    """What some ranks run, in order."""

    ranks: str  # "rank 1", "ranks 0, 2 and 3"
    steps: list[str]
    before: int = 0  # steps left out before these, which are the same on all ranks
    after: int = 0  # steps left out after these


class RankDifference(Frozen, frozen=True):
    """One thing in which the ranks of a job differ."""

    kind: str  # "collectives", "execution order", "compilation", "graph", "tensor metadata", ...
    function: str  # "" for a difference that is not about one function
    ids: list[str]  # the compilations
    words: str
    fix: str
    lanes: list[RankLane] = []  # one for the ranks that run the same


class WhyCompiled(Frozen, frozen=True):
    """Why a function was compiled again, in words."""

    compilation: str  # its id
    words: str  # sentences; `code` in backquotes
    code: str  # the user's line that they are about, "" if unknown
    place: str  # where that line is: "model.py:17"
    fix: str  # what to do; "" if nothing
