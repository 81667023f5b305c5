"""What was read from logs, as the content of a Recording: tables at once, graphs and long texts on demand."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from aotviz.logs import aliasing, stages, whole_backwards
from aotviz.logs.printed.printed_graphs import PrintedGraphs
from aotviz.logs.texts import Texts
from aotviz.recording import numbers
from aotviz.recording.compilation import Compilation
from aotviz.recording.holders import Holder
from aotviz.recording.schema import (
    NONE,
    ArtifactRecord,
    CompilationData,
    GraphSnapshot,
    RecordingData,
    StageRecord,
    TensorDescription,
)

DYNAMO_ROLES = ("dynamo", "part", "export")  # values in these graphs have other names than in AOTAutograd's


class Contents(Holder):
    """The content of logs. `outline` is the recording without its graphs, stages and texts."""

    def __init__(self, outline: RecordingData, texts: Texts) -> None:
        self.outline = outline
        self.texts = texts
        self._artifacts: dict[int, list[ArtifactRecord]] = defaultdict(list)  # by compilation
        for artifact in outline.artifacts:
            self._artifacts[artifact.origin.compilation].append(artifact)
        self._tensors: dict[int, list[TensorDescription]] = defaultdict(list)  # by compilation
        for tensor in outline.tensors:
            self._tensors[tensor.origin.compilation].append(tensor)
        self._events: dict[int, list[int]] | None = None  # rows of the timeline, by compilation
        asked = Counter(lookup.origin.compilation for lookup in outline.cache_lookups)
        said = [len(self._artifacts[number]) + asked[number] for number in range(len(outline.compilations))]
        self._compilations = [
            Compilation(data, texts, partial(self._complete, number, data), revision=said[number])
            for number, data in enumerate(outline.compilations)
        ]

    @property
    def rows(self) -> tuple[RecordingData, Texts]:
        return self.outline, self.texts

    @property
    def data(self) -> RecordingData:
        """The whole recording, with every text and graph, for a file or a page."""
        compilations = [compilation.data for compilation in self._compilations]
        return replace(self.outline, compilations=compilations, strings=self.texts[:])

    def __iter__(self) -> Iterator[Compilation]:
        return iter(self._compilations)

    def _complete(self, number: int, outline: CompilationData) -> CompilationData:
        """A compilation with its stages, and its graphs, which are parsed from the texts that torch printed."""
        artifacts = self._artifacts[number]
        made, texts = stages.assemble(artifacts, self.texts, outline.attempts, outline.started_unix_ns)
        roles = {place: role for stage in made for role, place in stage.graphs.items()}
        reader = PrintedGraphs()
        graphs: list[GraphSnapshot] = []
        inner: dict[int, dict[str, int]] = {}  # index of a text -> path of each graph in it -> index of the graph
        for place, text in enumerate(texts):
            role = roles[place].rstrip(" 0123456789")
            family = "dynamo" if role in DYNAMO_ROLES else "aot"
            printed = reader.read(self.texts[text], role=role, family=family).graphs or {"": EMPTY}
            inner[place] = {path: len(graphs) + index for index, path in enumerate(printed)}
            graphs.extend(printed.values())
        data = replace(outline, graphs=graphs, values=reader.values, stack=NONE)
        data = numbers.changed(data, [*map(self.texts.add, reader.strings.texts), NONE])
        graph_texts = [texts[place] for place in inner for _ in inner[place]]
        made = self._told(number, [_with_inner(stage, inner) for stage in made], graphs)
        wrapper = stages.own_wrapper(reversed(artifacts), self.texts)
        data = replace(data, stages=made, stack=outline.stack, graph_texts=graph_texts, wrapper=wrapper)
        tensors = [tensor for tensor in self._tensors[number] if tensor.origin.attempt == outline.attempts - 1]
        data = aliasing.with_tables(data, tensors, self._metadata(number), self.texts)
        return whole_backwards.with_visits(data, self.texts)

    def _metadata(self, number: int) -> str:
        """The text of AOTAutograd's metadata of the call; "" if it was not logged."""
        for artifact in reversed(self._artifacts[number]):
            if artifact.name >= 0 and artifact.text >= 0 and self.texts[artifact.name] == aliasing.METADATA:
                return self.texts[artifact.text]
        return ""

    def _told(self, number: int, made: list[StageRecord], graphs: list[GraphSnapshot]) -> list[StageRecord]:
        """The stages with their elapsed times, from the timeline, and with summaries of what they changed."""
        elapsed = stages.elapsed_ns(self._timed(number))
        seen: dict[str, GraphSnapshot] = {}
        told = []
        for stage in made:
            now = {role: graphs[place] for role, place in stage.graphs.items()}
            told.append(replace(stages.described(stage, seen, now), elapsed_ns=elapsed.get(stage.name, 0)))
            seen |= now
        return told

    def _timed(self, number: int) -> Iterator[tuple[str, float]]:
        """(name, microseconds) of each event of a compilation."""
        events = self.outline.events
        if self._events is None:
            self._events = defaultdict(list)
            for row, compilation in enumerate(events.compilation):
                self._events[compilation].append(row)
        for row in self._events.get(number, ()):
            yield self.texts[events.name[row]], events.duration_us[row]


EMPTY = GraphSnapshot("", [], [], [], {}, [], [], [], [], "", {}, [])


def _with_inner(stage: StageRecord, inner: dict[int, dict[str, int]]) -> StageRecord:
    """The stage with its graphs renumbered, since a text may contain several: "forward", "forward.true_graph_0"."""
    graphs = {
        f"{role}.{path}" if path else role: number
        for role, place in stage.graphs.items()
        for path, number in inner[place].items()
    }
    return replace(stage, graphs=graphs)
