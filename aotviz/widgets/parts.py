"""A recording in parts, for a page that asks a kernel for what the user looks at.

A page that talks to a kernel should not wait for the whole recording to show one stage. So it first gets an index
(which compilations there are), then a compilation without its graphs (stages, facts, wrapper), and a graph or a stage's
texts when a view needs them. A part is gzip over msgpack, like a file. It contains the texts that it refers to, with
their numbers.

The records here are sent to the page, so `generate_types.py` writes them to TypeScript along with those of `schema.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import msgspec
from msgspec.structs import replace

from aotviz.explain import answers, peaks, plain_texts, steps
from aotviz.recording import numbers, spans
from aotviz.recording.compilation import Compilation
from aotviz.recording.files import GZIP
from aotviz.recording.findings import (
    ComparedInputs,
    OverviewRecord,
    Painting,
    PeakRecord,
    RankDifference,
    StepRecord,
    WhyCompiled,
)
from aotviz.recording.frozen import Frozen
from aotviz.recording.holders import Recorded
from aotviz.recording.schema import (
    FORMAT,
    NONE,
    VERSION,
    ArtifactRecord,
    CacheAnswer,
    CacheLookup,
    CompilationData,
    ErrorRecord,
    EventTable,
    GraphBreak,
    GraphSnapshot,
    GuardRecord,
    LogRecord,
    MetricsRecord,
    Origin,
    PlainText,
    RecordingData,
    ShapeRecord,
    Text,
    ValueRecord,
)
from aotviz.recording.sizes import graph_bytes

LEVEL = 4  # of gzip: between kernel and page, speed matters more than the last kilobyte


class PartError(LookupError):
    """The page asked for something that the recording does not have, or no longer has."""


class CompilationHead(Frozen, frozen=True):
    """What a list of compilations shows of one."""

    id: str  # unique within the recording
    name: str  # the function's or module's name
    kind: str  # "training" | "inference"; "" where a log doesn't say
    started_unix_ns: int  # 0 where a log doesn't say
    elapsed_ns: int  # of all stages that ran here; 0 where that is not known yet
    stages: int  # how many; 0 where that is not known yet
    nodes: int  # of the largest graph; 0 where that is not known yet
    compile_id: str  # Dynamo's, "" for our own
    attempts: int
    rank: int  # -1 where there is one process
    because: list[str]  # for each existing program, the reason it did not match
    options: dict[str, str]
    error: ErrorRecord | None
    revision: int  # changes when there is more to see; 0 when the compilation is complete
    frame: int = NONE  # the function, by a number that its compilations share; -1 if unknown
    cache: CacheAnswer | None = None  # what aotviz's cache said about it


class RecordingIndex(Frozen, frozen=True):
    """What a page must know before its reader has looked at anything."""

    format: str
    version: int
    producer: dict[str, str]
    dropped: int
    notes: list[str]
    compilations: list[CompilationHead]
    rows: dict[str, int] = {}  # kind of rows (see RowsPart) -> how many there are
    compared: ComparedInputs | None = None  # the sets of inputs, and how they differ
    paintings: list[Painting] = []


class TextTable(Frozen, frozen=True):
    """Some of a recording's texts: `texts[i]` is the text of number `numbers[i]`."""

    numbers: list[int]
    texts: list[str]


class CompilationPart(Frozen, frozen=True):
    """A compilation without its graphs, its values and what its stages' texts say (only their names are there)."""

    compilation: CompilationData
    graph_values: list[list[int]]  # per graph of the compilation, the value of each node
    graph_bytes: list[int]  # per graph, what its operators make (sizes.py); -1 where a size is symbolic
    code_lines: list[dict[str, int]]  # per stage, the length of each of its texts
    cache_lookups: list[CacheLookup]  # that it made, without what their keys were made of
    text_table: TextTable


class GraphPart(Frozen, frozen=True):
    """One graph, with the values of its nodes: `values[i]` has the number `value_numbers[i]`."""

    graph: GraphSnapshot
    value_numbers: list[int]
    values: list[ValueRecord]
    text_table: TextTable


class CodePart(Frozen, frozen=True):
    """The texts of one stage."""

    code: dict[str, str]


