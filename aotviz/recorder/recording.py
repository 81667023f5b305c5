"""Reading a recording: the live one of this process, or a file of somebody else's.

Both read alike, and neither needs torch: a recording made on a training cluster opens on a laptop. Tables are pandas
DataFrames, graphs are `Graph` objects, and the whole shows itself in a notebook or prints itself in a terminal.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from aotviz.recorder import files, tables, terminal
from aotviz.recorder.diff import diff
from aotviz.recorder.events import CompilationData, RecordingData, StageRecord, WrapperRecord
from aotviz.recorder.files import RecordingError
from aotviz.recorder.graphs import Graph
from aotviz.recorder.merging import merge
from aotviz.recorder.store import Store
from aotviz.recorder.strings import clean

if TYPE_CHECKING:
    import pandas as pd

MOST_UNPACKED = 4  # compilations of a live recording that stay unpacked for the next question


class Compilation:
    """One function's way through the pipeline.

    >>> compilation = aotviz.load("demo.aotviz")[0]  # doctest: +SKIP
    >>> compilation.stages[["stage", "elapsed_ms", "summary"]]  # doctest: +SKIP
    >>> print(compilation.graph("forward"))  # doctest: +SKIP
    """

    def __init__(self, data: CompilationData, strings: list[str]) -> None:
        self.data = data
        self._strings = strings

    @property
    def id(self) -> str:
        """Unique within the recording, in order: "0", "1", ..."""
        return self.data.id

    @property
    def name(self) -> str:
        """The function's or module's name."""
        return self.data.name

    @property
    def kind(self) -> str:
        """ "training" or "inference"."""
        return self.data.kind

    @property
    def wrapper(self) -> WrapperRecord | None:
        """The generated Python that runs on every call: `.source`, and `.notes` on why its lines are there."""
        return self.data.wrapper

    @cached_property
    def stages(self) -> pd.DataFrame:
        """One row a stage: stage, form, changed, summary, started_ms, elapsed_ms, nodes_before, nodes_after, ..."""
        return tables.stages(self.data)

    @cached_property
    def inputs(self) -> pd.DataFrame:
        """One row a flat input: what it is, how the call changes it, and why it is treated as it is."""
        return tables.inputs(self.data.inputs)

    @cached_property
    def outputs(self) -> pd.DataFrame:
        """One row a flat output: its OutputType, what it is rebuilt from, and by which views."""
        return tables.outputs(self.data.outputs)

    @cached_property
    def saved_tensors(self) -> pd.DataFrame:
        """One row a value kept for the backward: saved_bytes, its producer, why it is kept, whether it is donated."""
        return tables.saved_tensors(self.data.saved_tensors)

    @cached_property
    def evidence(self) -> pd.DataFrame:
        """One row a reason that a stage gave: stage, subject, reason."""
        return tables.evidence(self.data)

    def graph(self, role: str, stage: str | None = None) -> Graph:
        """The graph of a role ("joint", "forward", "backward", "inference") as the last stage that has it left it.

        With `stage`, as that stage left it. A stage's name may stand in the place of a role if that stage has one
        graph. Raises LookupError, which says what there is.
        """
        key = (role, stage)
        if key not in self._graphs:
            self._graphs[key] = self._find(role, stage)
        return self._graphs[key]

    def diff(self, stage_a: str, stage_b: str) -> pd.DataFrame:
        """What happened to the nodes between two stages: one row a node, its `change` "kept", "added" or "removed".

        Columns: change, by ("value" or "name": how the node was followed), value_id, and role, name and target
        before and after. Raises LookupError for a stage that is not there or has no graph.
        """
        return diff(self._graphs_of(stage_a), self._graphs_of(stage_b))

    def __repr__(self) -> str:
        return f"<aotviz Compilation {self.id}: {self.name!r}, {self.kind}, {len(self.data.stages)} stages>"

    def __str__(self) -> str:
        return terminal.compilation(self.data)

    @cached_property
    def _graphs(self) -> dict[tuple[str, str | None], Graph]:
        return {}

    def _find(self, role: str, stage: str | None) -> Graph:
        for record in reversed(self.data.stages):
            if role in record.graphs and stage in (None, record.name):
                return self._open(record, role)
        if stage is None and any(record.name == role for record in self.data.stages):
            graphs = self._graphs_of(role)
            if len(graphs) == 1:
                return graphs[0]
            choice = " or ".join(f"graph({graph.role!r}, stage={role!r})" for graph in graphs)
            raise LookupError(f"stage {role!r} has {len(graphs)} graphs; ask for {choice}")
        known = sorted({known for record in self.data.stages for known in record.graphs})
        where = f" after stage {stage!r}" if stage is not None else ""
        raise LookupError(f"{self.name}: no graph {role!r}{where}. Roles: {known}. Stages: {self._stage_names()}")

    def _graphs_of(self, stage: str) -> list[Graph]:
        for record in reversed(self.data.stages):
            if record.name == stage:
                if not record.graphs:
                    raise LookupError(f"{self.name}: stage {stage!r} has no graph")
                return [self._open(record, role) for role in record.graphs]
        raise LookupError(f"{self.name}: no stage {stage!r}. Stages: {self._stage_names()}")

    def _open(self, record: StageRecord, role: str) -> Graph:
        return Graph(self.data.graphs[record.graphs[role]], self.data.values, self._strings, role, record.name)

    def _stage_names(self) -> list[str]:
        return [record.name for record in self.data.stages]


class Recording:
    """Compilations in the order in which they began: `recording[0]`, `len(recording)`, `for c in recording`.

    One of a running process grows while it is looked at. In a notebook it shows itself as a Workbench.

    >>> recording = aotviz.load("demo.aotviz")  # doctest: +SKIP
    >>> print(recording)  # doctest: +SKIP
    >>> recording[0].saved_tensors.saved_bytes.sum()  # doctest: +SKIP
    """

    def __init__(self, source: RecordingData | Store, producer: dict[str, str] | None = None) -> None:
        self._source = source
        self._producer = {clean(name): clean(version) for name, version in (producer or {}).items()}
        self._unpacked: OrderedDict[tuple[str, int], Compilation] = OrderedDict()

    @property
    def compilations(self) -> list[Compilation]:
        """All compilations, oldest first."""
        if isinstance(self._source, RecordingData):
            return self._loaded
        logs = self._source.logs()
        found = []
        for number, log in logs:
            key = (number, log.revision)
            compilation = self._unpacked.pop(key, None)
            if compilation is None:
                data, strings = log.read()
                compilation = Compilation(replace(data, id=number), strings)
            self._unpacked[key] = compilation
            while len(self._unpacked) > MOST_UNPACKED:
                self._unpacked.popitem(last=False)
            found.append(compilation)
        return found

    @property
    def data(self) -> RecordingData:
        """The recording in its wire format (events.py), as it stands now."""
        if isinstance(self._source, RecordingData):
            return self._source
        parts = [(compilation.data, compilation._strings) for compilation in self.compilations]
        return merge(parts, self._producer, self._source.dropped)

    @property
    def dropped(self) -> int:
        """How many compilations were dropped, oldest first, to keep the recording within its bounds."""
        return self._source.dropped

    def to_bytes(self) -> bytes:
        """gzip(msgpack) of `data`, for a widget or a page."""
        return files.pack(self.data)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file for `aotviz.load`, whole or not at all. Raises RecordingError where it can't be written."""
        files.write(self.data, path)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page that shows the recording in any browser, offline."""
        from aotviz.widgets.html import write_html  # downwards only: the reading half must not need the widgets

        write_html(self, path)

    def __len__(self) -> int:
        return len(self._source.compilations if isinstance(self._source, RecordingData) else self._source.logs())

    def __getitem__(self, index: int) -> Compilation:
        if isinstance(self._source, RecordingData):
            return self._loaded[index]
        return self.compilations[index]

    def __iter__(self) -> Iterator[Compilation]:
        return iter(self.compilations)

    def __repr__(self) -> str:
        return f"<aotviz Recording: {self._count()}>"

    def __str__(self) -> str:
        made = ", ".join(f"{name} {version}" for name, version in self.data_producer.items())
        head = f"Recording of {self._count()}" + (f" (by {made})" if made else "")
        return "\n\n".join([head, *(f"[{c.id}] {c}" for c in self.compilations)])

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
        try:
            from aotviz.widgets.workbench import Workbench  # absent or unusable where anywidget is not installed
        except ImportError:
            return {"text/plain": str(self)}
        shown = Workbench(self)._repr_mimebundle_(**options)
        return shown if shown else {"text/plain": str(self)}

    @property
    def data_producer(self) -> dict[str, str]:
        """The versions that made the recording, by name."""
        return self._source.producer if isinstance(self._source, RecordingData) else self._producer

    @cached_property
    def _loaded(self) -> list[Compilation]:
        assert isinstance(self._source, RecordingData)
        strings = self._source.strings
        return [Compilation(data, strings) for data in self._source.compilations]

    def _count(self) -> str:
        count = f"{len(self)} compilation{'' if len(self) == 1 else 's'}"
        return f"{count}, {self.dropped} older dropped" if self.dropped else count


def load(path: str | os.PathLike[str]) -> Recording:
    """The recording in a file that `Recording.save` wrote. Needs no torch, and runs nothing from the file.

    Raises RecordingError (a ValueError) for a file that is missing, foreign, newer, truncated or damaged.

    >>> load("nothing")
    Traceback (most recent call last):
    aotviz.recorder.files.RecordingError: nothing: there is no such file. Check the path that `save` was given.
    """
    return Recording(files.read(path))


__all__ = ["Compilation", "Recording", "RecordingError", "load"]
