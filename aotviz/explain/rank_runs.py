"""What each rank of a job ran, and what Inductor expected of it: execution order, estimated times, outputs' metadata.

Torch logs the order of the graphs inside `torch._inductor.debug.record_and_log_graph_execution_order()`, and, with
`torch._inductor.config.log_tlparse`, an estimate of the time and the metadata of the outputs of each operation.
Inductor's "operation" is a kernel or a collective. These texts are parsed only when someone asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec

from aotviz.explain import explained_tables
from aotviz.explain.explanation import sentence
from aotviz.explain.rows import Facts
from aotviz.recording.schema import ArtifactRecord

if TYPE_CHECKING:
    from aotviz.explain.marked_frame import ExplainedTable

ORDER = "graph_execution"
ESTIMATES = "inductor_runtime_and_tensor_meta"
NOTABLE = 1.2  # a slowest rank that is this many times slower than the fastest is worth a sentence


class _Run(msgspec.Struct):
    compile_id: str | None = None


class _Order(msgspec.Struct):
    graph_execution_order: list[_Run]


class _Output(msgspec.Struct):
    shape: list[int | str | None] = []
    stride: list[int | str | None] = []
    dtype: str | None = None

    def __str__(self) -> str:
        strides = f", strides {_listed(self.stride)}" if self.stride else ""
        return f"{self.dtype}{_listed(self.shape)}{strides}"


class _Operation(msgspec.Struct):
    name: str | None = None
    type: str = ""
    estimated_runtime_ns: float | None = None
    outputs: list[_Output] = []


class _Operations(msgspec.Struct):
    ops: list[_Operation]


Form = TypeVar("Form", _Order, _Operations)


@dataclass(frozen=True)
class GraphRun:
    """One run of a compiled graph on one rank."""

    rank: int
    number: int  # in the order of the runs of this rank
    compile_id: str  # "" if torch did not know it
    place: int  # of the compilation, or -1


@dataclass(frozen=True)
class Operation:
    """One operation of a compiled graph, as Inductor estimated it on one rank."""

    place: int  # of the compilation, or -1
    rank: int
    number: int  # in the order of the operations of this graph
    name: str
    kind: str  # "compute" or "collective"
    estimated_ns: float
    outputs: tuple[str, ...]  # e.g. "float32[4, 4], strides [4, 1]"


def runs(facts: Facts) -> list[GraphRun]:
    """The runs of graphs, rank by rank. A later record of a process continues the earlier one."""
    found: list[GraphRun] = []
    numbers: dict[tuple[int, int], int] = {}
    compiled = ((place, c) for place, c in enumerate(facts.data.compilations) if c.compile_id and c.kind != "export")
    known = {(c.log, c.compile_id): place for place, c in compiled}
    for artifact, order in _texts(facts, ORDER, _Order):
        log = artifact.origin.log
        rank = facts.data.logs[log].rank if 0 <= log < len(facts.data.logs) else -1
        for run in order.graph_execution_order:
            number = numbers[log, rank] = numbers.get((log, rank), -1) + 1
            compile_id = run.compile_id or ""
            found.append(GraphRun(rank, number, compile_id, known.get((log, compile_id), -1)))
    return found


def operations(facts: Facts) -> list[Operation]:
    """The operations of all graphs. Those of a backward follow those of its forward."""
    found: list[Operation] = []
    numbers: dict[int, int] = {}
    for artifact, read in _texts(facts, ESTIMATES, _Operations):
        place = artifact.origin.compilation
        for one in read.ops:
            number = numbers[place] = numbers.get(place, -1) + 1
            outputs = tuple(str(output) for output in one.outputs if output.dtype)
            took = one.estimated_runtime_ns or 0.0
            found.append(Operation(place, facts.rank(place), number, one.name or "", one.type, took, outputs))
    return found


def by_place(found: list[Operation]) -> dict[int, list[Operation]]:
    grouped: dict[int, list[Operation]] = {}
    for one in found:
        grouped.setdefault(one.place, []).append(one)
    return grouped


def order_difference(names: Mapping[str, list[str]]) -> str:
    """Where the first rank that runs its graphs in another order leaves rank 0; "" if none does.

    >>> order_difference({"rank 0": ["f", "g", "h"], "rank 1": ["f", "h", "g"]})
    'Ranks 0 and 1 run graphs in a different order from the second on: rank 0 runs `g`, rank 1 runs `h`.'
    """
    (first, ours), *others = names.items() or [("", [])]
    for rank, theirs in others:
        for number in range(max(len(ours), len(theirs))):
            one, other = (runs[number] if number < len(runs) else "" for runs in (ours, theirs))
            if one != other:
                told = [
                    f"{name} runs {f'`{run}`' if run else 'no more'}" for name, run in ((first, one), (rank, other))
                ]
                ranks = f"Ranks {first.removeprefix('rank ')} and {rank.removeprefix('rank ')}"
                start = f"{ranks} run graphs in a different order from the {ordinal(number + 1)} on"
                return sentence(f"{start}: {', '.join(told)}")
    return ""


def metadata_difference(operations: Mapping[str, list[Operation]]) -> str:
    """The first operation that returns something else on a rank than on the first; "" if there is none.

    The names of kernels have numbers, and what runs differs if the code does, which other differences tell.
    """
    (first, ours), *others = operations.items()
    for rank, theirs in others:
        for one, other in zip(ours, theirs, strict=False):
            if one.outputs != other.outputs and (one.kind, one.name) == (other.kind, other.name):
                shown = [", ".join(side.outputs) or "nothing" for side in (one, other)]
                return f"operation {one.number} (`{one.name}`) returns `{shown[0]}` on {first}, `{shown[1]}` on {rank}"
    return ""


def estimate_difference(operations: Mapping[str, list[Operation]]) -> str:
    """Which rank Inductor expects to be the fastest and the slowest; "" if they hardly differ."""
    totals = {rank: sum(one.estimated_ns for one in found) for rank, found in operations.items()}
    fastest, slowest = min(totals, key=totals.__getitem__), max(totals, key=totals.__getitem__)
    if not totals[fastest] or totals[slowest] < NOTABLE * totals[fastest]:
        return ""
    times = [f"{totals[rank] / 1e3:.3g} µs" for rank in (fastest, slowest)]
    ratio = totals[slowest] / totals[fastest]
    return (
        f"{slowest} is the slowest and {fastest} the fastest by Inductor's estimate: "
        f"{times[1]} and {times[0]}, {ratio:.1f} times as long"
    )


def ordinal(number: int) -> str:
    """
    >>> ordinal(2), ordinal(11), ordinal(21)
    ('second', '11th', '21st')
    """
    words = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}
    last = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return words.get(number, f"{number}{last}")


def runs_frame(facts: Facts) -> ExplainedTable:
    columns: explained_tables.Columns = {
        "rank": ("int64", lambda run: run.rank),
        "number": ("int64", lambda run: run.number),
        "compile_id": ("str", lambda run: run.compile_id),
        "compilation": ("str", lambda run: facts.id(run.place)),
        "function": ("str", lambda run: facts.function(run.place)),
    }
    return explained_tables.table(columns, runs(facts), marked=())


def operations_frame(facts: Facts) -> ExplainedTable:
    columns: explained_tables.Columns = {
        "rank": ("int64", lambda one: one.rank),
        "compilation": ("str", lambda one: facts.id(one.place)),
        "function": ("str", lambda one: facts.function(one.place)),
        "number": ("int64", lambda one: one.number),
        "name": ("str", lambda one: one.name),
        "kind": ("str", lambda one: one.kind),
        "estimated_us": ("float64", lambda one: one.estimated_ns / 1e3),
        "outputs": ("object", lambda one: one.outputs),
    }
    return explained_tables.table(columns, operations(facts), marked=())


def _texts(facts: Facts, name: str, form: type[Form]) -> Iterator[tuple[ArtifactRecord, Form]]:
    """The artifacts of a name, parsed. One that is not in torch's format says nothing."""
    for artifact in facts.data.artifacts:
        if facts.text(artifact.name) == name and facts.text(artifact.type) == "artifact":
            try:
                yield artifact, msgspec.json.decode(facts.text(artifact.text), type=form)
            except msgspec.DecodeError:
                continue


def _listed(parts: list[int | str | None]) -> str:
    return f"[{', '.join(map(str, parts))}]"