class PaintingsPart(Frozen, frozen=True):
    """The paintings alone: what a notebook keeps of those that were added after a recording was shown."""

    paintings: list[Painting]


class StageSpan(Frozen, array_like=True, frozen=True):
    """When a stage of aotviz's own pipeline ran here."""

    name: str
    started_ns: int  # since the compilation began
    elapsed_ns: int
    late: bool  # after the compilation had returned


class RowsPart(Frozen, frozen=True):
    """The rows of one kind, of all compilations. The lists of other kinds are empty.

    The kinds are "timeline" (`own`, `events`, `logs`, and what is drawn as marks), "stacks" (with `metrics`), "ranks"
    (`rank_differences`), "why", "overview", "peak ID" (`peaks`, of the compilation with that id), "step", and the
    names of the lists `guards`, `metrics`, `shapes`, `graph_breaks`, `cache_lookups` and `links`.
    """

    compilations: list[str]  # the ids of the compilations, by the number that the rows have
    text_table: TextTable
    own: dict[str, list[StageSpan]] = {}  # id of a compilation of aotviz's own pipeline -> its stages that ran here
    logs: list[LogRecord] = []  # without bad lines
    events: EventTable = EventTable([], [], [], [], [], [], [], [], [])  # without arguments
    restarts: list[Origin] = []  # where each later attempt of a compilation begins
    stacks: list[Text] = []  # per compilation, the user's frames when it began
    guards: list[GuardRecord] = []
    metrics: list[MetricsRecord] = []
    shapes: list[ShapeRecord] = []
    graph_breaks: list[GraphBreak] = []
    cache_lookups: list[CacheLookup] = []  # without what their keys were made of
    links: list[ArtifactRecord] = []
    rank_differences: list[RankDifference] = []
    why: list[WhyCompiled] = []
    plain: list[PlainText] = []  # what is seen in place of texts of these rows
    overview: OverviewRecord | None = None
    peaks: list[PeakRecord] = []
    step: StepRecord | None = None


def index(recording: Recorded) -> RecordingIndex:
    """The list of compilations, and the facts about the recording as a whole."""
    return RecordingIndex(
        format=FORMAT,
        version=VERSION,
        producer=recording.data_producer,
        dropped=recording.dropped,
        notes=recording.notes,
        compilations=[head(compilation) for compilation in recording.compilations],
        rows=_counts(recording),
        compared=recording.rows[0].compared,
        paintings=recording.rows[0].paintings,
    )


def head(compilation: Compilation) -> CompilationHead:
    """The entry of a compilation in the list."""
    data = compilation.outline
    return CompilationHead(
        id=data.id,
        name=data.name,
        kind=data.kind,
        started_unix_ns=data.started_unix_ns,
        elapsed_ns=sum(stage.elapsed_ns for stage in data.stages if not stage.replayed),
        stages=len(data.stages),
        nodes=compilation.nodes,
        compile_id=data.compile_id,
        frame=data.frame,
        attempts=data.attempts,
        rank=data.rank,
        because=data.because,
        options=data.options,
        error=data.error and answers.plain_error(data.error),
        cache=data.cache,
        revision=compilation.revision,
    )


def compilation(recording: Recorded, compilation_id: str) -> CompilationPart:
    """A compilation's stages and facts. Raises PartError."""
    found = _find(recording, compilation_id)
    return _outline(found, _cache_lookups(recording, found))


def what_if(
    recording: Recorded,
    compilation_id: str,
    partition_fn: str,
    memory_budget: float,
    on_stage: Callable[[str], None] | None = None,
) -> CompilationPart:
    """A compilation's facts after another partition. Raises PartError, and what `Compilation.what_if` raises."""
    return _outline(_find(recording, compilation_id).what_if(partition_fn or None, memory_budget, on_stage), [])


def _cache_lookups(recording: Recorded, found: Compilation) -> list[CacheLookup]:
    """A compilation's look-ups in torch's caches, in order of time, without what the keys were made of."""
    rows, strings = recording.rows
    if strings is not found.strings:  # our own compilation; or the log has grown since, and the page will ask again
        return []
    position = next((i for i, data in enumerate(rows.compilations) if data.id == found.id), None)
    mine = [lookup for lookup in rows.cache_lookups if lookup.origin.compilation == position]
    return [replace(lookup, components=[], component_hashes=[]) for lookup in mine]


