"""Reading a recording: the live one of this process, or a file.

Neither needs torch, so a recording made on a training cluster opens on a laptop. Tables are pandas DataFrames, graphs
are `Graph` objects, and the recording displays itself in a notebook or prints itself in a terminal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from aotviz.explain import (
    answers,
    cache_misses,
    compile_time,
    graph_breaks,
    graph_changes,
    rank_runs,
    ranks,
    recompiles,
    timeline,
)
from aotviz.explain.overview import Overview
from aotviz.reading.steps import HasSteps
from aotviz.recording import files, log_tables, merging, needs_torch, paintings, redacting, trace_files
from aotviz.recording.compilation import Compilation
from aotviz.recording.files import RecordingError
from aotviz.recording.findings import ComparedInputs
from aotviz.recording.holders import Changed, Holder, Live, Whole
from aotviz.recording.schema import RecordingData
from aotviz.recording.store import Store
from aotviz.widgets.bookmarks import Beside, bookmark
from aotviz.widgets.html import write_html

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

    from aotviz.explain.explanation import Explanation, Point
    from aotviz.explain.marked_frame import ExplainedTable
    from aotviz.explain.trials import Trial
    from aotviz.widgets.workbench import Workbench


class Recording(HasSteps):
    """Compilations in the order in which they began: `recording[0]`, `len(recording)`, `for c in recording`.

    A live recording grows as more is compiled. A notebook displays it as a Workbench.

    >>> recording = aotviz.load("demo.aotviz")  # doctest: +SKIP
    >>> print(recording)  # doctest: +SKIP
    >>> recording[0].saved_tensors.held_bytes.sum()  # doctest: +SKIP
    """

    def __init__(self, content: RecordingData | Store | Holder, producer: dict[str, str] | None = None) -> None:
        if isinstance(content, RecordingData):
            content = Whole(content)
        elif isinstance(content, Store):
            content = Live(content, producer or {})
        self._content: Holder = content

    @property
    def compilations(self) -> list[Compilation]:
        """All compilations, oldest first."""
        return list(self._content)

    @property
    def data(self) -> RecordingData:
        """The recording in its wire format (schema.py), as it is now. For a log this reads every graph."""
        return self._painted(self._content.data)

    @property
    def dropped(self) -> int:
        """How many compilations were dropped, oldest first, because the recording was full."""
        return self._content.dropped

    @property
    def compared(self) -> ComparedInputs | None:
        """The sets of inputs that `aotviz.compare_inputs` compared, and how they differ; None for other recordings."""
        return self.rows[0].compared

    @property
    def notes(self) -> list[str]:
        """Remarks on how logs were read, e.g. which files were left out."""
        return self._content.rows[0].notes

    @property
    def logs(self) -> pd.DataFrame:
        """One row for each log file: name, rank, nbytes, lines, records and unknown ones by type, bad lines."""
        return log_tables.logs(self.rows[0])

    @property
    def guards(self) -> pd.DataFrame:
        """One row for each guard of Dynamo's: kind, source, text, code, place, ..."""
        return log_tables.rows(*self._content.listed, "guards")

    @property
    def cache_lookups(self) -> pd.DataFrame:
        """One row for each cache lookup: cache, outcome ("hit", "miss", "bypass"), key, components, reason."""
        return log_tables.rows(*self._content.listed, "cache_lookups")

    @property
    def graph_breaks(self) -> pd.DataFrame:
        """One row for each graph break: reason, place ("file:line" of the user's code), stack, text."""
        return log_tables.rows(*self._content.listed, "graph_breaks")

    @property
    def metrics(self) -> pd.DataFrame:
        """One row for each summary that torch wrote of a compilation: time, failure, and all its counts and timings."""
        return log_tables.rows(*self.rows, "metrics")

    @property
    def events(self) -> pd.DataFrame:
        """One row for each timeline event: name, start_us, duration_us, compilation, parent (a row's number), ..."""
        return log_tables.events(*self.rows)

    @property
    def shapes(self) -> pd.DataFrame:
        """One row for each step of symbolic shapes: a symbol made or specialised, an expression guarded on."""
        return log_tables.rows(*self._content.listed, "shapes")

    @property
    def artifacts(self) -> pd.DataFrame:
        """One row for each text in a log: type, name, encoding, text, fields."""
        return log_tables.rows(*self.rows, "artifacts")

    def explain(self, compilation: str | None = None, *, earlier: Recording | None = None) -> Explanation:
        """Explain recompiles, graph breaks, cache misses, differences between ranks, and where the time went.

        The most important sentence comes first, each with the user's line that it is about and what to do;
        `.sentences`, `.fix` and `.source` are text. With the id of a compilation, e.g. "0/3", everything is about that
        one. Cache misses are also compared with `earlier`, a recording of an earlier run.

        Raises LookupError, which lists the ids, for an unknown one.

        >>> import aotviz, torch
        >>> with aotviz.record() as recording:
        ...     double = aotviz.compile(lambda x: x * 2, backend="eager")
        ...     _ = double(torch.ones(3)), double(torch.ones(3, dtype=torch.float64))
        >>> print(recording.explain("1").sentences[0])
        `<lambda>` was compiled again because `x.dtype` was float32 and is now float64. It cost ... ms.
        """
        return answers.explain(self, compilation, earlier)

    def try_cure(self, point: Point | int, calls: Callable[[], object] | None = None) -> Trial:
        """Repeat calls as they are, and with the cure of a point of `explain`, and say what changed.

        `point` is a point of `explain()`, or its number there from 0. `calls` does what was recorded. Without it, the
        calls that led to compilations of the same code are repeated: on copies of its modules, with inputs of the same
        shapes and random values, without a backward. If there are results, those of both runs are compared. Only a cure
        that is a setting of torch can be tried. Dynamo forgets what it compiled before and after each run.

        Raises:
            CureNeedsEdit: the cure is a change of the code, which the message names, or there is none.
            CallsNeeded: pass `calls`; the function is gone or takes objects, the values matter, or this is a file.
            IndexError, TypeError: `point` is no point.

        >>> import aotviz, torch
        >>> double = torch.compile(lambda x: x * x.sum().item(), backend="eager")
        >>> with aotviz.watch() as recording:
        ...     _ = double(torch.ones(3))
        >>> print(recording.try_cure(0))
        With `torch._dynamo.config.capture_scalar_outputs = True`:
        - graph breaks: 1 before, 0 after
        - compilations: 2 before, 1 after
        - recompiles: 0 before, 0 after
        - time to compile: ... before, ... after
        - results: equal
        - 1 call repeated, with inputs of the recorded shapes and random values
        """
        # Loaded here because a recording is read without torch, and calls are repeated with it.
        trying = needs_torch.loaded("aotviz.comparing.trying", "try_cure")
        trial: Trial = trying.tried(self, point, calls, self._content.calls)
        return trial

    def overview(self) -> Overview:
        """What to know first: a headline, where the time went, the causes in the order of `explain`, the functions.

        It prints the headline and the first causes. `.causes` and `.functions` are tables, `.times` is a mapping from
        each part of the time to its seconds, which add up to `.seconds`. The workbench begins with the same.

        >>> import aotviz, torch
        >>> with aotviz.record() as recording:
        ...     double = aotviz.compile(lambda x: x * 2, backend="eager")
        ...     _ = double(torch.ones(3)), double(torch.ones(3, dtype=torch.float64))
        >>> print(recording.overview())
        `<lambda>` was recompiled: `x.dtype` was float32 and is now float64. It costs ... ms of ... ms.
        <BLANKLINE>
        1. `<lambda>` was recompiled: `x.dtype` was float32 and is now float64 (recompile, ... ms)
        ...
        >>> list(recording.overview().causes.kind)
        ['recompile']
        """
        return Overview(answers.findings(self).overview)

    def recompiles(self) -> ExplainedTable:
        """One row for each recompile: which guard failed, on what value, which line made it, the cost, what to do.

        Columns: compilation, rank, function, earlier (the program that nearly matched), kind, subject, before, after,
        why (a sentence), code and place (of the line that made the guard), seconds, same_cause (how many recompiles
        have this cause), outcome ("compiled"; "limit": too many programs, the call ran in eager; "failed"), fix.
        """
        return recompiles.frame(answers.facts_of(self))

    def cache_misses(self, earlier: Recording | None = None) -> ExplainedTable:
        """One row for each cache lookup, hits and bypasses too: why, and which parts of the key differ.

        A miss is compared with the most similar earlier key, in this recording (its processes and ranks) and
        in `earlier`, a recording of an earlier run. Columns: compilation, rank, function, cache, outcome, why (a
        sentence), differs, before and after (tuples, one entry for each part), nearest, seconds (saved by a hit, spent
        after a miss), key, fix.
        """
        before = answers.facts_of(earlier) if earlier is not None else None
        return cache_misses.frame(answers.facts_of(self), before)

    def distinct_graph_breaks(self) -> ExplainedTable:
        """One row for each place of a graph break: code, why, fix, whether all of the function runs in eager, count."""
        return graph_breaks.frame(answers.facts_of(self))

    def graph_changes(self, before: str, after: str, role: str | None = None) -> ExplainedTable:
        """How the graphs of two compilations differ: for each node a row with `change` same, changed, added or removed.

        `before` and `after` are ids, e.g. "0/0" and "0/1". `role` picks the graph ("dynamo", "forward", ...); without
        one, the first that both have. Raises LookupError for an unknown id or graph.
        """
        facts = answers.facts_of(self)
        one, other = (self.compilations[facts.find(id)] for id in (before, after))
        return graph_changes.frame(one, other, role)

    def rank_differences(self) -> ExplainedTable:
        """One row for each difference between the ranks of a job: kind, function, compilations, why, fix.

        What may hang comes first: other collectives, another order. Devices of other numbers are no difference.

        >>> import aotviz, tempfile, os
        >>> folder = tempfile.mkdtemp()
        >>> head = 'V0701 12:00:00.000000 7 a.py:1] '
        >>> name = '{"artifact": {"name": "inductor_collective_schedule"}, "has_payload": "", '
        >>> for rank, operations in enumerate(['["all_reduce", "all_gather"]', '["all_gather"]']):
        ...     with open(os.path.join(folder, f"rank_{rank}.log"), "w") as file:
        ...         _ = file.write(head + name + '"frame_id": 0, "frame_compile_id": 0}\\n\\t' + operations)
        >>> print(aotviz.read_trace(folder).rank_differences().why[0])
        The ranks run different collectives in `0/0`: rank 0 runs `all_reduce`, `all_gather`; rank 1 runs `all_gather`.
        """
        return ranks.frame(answers.facts_of(self))

    def graph_runs(self) -> ExplainedTable:
        """One row for each run of a graph, rank by rank: rank, number, compile_id, compilation, function.

        Torch logs them for calls inside `torch._inductor.debug.record_and_log_graph_execution_order()`.

        >>> import aotviz, tempfile, os
        >>> log = os.path.join(tempfile.mkdtemp(), "rank_3.log")
        >>> head = 'V0701 12:00:00.000000 7 a.py:1] {"artifact": {"name": "graph_execution"}, "has_payload": "2f4a"}'
        >>> with open(log, "w") as file:
        ...     _ = file.write(head + '\\n\\t{"graph_execution_order": [{"compile_id": "0/0"}]}')
        >>> aotviz.read_trace(log, index=False).graph_runs()[["rank", "number", "compile_id"]].to_dict("records")
        [{'rank': 3, 'number': 0, 'compile_id': '0/0'}]
        """
        return rank_runs.runs_frame(answers.facts_of(self))

    def estimates(self) -> ExplainedTable:
        """One row for each operation of Inductor's, a kernel or a collective, with its estimated time and outputs.

        Columns: rank, compilation, function, number, name, kind ("compute" or "collective"), estimated_us, outputs
        (dtype, shape and strides of each). Torch logs them if `torch._inductor.config.log_tlparse` is set.

        >>> import aotviz, tempfile, os
        >>> log = os.path.join(tempfile.mkdtemp(), "rank_0.log")
        >>> name = '{"name": "inductor_runtime_and_tensor_meta"}, "frame_id": 0, "frame_compile_id": 0'
        >>> head = 'V0701 12:00:00.000000 7 a.py:1] {"artifact": ' + name + ', "has_payload": ""}'
        >>> outputs = '[{"shape": [8], "stride": [1], "dtype": "float32"}]'
        >>> operation = '{"name": "buf0", "type": "compute", "estimated_runtime_ns": 2500, "outputs": ' + outputs + "}"
        >>> with open(log, "w") as file:
        ...     _ = file.write(head + '\\n\\t{"ops": [' + operation + "]}")
        >>> aotviz.read_trace(log).estimates()[["compilation", "name", "estimated_us", "outputs"]].to_dict("records")
        [{'compilation': '0/0', 'name': 'buf0', 'estimated_us': 2.5, 'outputs': ('float32[8], strides [1]',)}]
        """
        return rank_runs.operations_frame(answers.facts_of(self))

    def timeline(self, compilation: str | None = None) -> ExplainedTable:
        """Where the compile time went, as a tree: event, depth, seconds, own_seconds, share, count, unfinished, path.

        Without an id, of all compilations, each below its own row. Events of one name at one place are added up.
        """
        return timeline.frame(*answers.asked(self, compilation))

    def plot_timeline(self, compilation: str | None = None) -> Figure:
        """`timeline` as a plotly icicle: widths are seconds; click to zoom."""
        return timeline.figure(*answers.asked(self, compilation))

    def compile_time(self, compilation: str | None = None, *, by: str = "line") -> ExplainedTable:
        """Where the compile time goes in your program, the costliest first: one row for each source line, or with
        `by="module"` for each kind of module. Columns: place, code, function, module (with `*` for the numbers of equal
        blocks), class, modules, operators, seconds, share, of these capture, guards, aotautograd, kernels and other;
        compilations (ids).

        A compilation's seconds are shared equally among the operators of the graph that was captured, so a row is an
        estimate; the rows add up to the time of compiling. A torch log has no modules.

        >>> import aotviz, torch
        >>> with aotviz.record() as made:
        ...     _ = aotviz.compile(lambda x: x.sin().cos(), backend="eager")(torch.ones(3))
        >>> made.compile_time()[["function", "operators", "share"]].to_dict("records")
        [{'function': '<lambda>', 'operators': 2, 'share': 1.0}]
        """
        return compile_time.frame(*answers.asked(self, compilation), by=by)

    def paint(
        self,
        values: pd.Series[Any] | Mapping[Any, Any],
        label: str | None = None,
        *,
        unit: str = "",
        compilation: str | int = 0,
        stage: str | None = None,
        graph: str | None = None,
        groups: str = "largest",
        note: str = "",
        node: str = "",
    ) -> None:
        """Show values of nodes, such as the time of each kernel, as colours of the graph.

        The workbench shows them with a legend and a table, and the recording keeps them in `save` and `to_html`. Text
        and booleans become categories; NaN and infinity have colours of their own. A second painting with the same
        label replaces the first.

        Args:
            values: a Series with the names of nodes as index. A value is of every graph that has a node of that name,
                because a node keeps its name from stage to stage. If only one is meant, use `stage` and `graph`, or an
                index with the levels "stage", "graph" and "node".
            label: what is shown; by default the name of the Series.
            unit: of the numbers, e.g. "µs".
            compilation: its id or its position.
            stage, graph: the only stage, e.g. "partition", and the only graph, e.g. "backward", that has the nodes.
            groups: what a closed module shows: "largest" or "sum" of its nodes' numbers.
            note: a sentence to show with it.
            node: the node at which it is opened.

        Names that no graph has are kept, and a UserWarning lists them.

        Raises:
            ValueError: no name is that of a node, a node has several values, or there are no values.
            LookupError: there is no such compilation, stage or graph.
            TypeError: `values` is not a Series, or its numbers are complex.

        >>> import aotviz, pandas, torch
        >>> f = aotviz.compile(lambda x: x.sin() + x.cos(), backend="eager")
        >>> _ = f(torch.ones(3))
        >>> f.recording.paint(pandas.Series({"sin": 4.2, "cos": 3.9}), "time", unit="µs")
        >>> f.recording.paintings[["label", "node", "value"]].values.tolist()
        [['time', 'sin', 4.2], ['time', 'cos', 3.9]]
        """
        made, unknown = paintings.painting(
            values,
            found := self[compilation],
            label=label,
            unit=unit,
            note=note,
            stage=stage,
            graph=graph,
            groups=groups,
            node=node,
        )
        if unknown:
            paintings.warn_of(unknown, found)
        self._content.paintings.put(made)

    def unpaint(self, label: str, compilation: str | int = 0) -> None:
        """Take a painting away. Raises LookupError, which lists the labels, if there is no such painting."""
        self._content.paintings.remove(self[compilation].id, label)

    @property
    def paintings(self) -> pd.DataFrame:
        """What was painted, one row per name: compilation, label, stage, graph ("" means all), node, value, unit."""
        return paintings.frame(self._content.paintings.records)

    def follow(self, changed: Changed) -> Changed:
        """Call `changed()` whenever there is more to read. Returns a function that ends this.

        `changed` is called in the thread that compiles, and must not raise. A recording from a file never changes.

        >>> import torch, aotviz
        >>> f = aotviz.compile(lambda x: x + 1, backend="eager")
        >>> moves = []
        >>> stop = f.recording.follow(lambda: moves.append(len(f.recording)))
        >>> _ = f(torch.ones(3))
        >>> stop()
        >>> set(moves)
        {1}
        """
        stops = [self._content.follow(changed), self._content.paintings.follow(changed)]

        def stop() -> None:
            for one in stops:
                one()

        return stop

    def show(
        self,
        view: str = "",
        *,
        compilation: int | str = 0,
        stage: str = "",
        graph: str = "",
        beside: Sequence[Beside] = (),
    ) -> Workbench:
        """The workbench, opened at a place: `recording.show("saved tensors", stage="partition")`.

        If the compilation is painted, its graphs have the colours of the last painting; `show("graph")` opens that
        graph.

        Args:
            view: the text of a tab: "code", "diff", "graph", "saved tensors", ...; upper case does not matter.
            compilation: its position or id, as in `recording[...]`.
            stage: the name of a stage of that compilation.
            graph: which graph of that stage: "joint", "forward", ...
            beside: what the graph view draws beside it, at most two: the name of another stage, a pair of a stage and
                one of its graphs, or another compilation of the recording, of which it draws the same stage.

        Raises ValueError or LookupError for a name that does not exist; the message lists those that do.

        >>> import torch, aotviz
        >>> f = aotviz.compile(lambda x: x.sin(), backend="eager")
        >>> _ = f(torch.ones(3))
        >>> workbench = f.recording.show("wrapper", stage="link")
        >>> workbench.bookmark["view"], workbench.bookmark["stage"]
        ('wrapper', 'link')
        >>> workbench = f.recording.show("graph", stage="trace", beside=["lower"])
        """
        from aotviz.widgets.workbench import Workbench  # anywidget is slow to import, and may be absent

        painted = self._content.paintings.records
        return Workbench(self, bookmark=bookmark(view, self[compilation], stage, graph, painted, beside))

    def to_bytes(self) -> bytes:
        """gzip(msgpack) of `data`, for a widget or a page."""
        return files.pack(answers.with_differences(self))

    def redacted(self) -> Recording:
        """The recording for strangers: graphs, shapes, times and explanations, without the program's own texts.

        Names that aotviz and torch do not know become `name1`, files become `file1.py`; `notes` says what is left out.

        >>> import aotviz, torch
        >>> f = aotviz.compile(lambda x: x.sin(), backend="eager")
        >>> _ = f(torch.ones(3))
        >>> f.recording.redacted().notes[-1][:27]
        'This recording is redacted.'
        """
        return Recording(redacting.redacted(self.data))

    def save(self, path: str | os.PathLike[str], *, redact: bool = False) -> str:
        """Write a file for `aotviz.load`, atomically; with `redact` that of `redacted()`. Returns what was left out.

        Raises RecordingError if it can't be written."""
        files.write(answers.with_differences(self.redacted() if redact else self), path)
        return redacting.LEFT_OUT if redact else ""

    def to_html(self, path: str | os.PathLike[str], *, redact: bool = False) -> str:
        """Write one self-contained page for any browser, offline, and return what was left out: see `save`."""
        write_html(self.redacted() if redact else self, path)
        return redacting.LEFT_OUT if redact else ""

    def to_chrome_trace(self, path: str | os.PathLike[str], *, memory: bool = True) -> None:
        """Write what happened when, of all ranks, in Chromium's trace event format (JSON).

        Open it at https://ui.perfetto.dev. A rank is a process; compilations, stages and torch's events are its spans;
        cache lookups, restarts, graph breaks and failures are its marks. With `memory`, the planned live bytes of each
        compilation are a counter; all graphs are read for it. A path that ends in ".gz" is compressed.
        Raises RecordingError if the recording contains no times, or the path cannot be written.

        >>> import aotviz, json, pathlib, tempfile, torch
        >>> f = aotviz.compile(lambda x: x + 1, backend="eager")
        >>> _ = f(torch.ones(3))
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "trace.json"
        >>> f.recording.to_chrome_trace(path)
        >>> [event["name"] for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"][1:4]
        ['dynamo', 'flatten', 'metadata']
        """
        self._trace(path, partial(trace_files.chrome_trace, compilations=self.compilations if memory else ()))

    def to_perfetto(self, path: str | os.PathLike[str]) -> None:
        """Write the same as `to_chrome_trace` in Perfetto's own format, a protobuf.

        >>> import aotviz, pathlib, tempfile, torch
        >>> f = aotviz.compile(lambda x: x + 1, backend="eager")
        >>> _ = f(torch.ones(3))
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "trace.pftrace"
        >>> f.recording.to_perfetto(path); b"flatten" in path.read_bytes()
        True
        """
        self._trace(path, trace_files.perfetto_trace)

    def _trace(self, path: str | os.PathLike[str], encode: trace_files.Encode) -> None:
        trace_files.write(*answers.all_rows(self), path, encode)

    @property
    def revision(self) -> Hashable:
        """Another value whenever more was recorded."""
        return self._content.revision

    def __len__(self) -> int:
        return len(self._content)

    def __getitem__(self, index: int | str) -> Compilation:
        """The compilation at a position, or with an id: `recording[-1]`, `recording["0/3"]`.

        Raises IndexError, or KeyError, which lists the ids.
        """
        every = self.compilations
        if isinstance(index, int):
            if not every:
                raise IndexError(
                    "nothing has been compiled yet: call the compiled function once, and it is in its recording"
                )
            if not -len(every) <= index < len(every):
                raise IndexError(f"no compilation {index}: the recording has {len(every)}, from 0 on")
            return every[index]
        found = [c for c in every if index == c.id] or [c for c in every if index == c.compile_id]
        if len(found) == 1:
            return found[0]
        known = [c.id for c in found or every]
        shown = ", ".join(map(repr, known[:20])) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
        what = f"several compilations are {index!r}" if found else f"no compilation {index!r}"
        raise KeyError(f"{what}; there are {shown}" if known else f"{what}: there are none")

    def __iter__(self) -> Iterator[Compilation]:
        return iter(self.compilations)

    def __repr__(self) -> str:
        return f"<aotviz Recording: {self._count()}>"

    def __str__(self) -> str:
        made = ", ".join(f"{name} {version}" for name, version in self._content.producer.items())
        head = f"Recording of {self._count()}" + (f" (by {made})" if made else "")
        head = "\n".join([head, *self.notes, *log_tables.bad_lines(self.rows[0])])
        first = [str(self.overview())] if self.compilations else []
        return "\n\n".join([head, *first, *(f"[{c.id}] {c}" for c in self.compilations)])

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
        try:
            from aotviz.widgets.workbench import Workbench  # anywidget is slow to import, and may be absent
        except ImportError:
            return {"text/plain": str(self)}
        return Workbench(self)._repr_mimebundle_(**options) or {"text/plain": str(self)}

    @property
    def data_producer(self) -> dict[str, str]:
        """The versions that made the recording, by name."""
        return self._content.producer

    @property
    def rows(self) -> tuple[RecordingData, Sequence[str]]:
        """The rows of torch's logs, and their texts; without graphs that are expensive to read."""
        data, texts = self._content.rows
        return self._painted(data), texts

    @property
    def listed(self) -> tuple[RecordingData, Sequence[str]]:
        """`rows`, and the rows of aotviz's own compilations: their guards, graph breaks, symbols and cache lookups."""
        return self._content.listed

    def _painted(self, data: RecordingData) -> RecordingData:
        painted = list(self._content.paintings.records)
        return data if data.paintings == painted else replace(data, paintings=painted)

    def _count(self) -> str:
        count = f"{len(self)} compilation{'' if len(self) == 1 else 's'}"
        return f"{count}, {self.dropped} older dropped" if self.dropped else count


def load(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Recording:
    """The recording in a file that `Recording.save` wrote. Needs no torch, and runs nothing from the file.

    The files of several ranks, rank 0 first, become one recording: `load(["rank0.aotviz", "rank1.aotviz"])`.

    Raises RecordingError (a ValueError) for a file that is missing, foreign, newer, truncated or damaged.

    >>> load("nothing")
    Traceback (most recent call last):
    aotviz.recording.files.RecordingError: nothing: there is no such file. Check the path that you passed to `save`.
    """
    if isinstance(path, (str, os.PathLike)):
        return Recording(files.read(path))
    ranks = [files.read(one) for one in path]
    for one, data in zip(path, ranks, strict=True):
        if data.logs:
            raise RecordingError(f"{one}: it was read from logs. Pass the logs of all ranks to read_trace instead.")
    if not ranks:
        raise RecordingError("there are no recordings: the list of paths is empty")
    return Recording(merging.of_ranks(ranks))


__all__ = ["Compilation", "Recording", "RecordingError", "load"]
