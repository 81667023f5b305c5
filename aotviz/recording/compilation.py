"""One compilation of a recording, as a reader sees it: tables, graphs, code.

A compilation from a log or a running process starts as an outline. Its graphs (and the stages, for a log) are read
on first access, because it would be wasteful to read a thousand graphs to look at one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, overload

from msgspec.structs import replace

from aotviz.recording import inductor_memory, needs_torch, peak_changes, plots, tables, terminal
from aotviz.recording.beside_eager import BesideEager
from aotviz.recording.costs import Speed
from aotviz.recording.diff import diff
from aotviz.recording.dynamo_stage import Rows, plain_name
from aotviz.recording.graph import Graph
from aotviz.recording.inductor_memory import InductorMemory
from aotviz.recording.live_bytes import Memory
from aotviz.recording.plans import Plans, plan
from aotviz.recording.schema import (
    CompilationData,
    ErrorRecord,
    InputRecord,
    OutputRecord,
    RecomputedRecord,
    StageRecord,
    VisitRecord,
    WrapperRecord,
)

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

Partitioner = str | Callable[..., Any]

_RUN = {  # by the kind of a compilation: the roles of the graphs that run, in order
    "training": ("forward", "backward"),
    "inference": ("inference",),
    "compiled autograd": ("backward",),
}
_OF_TORCH = "it is of torch's own compiler, whose logs do not say which values share memory"


class LiveProgram(Protocol):
    """The program of a compilation, which a recording of this process can ask for more, as long as it exists."""

    def cut(
        self,
        partition_fn: Partitioner | None,
        memory_budget: float | None,
        on_stage: Callable[[str], None] | None = None,
    ) -> tuple[CompilationData, list[str]]:
        """Partition its joint graph again. Returns what was recorded of that, and its strings."""
        ...

    def reads_budget(self, partition_fn: Partitioner | None) -> bool:
        """Whether a partitioner keeps to a memory budget. None is the partitioner of the program."""
        ...


class Compilation:
    """One compilation of a function: its stages, tables, graphs and generated code.

    >>> import torch
    >>> import aotviz
    >>> f = aotviz.compile(lambda x: x.sin(), backend="eager")
    >>> _ = f(torch.ones(3))
    >>> compilation = f.recording[0]
    >>> list(compilation.stages.stage)[:2], compilation.kind
    (['dynamo', 'flatten'], 'inference')
    >>> list(compilation.graph("inference").nodes.name)
    ['arg0_1', 'sin', 'output']
    """

    # How an error is told; reading/__init__.py puts the words of `explain` there.
    in_words: ClassVar[staticmethod[[ErrorRecord], ErrorRecord]] = staticmethod(lambda error: error)

    def __init__(
        self,
        outline: CompilationData,
        strings: Sequence[str],
        complete: Callable[[], CompilationData] | None = None,
        nodes: int | None = None,
        live_program: LiveProgram | None = None,
        revision: int = 0,
        rows: Callable[[], tuple[Rows, list[str]]] | None = None,
    ) -> None:
        self.revision = revision  # a new number means that there is more to read
        self.outline = outline
        self.strings = strings
        self.rows = rows  # returns the rows that this compilation adds to the recording's lists
        self._complete = complete
        self._nodes = nodes
        self._live_program = live_program
        self._graphs: dict[tuple[str, str | None], Graph] = {}

    @cached_property
    def data(self) -> CompilationData:
        """The compilation in its wire format (schema.py)."""
        return self._complete() if self._complete is not None else self.outline

    @cached_property
    def row_counts(self) -> dict[str, int]:
        """How many rows this compilation adds to each of the recording's lists."""
        found = self.rows()[0] if self.rows is not None else Rows()
        return {name: len(getattr(found, name)) for name in found.__struct_fields__}

    @property
    def id(self) -> str:
        """Unique within the recording: "0", "1", ...; in a log "0/3" or "rank 1: 0/3", for example."""
        return self.outline.id

    @property
    def name(self) -> str:
        """The function's or module's name; "f after line 7" for what follows a graph break."""
        return plain_name(self.outline.name)

    @property
    def compile_id(self) -> str:
        """Dynamo's name for the compilation, e.g. "0/3"; "" for a compilation by aotviz's own pipeline."""
        return self.outline.compile_id

    @property
    def rank(self) -> int:
        """The rank of the process that compiled it; -1 if there was only one process."""
        return self.outline.rank

    @property
    def kind(self) -> str:
        """ "training", "inference" or "compiled autograd"; "" if the log does not say."""
        return self.outline.kind

    @property
    def nodes(self) -> int:
        """The number of nodes in the largest graph; 0 if it is unknown until the graphs are read."""
        return max((len(graph.op) for graph in self.outline.graphs), default=0) if self._nodes is None else self._nodes

    @property
    def wrapper(self) -> WrapperRecord | None:
        """The generated Python that runs on every call: `.source`, and `.notes`, which explain its lines."""
        return self.data.wrapper

    @cached_property
    def stages(self) -> pd.DataFrame:
        """One row per stage: stage, form, changed, summary, started_ms, elapsed_ms, nodes_before, nodes_after, ..."""
        return tables.stages(self.data)

    @cached_property
    def inputs(self) -> pd.DataFrame:
        """One row per flat input: what it is, how the call changes it, and why it is treated that way."""
        return tables.records(InputRecord, self.data.inputs)

    @cached_property
    def outputs(self) -> pd.DataFrame:
        """One row per flat output: its OutputType, the base it is rebuilt from, and the views that rebuild it."""
        return tables.records(OutputRecord, self.data.outputs)

    @cached_property
    def visits(self) -> pd.DataFrame:
        """Of a captured backward: one row per node of the autograd graph, in the order in which they run.

        Columns: node, subject (the leaf of AccumulateGrad), steps (nodes of the captured graph), hooks, waits_for (rows
        whose results it reads), frees (what nothing reads after it), parts (numbers of compiled parts), copied.

        >>> import torch
        >>> import aotviz
        >>> x = torch.ones(3, requires_grad=True)
        >>> with aotviz.record() as recording, aotviz.compiled_autograd(backend="eager"):
        ...     x.exp().sum().backward()
        >>> recording[0].visits[["node", "subject", "waits_for"]].values.tolist()[1:]
        [['SumBackward0', '', (0,)], ['ExpBackward0', '', (1,)], ['AccumulateGrad', 'x', (2,)]]
        """
        return tables.records(VisitRecord, self.data.visits)

    @cached_property
    def events(self) -> pd.DataFrame:
        """What the function did with its tensors, in the order of its statements: one row for each event.

        `what` is "argument", "view", "detach", "write", "metadata" (an in-place operator changed the shape or strides),
        `"set_"`, "resize", "storage resized", "mark" (`requires_grad_`, `detach_`), "hook", "random", "effect" or
        "result". `of` is what a view was taken of. `made` is the fact that aotviz made of it, with the input or output
        that has it. Equal numbers in `tensor_number` and `of_number` are one tensor.

        >>> import torch
        >>> import aotviz
        >>> def f(x):
        ...     x.add_(1)
        ...     return x[0]
        >>> compiled = aotviz.compile(f, backend="eager")
        >>> _ = compiled(torch.ones(2))
        >>> compiled.recording[0].events[["what", "tensor", "of", "operator"]].values.tolist()[1:3]
        [['write', 'x', '', 'add_'], ['view', 'output[0]', 'x', 'select(0, 0)']]
        >>> compiled.recording[0].events.made.tolist()[1:3]
        ['x: data: the wrapper writes it after the graph ran', 'output[0]: alias_of_input: a view of an input']
        """
        return tables.events(self.data, self.strings)

    @cached_property
    def storages(self) -> pd.DataFrame:
        """One row per tensor: its storage, its names, its offset in the storage (elements), and what it is a view of.

        >>> import torch
        >>> import aotviz
        >>> f = aotviz.compile(lambda x: x.view(-1)[2:], backend="eager")
        >>> _ = f(torch.ones(2, 2))
        >>> f.recording[0].storages[["storage", "names", "offset", "step"]].values.tolist()
        [[0, ('x',), 0, ''], [0, (), 0, 'view([-1])'], [0, ('output[0]',), 2, 'slice(0, 2, end)']]
        """
        return tables.storages(self.data)

    @cached_property
    def writes(self) -> pd.DataFrame:
        """One row per statement that changed a tensor in place: the tensor, the operator, and the source line."""
        return tables.writes(self.data)

    @cached_property
    def saved_tensors(self) -> pd.DataFrame:
        """One row per value saved for the backward: saved_bytes, producer, why it is saved, whether it is donated.

        Several values may share memory: `held_bytes` counts it once, and `shares_with` names the value that it is
        counted for. A value may also be in an input's memory: `held_bytes` is then 0, and `memory_of` names the input.

        >>> import torch
        >>> import aotviz
        >>> f = aotviz.compile(lambda x: (y := x.tanh()).t() @ y, backend="eager", partition_fn="default_partition")
        >>> f(torch.ones(2, 3, requires_grad=True)).sum().backward()
        >>> f.recording[0].saved_tensors[["name", "saved_bytes", "held_bytes", "shares_with"]].values.tolist()
        [['tanh', 24, 24, ''], ['detach', 24, 0, 'tanh'], ['t', 24, 0, 'tanh']]
        """
        return tables.saved_tensors(self.data.saved_tensors)

    @cached_property
    def recomputed(self) -> pd.DataFrame:
        """One row per value that the backward recomputes: the bytes that this saves, its producer, its consumers."""
        return tables.records(RecomputedRecord, self.data.recomputed)

    def memory(self, sizes: Mapping[str, int] = MappingProxyType({})) -> Memory:
        """Which bytes are alive at each node of the forward and the backward, and what holds them, as planned.

        This is exact for graphs that run operator by operator (`backend="eager"`), but for what an operator allocates
        for itself. Inductor fuses nodes and reuses buffers: see `inductor_memory`.

        Args:
            sizes: values of symbolic sizes, such as {"s0": 16}. The others are as in the recorded call.

        Raises:
            LookupError: the compilation has no graph that runs; it failed before, or ran in eager.
            ValueError: a symbolic size is not known: it depends on data, or a log does not say it.

        >>> import torch
        >>> import aotviz
        >>> f = aotviz.compile(lambda x: x.exp().sin().sum(), backend="eager")
        >>> f(torch.ones(100, requires_grad=True)).backward()
        >>> f.recording[0].memory().peak.nbytes
        1608
        """
        return self._program(sizes).memory

    def _program(self, sizes: Mapping[str, int]) -> peak_changes.Program:
        try:
            halves = [self.graph(role) for role in _RUN.get(self.kind) or _RUN["inference"]]
        except LookupError:
            if self.data.error is None:
                raise
            raise LookupError(f"{self.name} has no graph that runs: it {terminal.failure(self.data.error)}") from None
        if any(node.target.startswith("aotviz.whole_backward.") for half in halves for node in half.rows):
            raise LookupError(f"{self.name} has no sizes of its own: see `recording.step_memory()`, or its parts.")
        partitioner = self.data.options.get("partition_fn", "").rpartition(".")[2]
        return peak_changes.Program(self.name, halves, self.data.inputs, {**self.data.sizes, **sizes}, partitioner)

    def inductor_memory(self, sizes: Mapping[str, int] = MappingProxyType({})) -> InductorMemory:
        """Which bytes are alive while each of Inductor's kernels runs, read from the text that calls the kernels.

        To the byte what is measured, but for what an operator that Inductor did not compile allocates for itself.

        Raises as `memory` does, and:
            LookupError: Inductor did not compile it, or its text is not recorded.
            ValueError: the text is C++ (`cpp_wrapper`), or damaged.

        >>> import torch
        >>> import aotviz
        >>> f = aotviz.compile(lambda x: x.exp().sin().sum(), backend="inductor")
        >>> _ = f(torch.ones(100))
        >>> f.recording[0].inductor_memory().holders()[["name", "kind", "nbytes"]].values.tolist()
        [['x', 'input', 400], ['buf0', 'output', 4]]
        """
        return InductorMemory(self.memory(sizes), inductor_memory.texts(self.data.stages))

    def peak_changes(
        self,
        count: int = 3,
        sizes: Mapping[str, int] = MappingProxyType({}),
        *,
        speed: Speed = Speed(),  # noqa: B008
        device: str = "",
    ) -> peak_changes.PeakChanges:
        """The changes that would lower the peak most, each with the peak that it leads to: a table and sentences.

        They are computed from the recorded graphs, as `memory()` is. "recompute" and "checkpoint" save less between
        forward and backward; "reorder" frees values earlier; "let go" is an input or a result that only the caller
        holds in the backward; "keep the cast" is of parameters that are saved in another dtype as well.
        `aotviz.policy(change)` is the partitioner that applies one of the first three, and `aotviz.plans(fn, *inputs,
        changes=3, measure=True)` applies and measures each.

        With `device` ("cuda:0", or "cuda" if there is one of that type), they lower the peak of its memory. Without it,
        that of the accelerator, if tensors are on one and on the CPU.

        Raises as `memory` does, and LookupError if nothing is on the device.

        >>> import torch
        >>> import aotviz
        >>> def f(x):
        ...     a, b = x.expand(64, 4).exp(), x.expand(64, 4).sin()
        ...     return a.sum(0) + b.sum(0)
        >>> compiled = aotviz.compile(f, backend="eager")
        >>> _ = compiled(torch.ones(4))
        >>> print(compiled.recording[0].peak_changes())
        The peak is 2.03 KiB, at `sum_1` in the inference.
        Run the inference in another order, which frees values earlier (1 of 7 nodes move). The peak is then ...
        """
        return peak_changes.best(self._program(sizes), count, speed, device)

    def beside_eager(self) -> BesideEager:
        """What the program keeps for its backward, beside what eager's autograd keeps: a table, totals and sentences.

        Eager's part is read from the joint graph: autograd saves what its formulas read. It is exact for the operators
        that were traced; eager may run others (on a CPU, dropout keeps a mask in the dtype of its input). Symbolic
        sizes count as 0.

        Raises LookupError if the compilation saves nothing, as for inference.
        """
        if self.kind != "training":
            raise LookupError(f"{self.name} keeps nothing for a backward: it is no training graph.")
        kinds = {one.name: one.kind for one in self.data.inputs}
        return BesideEager(self.graph("joint"), self.graph("forward"), self.data.saved_tensors, kinds)

    @cached_property
    def evidence(self) -> pd.DataFrame:
        """One row per reason that a stage gave: stage, subject, reason."""
        return tables.evidence(self.data)

    def graph(self, role: str, stage: str | None = None) -> Graph:
        """The graph of a role ("joint", "forward", "backward", "inference"), after the last stage that has that role.

        With `stage`, the graph after that stage. `role` may also be the name of a stage that has exactly one graph.
        Raises LookupError if there is no such graph; the message lists the roles and the stages.
        """
        key = (role, stage)
        if key not in self._graphs:
            self._graphs[key] = self._find(role, stage)
        return self._graphs[key]

    def diff(self, stage_a: str, stage_b: str) -> pd.DataFrame:
        """What happened to the nodes between two stages: one row per node; `change` is "kept", "added" or "removed".

        Columns: change, by ("value" or "name": how the node was matched), value_id, and role, name and target
        before and after. Raises LookupError if a stage does not exist or has no graph.
        """
        return diff(self._graphs_of(stage_a), self._graphs_of(stage_b))

    @overload
    def what_if(
        self,
        partition_fn: Partitioner | None = None,
        memory_budget: float | None = None,
        on_stage: Callable[[str], None] | None = None,
    ) -> Compilation: ...

    @overload
    def what_if(
        self,
        partition_fn: Partitioner | list[Partitioner] | tuple[Partitioner, ...] | None = None,
        memory_budget: float | list[float] | tuple[float, ...] | None = None,
        on_stage: Callable[[str], None] | None = None,
        *,
        sizes: Mapping[str, int] = ...,
        speed: Speed = ...,
    ) -> Compilation | Plans: ...

    def what_if(
        self,
        partition_fn: Partitioner | list[Partitioner] | tuple[Partitioner, ...] | None = None,
        memory_budget: float | list[float] | tuple[float, ...] | None = None,
        on_stage: Callable[[str], None] | None = None,
        *,
        sizes: Mapping[str, int] = MappingProxyType({}),
        speed: Speed = Speed(),  # noqa: B008
    ) -> Compilation | Plans:
        """Partition the joint graph again in another way, to see what would be saved. The program does not change.

        With a list of partitioners or of budgets, the result is a table with a row for each: what is saved and
        recomputed, the peaks of forward and backward, and an estimated time. Nothing runs.

        Args:
            partition_fn: "default" (or "default_partition"), "min-cut" (or "min_cut_rematerialization_partition"), an
                `aotviz.policy`, or a function with the same signature as torch's; None means the partitioner that the
                compilation used. A list of these: a row for each.
            memory_budget: the share, from 0 to 1, of the activations that the min-cut partitioner may save. A list of
                shares: a row for each, for the partitioners that read one.
            on_stage: called with the name of each stage before it runs; an error that it raises stops the partition.
            sizes: for a list, values of symbolic sizes, such as {"s0": 16}. The others are as in the recorded call.
            speed: for a list, how fast the device is, for the estimated times.

        Returns a compilation with the stages that ran: compare its `saved_tensors` and `recomputed` with this one's. Or
        `Plans`, which is such compilations with their table, `.knees`, `.reversals` and `.plot()`.

        Raises:
            LookupError: there is nothing to partition: the recording is of torch's own compiler, the compilation is of
                inference, or the compiled function no longer exists; or a file has not all that it takes.
            NeedsTorch: a file, and torch is not installed.
            ValueError: there is no partitioner of that name, the memory budget is out of range, or a symbolic size has
                no value in `sizes`.

        >>> import torch
        >>> import aotviz
        >>> f = aotviz.compile(lambda x: x.sin().cos().sum(), backend="eager")
        >>> _ = f(torch.ones(3, requires_grad=True))
        >>> here = f.recording[0]
        >>> there = here.what_if(partition_fn="default")
        >>> int(here.saved_tensors.held_bytes.sum()), int(there.saved_tensors.held_bytes.sum())
        (0, 12)
        >>> plans = here.what_if(["min-cut", "default"])
        >>> plans.table[["partitioner", "saved_bytes", "recomputed", "peak_forward", "peak_backward"]].values.tolist()
        [['min-cut', 0, 1, 36, 52], ['default', 12, 0, 40, 52]]
        """
        program = self._live_program or self._recorded_program(sizes)
        if not isinstance(partition_fn, list | tuple) and not isinstance(memory_budget, list | tuple):
            return self._cut_again(program, partition_fn, memory_budget, on_stage)
        partitioners = [*partition_fn] if isinstance(partition_fn, list | tuple) else [partition_fn]
        budgets = [*memory_budget] if isinstance(memory_budget, list | tuple) else [memory_budget]
        kinds = {one.name: one.kind for one in self.data.inputs}
        known = {**self.data.sizes, **sizes}
        found = []
        for chosen in partitioners:
            for budget in budgets if program.reads_budget(chosen) else [None]:
                cut = self._cut_again(program, chosen, budget, on_stage)
                found.append(plan(_called(chosen), budget, cut, kinds, known, speed))
        return Plans(self.name, found)

    def _recorded_program(self, sizes: Mapping[str, int]) -> LiveProgram:
        """The program of a recording whose function is in another process."""
        if self.kind != "training" or self.data.log >= 0:
            why = _OF_TORCH if self.data.log >= 0 else "it is an inference graph, which saves nothing"
            raise LookupError(f"{self.name} cannot be partitioned again: {why}.")
        module = needs_torch.loaded("aotviz.recorder.recorded_joint", "what_if")
        program: LiveProgram = module.RecordedProgram(self, sizes)
        return program

    def _cut_again(
        self,
        live_program: LiveProgram,
        partition_fn: Partitioner | None,
        memory_budget: float | None,
        on_stage: Callable[[str], None] | None,
    ) -> Compilation:
        data, strings = live_program.cut(partition_fn, memory_budget, on_stage)
        known = {"sizes": data.sizes or self.data.sizes, "inputs": data.inputs or self.data.inputs}
        return Compilation(replace(data, id=f"{self.id} what if", **known), strings)

    def plot_saved_tensors(self) -> Figure:
        """The saved tensors as a plotly treemap, grouped by module; areas are bytes.

        >>> import torch
        >>> import aotviz
        >>> model = aotviz.compile(torch.nn.Tanh(), backend="eager")
        >>> model(torch.ones(3, requires_grad=True)).sum().backward()
        >>> model.recording[0].plot_saved_tensors().layout.title.text
        'Tanh [...]: 1 value kept for the backward, 12 B'
        """
        return plots.saved_tensors(self.saved_tensors, self.name)

    def plot_timeline(self) -> Figure:
        """When each stage ran and for how long, as a plotly figure, in ms since the compilation began."""
        return plots.stages(self.stages, self.name)

    def __repr__(self) -> str:
        if self.compile_id:
            said = [repr(self.name)] * (self.name != self.compile_id) + [self.kind] * bool(self.kind)
        else:
            said = [repr(self.name), *[self.kind] * bool(self.kind), f"{len(self.outline.stages)} stages"]
        return f"<aotviz Compilation {self.id}{': ' if said else ''}{', '.join(said)}>"

    def __str__(self) -> str:
        error = self.data.error
        return terminal.compilation(self.data if error is None else replace(self.data, error=self.in_words(error)))

    def _find(self, role: str, stage: str | None) -> Graph:
        for record in reversed(self.data.stages):
            if role in record.graphs and stage in (None, record.name):
                return self._open(record, role)
        if stage is None and any(record.name == role for record in self.data.stages):
            graphs = self._graphs_of(role)
            if len(graphs) == 1:
                return graphs[0]
            choice = " or ".join(f"graph({graph.role!r}, stage={role!r})" for graph in graphs)
            raise LookupError(f"stage {role!r} has {len(graphs)} graphs; choose {choice}")
        known = sorted({known for record in self.data.stages for known in record.graphs})
        if not known:
            raise LookupError(f"{self.name} has no graph: nothing was compiled; `recording.explain()` says why")
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
        return Graph(self.data.graphs[record.graphs[role]], self.data.values, self.strings, role, record.name)

    def _stage_names(self) -> list[str]:
        return [record.name for record in self.data.stages]


def _called(partition_fn: Partitioner | None) -> str:
    """How a plan is called after its partitioner."""
    if partition_fn is None:
        return "as compiled"
    return partition_fn if isinstance(partition_fn, str) else str(getattr(partition_fn, "__name__", partition_fn))