def _outline(found: Compilation, lookups: list[CacheLookup]) -> CompilationPart:
    data = found.data
    small = replace(
        data,
        stages=[replace(stage, code=dict.fromkeys(stage.code, "")) for stage in data.stages],
        graphs=[],
        values=[],
        graph_texts=[],
        error=data.error and answers.plain_error(data.error),
    )
    return CompilationPart(
        compilation=small,
        graph_values=[graph.value for graph in data.graphs],
        graph_bytes=[graph_bytes(graph, data.values, found.strings) for graph in data.graphs],
        code_lines=[{name: _lines(text) for name, text in stage.code.items()} for stage in data.stages],
        cache_lookups=lookups,
        text_table=_texts(found.strings, chain(numbers.of(small), *map(numbers.of, lookups))),
    )


def _lines(text: str) -> int:
    """The number of lines in a text, as the page counts them."""
    return text.count("\n") + (text[-1:] != "\n")


def graph(recording: Recorded, compilation_id: str, number: int) -> GraphPart:
    """One graph of a compilation. Raises PartError."""
    found = _find(recording, compilation_id)
    graphs, values = found.data.graphs, found.data.values
    if not 0 <= number < len(graphs):
        raise PartError(f"compilation {compilation_id} has {len(graphs)} graphs; there is no graph {number}")
    snapshot = graphs[number]
    wanted = _with_parts(values, snapshot.value)
    chosen = [values[i] for i in wanted]
    texts = chain(numbers.of(snapshot), *map(numbers.of, chosen))
    return GraphPart(snapshot, wanted, chosen, _texts(found.strings, texts))


def code(recording: Recorded, compilation_id: str, stage: int) -> CodePart:
    """The texts of one stage. Raises PartError."""
    stages = _find(recording, compilation_id).data.stages
    if not 0 <= stage < len(stages):
        raise PartError(f"compilation {compilation_id} has {len(stages)} stages; there is no stage {stage}")
    return CodePart(stages[stage].code)


LISTS = ("guards", "metrics", "shapes", "graph_breaks", "cache_lookups")  # of RecordingData


def _of_marks(row: MetricsRecord) -> MetricsRecord:
    """What a summary says of failures and restarts."""
    return replace(row, numbers={}, texts={name: row.texts[name] for name in (spans.RESTARTS,) if name in row.texts})


def rows(recording: Recorded, kind: str) -> RowsPart:
    """The rows of one kind (see RowsPart). Raises PartError."""
    data, strings = recording.listed
    part = RowsPart([found.id for found in data.compilations], TextTable([], []))
    if kind == "timeline":
        lookups = [lookup for lookup in data.cache_lookups if lookup.cache != "aotviz"]  # its answer is in the index
        part = replace(
            part,
            own=_own(recording),
            logs=[replace(log, bad=[]) for log in data.logs],
            events=replace(data.events, args=[NONE] * len(data.events.name)),
            restarts=spans.restarts(data),
            graph_breaks=[replace(found, stack=NONE) for found in data.graph_breaks],
            cache_lookups=_short(lookups),
            metrics=[one for one in map(_of_marks, data.metrics) if one.fail_type or one.texts],
        )
    elif kind == "stacks":
        metrics = [replace(row, texts={}) for row in data.metrics]
        part = replace(part, stacks=[found.stack for found in data.compilations], metrics=metrics)
    elif kind == "ranks":
        part = replace(part, rank_differences=_rank_differences(recording))
    elif kind == "why":
        part = replace(part, why=answers.findings(recording).why)
    elif kind == "overview":
        part = replace(part, overview=answers.findings(recording).overview)
    elif kind.startswith("peak "):
        part = replace(part, peaks=peaks.of_one(recording, kind.removeprefix("peak ")))
    elif kind == "step":
        part = replace(part, step=steps.of(recording))
    elif kind == "links":
        part = replace(part, links=_links(data, strings))
    elif kind in LISTS:
        found = getattr(data, kind)
        part = replace(part, **{kind: _short(found) if kind == "cache_lookups" else found})
    else:
        raise PartError(f"there are no rows of the kind {kind}")
    part = replace(part, plain=plain_texts.find(part, strings))
    return replace(part, text_table=_texts(strings, numbers.of(part)))


