"""The part of the wire format (schema.py) that no compiler recorded: what was found in a recording, in words, and the
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


class PeakChange(Frozen, frozen=True):
    """A change that would lower the peak of a compilation (recording/peak_changes.py)."""

    kind: str  # "recompute" | "checkpoint" | "reorder" | "let go" | "keep the cast"
    what: str  # a sentence; `code` in backquotes
    saves: int  # bytes, of the peak
    peak: int  # bytes, with the change
    at: str  # the node at that peak
    recompute_ms: float  # what the backward runs again, estimated
    source: str  # the line of the largest value that it is about, or ""
    values: list[str]  # the nodes that make these values


class PeakRecord(Frozen, frozen=True):
    """What would lower the peak of a compilation, and what it keeps for the backward beside eager."""

    compilation: str  # its id
    peak: int  # bytes, as recorded
    changes: list[PeakChange]  # the best first
    beside_eager: list[str]  # sentences (recording/beside_eager.py); empty if there is no backward
    inductor: list[str] = []  # sentences (recording/inductor_memory.py); empty if Inductor did not compile it
    device: str = ""  # whose memory it is; "" where all of it is on one


class StepGraph(Frozen, frozen=True):
    """A graph that runs in a training step."""

    phase: str  # "forward" | "backward" | "step"
    compilation: str  # its id
    stage: str
    role: str


class StepNode(Frozen, array_like=True, frozen=True):
    """A node that runs in a training step, or makes a value of it. Its texts are numbers in `StepRecord.texts`."""

    graph: int  # in `StepRecord.graphs`
    index: int  # in that graph
    op: str  # one letter, as in GraphSnapshot
    name: int
    target: int
    descriptor: int
    module: int
    file: int  # of the user's line
    line: int
    code: int
    checkpoint: int = -1  # its tag in a checkpoint, in words


class StepHolder(Frozen, array_like=True, frozen=True):
    """A storage of a training step, from the moment at which it is made to the last that holds it."""

    maker: int  # in `StepRecord.nodes`
    kind: int  # a text, as the rest without a remark
    nbytes: int
    dtype: int
    shape: list[int | str]
    made_at: int  # a moment
    held_until: int  # a moment
    held_by: int
    device: int = -1


class StepRecord(Frozen, frozen=True):
    """The planned memory of a training step that was compiled in pieces (recording/step_memory.py)."""

    texts: list[str]
    graphs: list[StepGraph]
    nodes: list[StepNode]
    moments: list[int]  # for each, the node in `nodes` that runs
    holders: list[StepHolder]


class RankLane(Frozen, frozen=True):
    """What some ranks run, in order."""

    ranks: str  # "rank 1", "ranks 0, 2 and 3"
    steps: list[str]
    before: int = 0  # steps left out before these, which are the same on all ranks
    after: int = 0  # steps left out after these


class CauseRecord(Frozen, frozen=True):
    """One thing to look at, in the order of `explain`."""

    kind: str  # "recompile" | "graph break" | "restart" | "cache" | "failed" | "eager" | "ranks" | "export"
    # | "CUDA graph"
    title: str  # what it is, in some words; `code` in backquotes
    text: str  # all that is known of it
    code: str  # the user's line, or ""
    place: str  # where it is: "model.py:17", or ""
    fix: str  # what to do, or ""
    seconds: float  # what it cost, 0 if that is not timed
    failed: bool  # something failed, runs in eager since, or may hang
    ids: list[str]  # the compilations that it is about
    followed: list[str]  # what came of it: cache misses, restarts


class TimeShare(Frozen, frozen=True):
    """A part of the time that compiling took."""

    name: str
    seconds: float


class FunctionRecord(Frozen, frozen=True):
    """One function, with all its compilations; or what Dynamo made of its rest after a graph break."""

    name: str
    place: str  # "model.py:17", or ""
    after: str  # "" | "after line 8": the rest of the function before it in the list
    ids: list[str]  # of the compilations, in order
    again: int  # recompiles among them
    seconds: float  # 0 if not timed
    nodes: int  # of the largest graph of the last compilation; -1 if unknown
    kept_bytes: int  # for the backward, of the last compilation; -1 if unknown
    aliases: str  # inputs that are written, and results that are views, of the last compilation; "" if none is known
    in_eager: str  # why it ran in eager, or ""


class TimeFrame(Frozen, frozen=True):
    """A frame of the flame graph of the compile time (explain/flame.py), in front of those in it."""

    name: str  # a module's, `h.*` for several equal ones; a function's; or a line
    depth: int
    seconds: float  # of all in it
    kind: str  # the module's class, or ""
    place: str  # of a line: "model.py:17"
    code: str  # of a line
    ids: list[str]  # the compilations


class OverviewRecord(Frozen, frozen=True):
    """What a person sees first of a recording (explain/overview.py)."""

    headline: str
    healthy: bool  # nothing failed, was compiled again or ended a graph
    seconds: float  # that compiling took, 0 if not timed
    times: list[TimeShare]  # they add up to `seconds`
    causes: list[CauseRecord]
    functions: list[FunctionRecord]
    remarks: list[str]
    frames: list[TimeFrame] = []  # shown by the timeline


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