def _short(lookups: Iterable[CacheLookup]) -> list[CacheLookup]:
    """Lookups without what their keys were made of."""
    return [replace(lookup, components=[], component_hashes=[], differs=[]) for lookup in lookups]


def _own(recording: Recorded) -> dict[str, list[StageSpan]]:
    """When the stages of aotviz's own pipeline ran."""
    return {
        found.id: [
            StageSpan(stage.name, stage.started_ns, stage.elapsed_ns, stage.late)
            for stage in found.outline.stages
            if not stage.replayed and stage.elapsed_ns > 0
        ]
        for found in recording.compilations
        if found.outline.log == NONE and found.outline.started_unix_ns > 0
    }


def _links(data: RecordingData, strings: Sequence[str]) -> list[ArtifactRecord]:
    return [artifact for artifact in data.artifacts if artifact.type >= 0 and strings[artifact.type] == "link"]


def _rank_differences(recording: Recorded) -> list[RankDifference]:
    of_a_job = len({found.outline.rank for found in recording.compilations}) > 1
    return answers.findings(recording).rank_differences if of_a_job else []


def _counts(recording: Recorded) -> dict[str, int]:
    """How many rows there are of each kind. Of aotviz's own compilations, their rows are counted once a revision."""
    data, strings = recording.rows
    outlines = [found.outline for found in recording.compilations]
    added = [] if data.logs else [found.row_counts for found in recording.compilations]  # a watch logs them too
    counts = {name: len(getattr(data, name)) + sum(one.get(name, 0) for one in added) for name in LISTS}
    counts["timeline"] = len(data.events.name) + sum(one.log == NONE and one.started_unix_ns > 0 for one in outlines)
    counts["stacks"] = sum(one.stack >= 0 for one in outlines)
    counts["links"] = len(_links(data, strings))
    counts["ranks"] = len(_rank_differences(recording))
    counts["overview"] = 1
    counts["step"] = int(steps.is_there(recording))
    return counts


def packed(recording: Recorded, what: object, on_stage: Callable[[str], None] | None = None) -> bytes:
    """The part that a page asks for, packed. Raises ValueError for an unknown request, and the errors of the part.

    `what` is ["index"], ["compilation", id], ["graph", id, number], ["code", id, stage number], ["rows", kind], or
    another partition of a compilation's joint graph: ["what if", id, partitioner's name or "", memory budget].
    """
    match what:
        case ["index"]:
            return pack(index(recording))
        case ["compilation", str(of)]:
            return pack(compilation(recording, of))
        case ["graph", str(of), int(number)]:
            return pack(graph(recording, of, number))
        case ["code", str(of), int(stage)]:
            return pack(code(recording, of, stage))
        case ["rows", str(kind)]:
            return pack(rows(recording, kind))
        case ["what if", str(of), str(partition_fn), float() | int() as budget]:
            return pack(what_if(recording, of, partition_fn, budget, on_stage))
    raise ValueError(f"the page asked for {what!r}, which is neither a part of the recording nor a bundle")


def pack(part: msgspec.Struct) -> bytes:
    """The part as gzip(msgpack), the form in which it is sent to the page."""
    return zlib.compress(msgspec.msgpack.encode(part), LEVEL, GZIP)


def _find(recording: Recorded, compilation_id: str) -> Compilation:
    for found in recording.compilations:
        if found.id == compilation_id:
            return found
    raise PartError(
        f"compilation {compilation_id} is no longer in the recording: newer ones replaced it. Run the cell again."
    )


def _with_parts(values: Sequence[ValueRecord], first: Iterable[int]) -> list[int]:
    """The numbers in `first`, and the numbers of all values that these contain, sorted."""
    found: set[int] = set()
    pending = list(first)
    while pending:
        number = pending.pop()
        if number >= 0 and number not in found:
            found.add(number)
            pending += values[number].parts
    return sorted(found)


def _texts(strings: Sequence[str], wanted: Iterable[int]) -> TextTable:
    chosen = sorted({number for number in wanted if number >= 0})
    return TextTable(chosen, [strings[number] for number in chosen])
