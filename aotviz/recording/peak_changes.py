"""The changes that would lower the peak most, of all memory or that of one device, each computed from the graphs.

A change is another schedule of the program (recompute some values, checkpoint a module, run the nodes in another
order), an input or a result that the caller lets go of before the backward, or parameters that are kept in the dtype in
which they are used. Each is planned as the program itself is (`live_bytes.py`), so its peak is as exact.
`aotviz.plans(..., changes=3, measure=True)` applies each and measures it.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, overload

from msgspec import structs

from aotviz.recording import costs, sizes, tables
from aotviz.recording.costs import Speed
from aotviz.recording.graph import Graph
from aotviz.recording.listing import Node
from aotviz.recording.live_bytes import OF_THE_CALLER, Holder, Memory, Timeline
from aotviz.recording.memory_facts import CASTS, replaced_inputs
from aotviz.recording.schedules import (
    Relisted,
    Schedule,
    can_repeat,
    recomputing,
    relisted,
    reordered,
    runs,
    schedule_of,
    scheduled,
    storages_of,
)
from aotviz.recording.schema import InputRecord, ValueRecord

if TYPE_CHECKING:
    import pandas as pd

_NUMBER = re.compile(r"(?<![^.])\d{1,9}(?![^.])")  # of a layer, in a module's path
_MOVE = "prims.device_put.default"
_LEAST = 0.001  # of the peak, that a change saves
_MOST_PLANS = 20  # changes that are computed: each is a plan of the whole program
_MOST_AGAIN = 8  # nodes that run again for a value that is recomputed by itself, on average


@dataclass(frozen=True)
class Change:
    """A change that lowers the peak. `aotviz.policy(change)` is the partitioner that makes a change with a schedule."""

    kind: str  # "recompute", "checkpoint", "reorder", "let go" or "keep the cast"
    subject: str  # the values, the modules, the half, or the input, result or parameters
    what: str  # a sentence
    saves: int  # bytes, of the peak
    memory: Memory = field(repr=False, compare=False)  # with the change
    recompute_ms: float = 0.0  # what the backward runs again, estimated
    names: tuple[str, ...] = ()  # the holder that the caller lets go of, or the parameters
    dtype: str = ""  # in which the parameters are kept
    schedule: Schedule | None = field(default=None, repr=False)
    partitioner: str = ""  # whose halves the schedule changes
    values: tuple[str, ...] = ()  # the nodes of the values that are no longer held until the peak
    source: str = ""  # the line of the largest of them
    device: str = ""  # whose peak is lowered; "" for all memory

    @cached_property
    def counted(self) -> Timeline:
        """The memory whose peak is lowered, with the change."""
        return self.memory.on(self.device) if self.device else self.memory

    @property
    def name(self) -> str:
        return f"{self.kind} {self.subject}"

    @property
    def peak(self) -> int:
        """Bytes at the peak, with the change."""
        return self.counted.peak.nbytes

    @property
    def at(self) -> str:
        """The node at that peak."""
        return self.counted.peak.node

    def __str__(self) -> str:
        return f"{self.what} The peak is then {sizes.told(self.peak)}, {sizes.told(self.saves)} less, at `{self.at}`."


class PeakChanges(Sequence[Change]):
    """The changes that lower the peak most, the best first. `counted` is the memory whose peak they lower."""

    def __init__(self, memory: Memory, counted: Timeline, changes: Sequence[Change]) -> None:
        self.memory, self.counted = memory, counted
        self._changes = tuple(changes)

    def __len__(self) -> int:
        return len(self._changes)

    @overload
    def __getitem__(self, number: int) -> Change: ...

    @overload
    def __getitem__(self, number: slice) -> tuple[Change, ...]: ...

    def __getitem__(self, number: int | slice) -> Change | tuple[Change, ...]:
        return self._changes[number]

    def __repr__(self) -> str:
        return f"<aotviz PeakChanges of {self.memory.name!r}: {', '.join(one.name for one in self) or 'none'}>"

    @property
    def table(self) -> pd.DataFrame:
        """One row per change: kind, subject, peak and saves (bytes), at (the node at that peak), recompute_ms, source
        (the line of the largest value that it is about), what."""
        return tables.table(_COLUMNS, self._changes)

    @property
    def sentences(self) -> list[str]:
        peak, device = self.counted.peak, self.counted.device
        where = f" on `{device}`" if device else ""
        said = f"The peak{where} is {sizes.told(peak.nbytes)}, at `{peak.node}` in the {peak.phase}."
        return [said, *map(str, self._changes)] if self._changes else [f"{said} No change that is known lowers it."]

    def __str__(self) -> str:
        return "\n".join(self.sentences)


_COLUMNS = tables.attributes(
    kind="str", subject="str", peak="int64", saves="int64", at="str", recompute_ms="float64", source="str", what="str"
)


@dataclass(frozen=True)
class Program:
    """What the changes are computed from."""

    name: str
    halves: Sequence[Graph]  # a forward and a backward, or an inference graph
    inputs: Sequence[InputRecord]
    symbols: Mapping[str, int]
    partitioner: str = ""
    device: str = ""  # whose peak counts; "" for all memory
    speed: Speed = field(default_factory=Speed)

    @cached_property
    def kinds(self) -> dict[str, str]:
        return {one.name: one.kind for one in self.inputs}

    @property
    def both(self) -> tuple[Graph, Graph]:
        """The forward and the backward."""
        forward, backward = self.halves
        return forward, backward

    @cached_property
    def memory(self) -> Memory:
        return self.planned(self.halves)

    @cached_property
    def counted(self) -> Timeline:
        return self.on_device(self.memory)

    def on_device(self, memory: Memory) -> Timeline:
        return memory.on(self.device) if self.device else memory

    def planned(self, halves: Sequence[Graph], released: Set[str] = frozenset()) -> Memory:
        return Memory(self.name, halves, self.kinds, self.symbols, released, replaced_inputs(self.inputs))

    @cached_property
    def costs(self) -> list[costs.Cost]:
        """Of each node of the forward."""
        return costs.costs(self.halves[0], self.symbols)

    @cached_property
    def written(self) -> set[str]:
        """The names of the graph's inputs that the call writes."""
        mutated = {
            one.name
            for one in self.inputs
            if one.mutates_data or one.mutates_metadata or one.storage_resized or one.storage_replaced
        }
        forward = self.halves[0]
        unknown = not self.inputs and any("mutation" in text.lower() for text in forward.output_descriptors)
        given = [node for node in forward.rows if node.op == "placeholder"]
        return {node.name for node in given if unknown or node.descriptor in mutated}

    @cached_property
    def saved(self) -> dict[int, list[str]]:
        """The names of saved values, by the number of their storage; an input's, and copies on another device, are left
        out."""
        found: dict[int, list[str]] = {}
        forward = self.halves[0]
        given = {node.value.storage for node in forward.rows if node.op == "placeholder" and node.value}
        for name in schedule_of(forward, self.halves[1]).saved:
            node = forward.by_name.get(name)
            if node is None or node.target == _MOVE:
                continue
            if node.is_tensor and node.value and node.value.storage not in {-1, *given}:
                found.setdefault(node.value.storage, []).append(name)
        return found


def best(program: Program, count: int, speed: Speed, device: str) -> PeakChanges:
    """The `count` changes that lower the peak most, of those that are about the most bytes at the peak.

    It is that of a device: without one, of the accelerator, if there are tensors on one and on the CPU; else of all.
    """
    program = replace(program, speed=speed)
    wanted = program.memory.on(device).device if device else program.memory.accelerator
    program = replace(program, device=wanted) if wanted else program
    memory = program.counted
    found: list[Change] = []
    least = memory.peak.nbytes * _LEAST
    limit = memory.peak.nbytes - least
    candidates = (one for one in _candidates(program) if one.most > least)
    for candidate in sorted(candidates, key=lambda one: -one.most)[: max(count, _MOST_PLANS)]:
        if len(found) >= count and candidate.most <= found[count - 1].saves:
            break
        change = candidate.compute()
        if change is not None and change.peak < limit:
            found = _distinct(sorted([*found, change], key=lambda one: (-one.saves, one.recompute_ms)))
    return PeakChanges(program.memory, memory, found[:count])


def _distinct(changes: Sequence[Change]) -> list[Change]:
    """Of schedules with the same peak, the one that recomputes least: the others do more than what lowers it."""
    found: dict[tuple[int, str, str], Change] = {}
    for one in changes:
        found.setdefault((one.saves, one.at, one.name if one.schedule is None else ""), one)
    return [*found.values()]


@dataclass(frozen=True)
class _Candidate:
    most: int  # bytes that it can save at the peak
    compute: Callable[[], Change | None]


def _candidates(program: Program) -> Iterator[_Candidate]:
    yield from _orders(program)
    if len(program.halves) > 1:
        yield from _let_go(program)
        if not _unknown_storages(program.halves):
            yield from _again(program)
            yield from _casts(program)


def _unknown_storages(halves: Sequence[Graph]) -> bool:
    """Whether they are of a log, which does not say what shares memory."""
    return all(node.value is None or node.value.storage < 0 for half in halves for node in half.rows if node.is_tensor)


def _change(
    program: Program,
    kind: str,
    subject: str,
    what: str,
    memory: Memory,
    recompute_ms: float = 0.0,
    names: tuple[str, ...] = (),
    schedule: Schedule | None = None,
    dtype: str = "",
    values: Iterable[str] = (),
) -> Change:
    saves = program.counted.peak.nbytes - program.on_device(memory).peak.nbytes
    about = tuple(values)
    mine = set(about)
    largest = max(
        (one for one in program.counted.at_peak if one.name in mine), key=lambda one: one.nbytes, default=None
    )
    return Change(
        kind, subject, what, saves, memory, recompute_ms, names, dtype, schedule, program.partitioner,
        about, largest.source if largest else "", program.device,
    )  # fmt: skip


# ---- recompute, checkpoint ------------------------------------------------------------------------------------------


@dataclass
class _Group:
    """Saved values that are recomputed together."""

    names: dict[str, None] = field(default_factory=dict)
    makers: list[str] = field(default_factory=list)  # the nodes that allocate them
    alive: int = 0  # bytes at the peak
    total: int = 0

    def add(self, holder: Holder, names: Iterable[str], is_alive: bool) -> None:
        self.makers.append(holder.name)
        self.names.update(dict.fromkeys(names))
        self.total += holder.nbytes
        self.alive += holder.nbytes * is_alive


def _again(program: Program) -> Iterator[_Candidate]:
    forward = program.halves[0]
    peak = {one.name for one in program.counted.at_peak if one.kind == "saved"}
    values, modules = defaultdict[tuple[str, str, str], _Group](_Group), defaultdict[str, _Group](_Group)
    storages = storages_of(forward)
    for one in program.counted.all_holders:
        node = forward.by_name.get(one.name)
        if one.kind != "saved" or node is None or not can_repeat(node):
            continue
        names = [name for storage in storages[node.index] for name in program.saved.get(storage, ())]
        path, is_alive = node.module_path, one.name in peak
        values[node.target, _folded(path), str(node.source)].add(one, names, is_alive)
        parts = path.split(".") if path else []
        for i in range(len(parts)):
            modules[_folded(".".join(parts[: i + 1]))].add(one, names, is_alive)
    for (target, module, _), group in values.items():
        yield _Candidate(group.alive, partial(_recompute, program, target, module, group))
    seen = set[tuple[str, ...]]()
    for module in sorted(modules, key=lambda one: -one.count(".")):
        group = modules[module]
        if tuple(group.names) not in seen:  # an outer module that saves no more
            seen.add(tuple(group.names))
            yield _Candidate(group.alive, partial(_checkpoint, program, module, group))


def _folded(path: str) -> str:
    return _NUMBER.sub("*", path)


def _recompute(program: Program, target: str, module: str, group: _Group) -> Change | None:
    schedule = recomputing(*program.both, group.names, program.written, lambda node, needed: True)
    if schedule is None or len(_repeated(program, schedule)) > _MOST_AGAIN * len(group.names):
        return None
    short = target.removeprefix("aten.").rpartition(".")[0]
    where = f" of `{module}`" if module else ""
    count = sizes.counted(len(group.names), "value")
    what = f"Recompute `{short}`{where} in the backward instead of saving it ({count}, {sizes.told(group.total)})."
    subject = f"{short} of {module}" if module else short
    return _scheduled(program, "recompute", subject, what, schedule, group.makers)


def _checkpoint(program: Program, module: str, group: _Group) -> Change | None:
    depth = module.count(".") + 1

    def inside(node: Node) -> str:
        path = ".".join(node.module_path.split(".")[:depth])
        return path if _folded(path) == module else ""

    def reaches(node: Node, needed: Node) -> bool:
        return bool(inside(node)) and inside(node) == inside(program.halves[0].maker(needed))

    schedule = recomputing(*program.both, group.names, program.written, reaches)
    if schedule is None:
        return None
    each = "each of them by itself, " if "*" in module else ""
    what = f"Checkpoint `{module}`: save what enters it, and recompute the rest, {each}in the backward."
    return _scheduled(program, "checkpoint", module, what, schedule, group.makers)


def _scheduled(
    program: Program, kind: str, subject: str, what: str, schedule: Schedule, values: Iterable[str]
) -> Change:
    memory = program.planned(scheduled(*program.both, schedule))
    seconds = sum(cost.seconds(program.speed) for cost in _repeated(program, schedule))
    return _change(program, kind, subject, what, memory, 1e3 * seconds, schedule=schedule, values=values)


def _repeated(program: Program, schedule: Schedule) -> list[costs.Cost]:
    """The cost of each node of the forward that the backward now runs again."""
    forward, backward = program.halves
    own = {node.name for node in backward.rows if runs(node)}
    again = {name for name in schedule.backward if name not in own}
    return [program.costs[node.index] for node in forward.rows if node.name in again]


# ---- reorder --------------------------------------------------------------------------------------------------------


def _orders(program: Program) -> Iterator[_Candidate]:
    memory = program.counted
    phase = memory.peak.phase
    number = next((i for i, half in enumerate(program.halves) if half.role.startswith(phase)), None)
    if number is None or not phase:
        return
    could = sum(one.nbytes for one in memory.at_peak if one.kind not in OF_THE_CALLER)
    yield _Candidate(could, partial(_reorder, program, number))


def _reorder(program: Program, number: int) -> Change | None:
    half = program.halves[number]
    nbytes = {one.name: one.nbytes for one in program.counted.all_holders if one.kind not in OF_THE_CALLER}
    recorded = [node.name for node in half.rows if runs(node)]
    lowest: tuple[int, tuple[str, ...], Memory] | None = None
    for names in reordered(half, lambda node: nbytes.get(node.descriptor or node.name, nbytes.get(node.name, 0))):
        memory = program.planned(_with_order(program, number, names))
        peak = program.on_device(memory).peak.nbytes
        if lowest is None or peak < lowest[0]:
            lowest = peak, names, memory
    if lowest is None:
        return None
    _, names, memory = lowest
    places = {name: number for number, name in enumerate(recorded)}
    moved = len(names) - _longest_rise([places[name] for name in names])
    phase = half.role.split()[0]
    what = f"Run the {phase} in another order, which frees values earlier ({moved} of {len(names)} nodes move)."
    return _change(program, "reorder", phase, what, memory, schedule=_schedule_with(program, number, names))


def _longest_rise(numbers: Sequence[int]) -> int:
    """The length of the longest increasing subsequence."""
    ends: list[int] = []  # the lowest end of a rise of each length
    for number in numbers:
        place = bisect(ends, number)
        ends[place : place + 1] = [number]
    return len(ends)


def _schedule_with(program: Program, number: int, names: tuple[str, ...]) -> Schedule:
    if len(program.halves) == 1:
        return Schedule(names, (), ())
    forward, saved, backward = schedule_of(*program.both)
    return Schedule(names, saved, backward) if number == 0 else Schedule(forward, saved, names)


def _with_order(program: Program, number: int, names: tuple[str, ...]) -> list[Graph]:
    if len(program.halves) > 1:
        return scheduled(*program.both, _schedule_with(program, number, names))
    (half,) = program.halves
    given = [node for node in half.rows if node.op == "placeholder"]
    nodes = [*given, *(half.by_name[name] for name in names)]
    return [relisted(half, nodes, half.outputs, half.output_descriptors)]


# ---- let go ---------------------------------------------------------------------------------------------------------


def _let_go(program: Program) -> Iterator[_Candidate]:
    """Inputs that no gradient is computed of, and results: the caller may hold them while the backward runs."""
    if program.counted.peak.phase != "backward":
        return
    leaves = {one.name for one in program.inputs if one.requires_grad}
    for one in program.counted.at_peak:
        if (one.kind == "input" and one.name not in leaves) or one.kind == "output":
            yield _Candidate(one.nbytes, partial(_without, program, one))


def _without(program: Program, holder: Holder) -> Change:
    memory = program.planned(program.halves, frozenset([holder.name]))
    said = holder.name
    if holder.kind == "output":
        forward = program.halves[0]
        places = dict(zip((node.name for node in forward.rows), storages_of(forward), strict=True))
        pairs = zip(forward.outputs, forward.output_descriptors, strict=True)
        mine = (text for name, text in pairs if set(places.get(name, ())) & set(places[holder.name]))
        said = next((text for text in mine if not text.startswith("saved ")), "") or holder.name
        said = said.removeprefix("base of ")
    number = said.removeprefix("primals_")  # in a log
    if said.startswith("primals_") and number.isdigit() and int(number) <= len(program.inputs):
        said = program.inputs[int(number) - 1].name
    what = f"Let go of `{said}` before the backward (`del`, or do not keep it): only the caller holds it then."
    return _change(program, "let go", said, what, memory, names=(holder.name,), values=(holder.name,))


# ---- keep the cast --------------------------------------------------------------------------------------------------


def _casts(program: Program) -> Iterator[_Candidate]:
    """Parameters of which the program saves a copy in another dtype, by that dtype."""
    forward = program.halves[0]
    saved = set(program.saved)
    by_dtype: dict[str, list[tuple[Node, Node]]] = {}  # a parameter, and its copy
    for node in forward.rows:
        if node.target not in CASTS or node.value is None or node.value.storage not in saved:
            continue
        given = forward.rows[node.inputs[0]]
        if given.value is None or given.value.device != node.value.device:
            continue
        of_parameter = given.op == "placeholder" and program.kinds.get(given.descriptor) == "parameter"
        if of_parameter and forward.users[given.index] == (node.index,):
            by_dtype.setdefault(forward.text(node.value.dtype), []).append((given, node))
    alive = {one.name: one.nbytes for one in program.counted.at_peak}
    for dtype, copies in by_dtype.items():
        most = sum(2 * alive.get(copy.name, 0) + alive.get(given.descriptor, 0) for given, copy in copies)
        yield _Candidate(most, partial(_keep_cast, program, dtype, copies))


def _keep_cast(program: Program, dtype: str, copies: Sequence[tuple[Node, Node]]) -> Change:
    names = tuple(given.descriptor for given, _ in copies)
    memory = program.planned(_without_casts(program, copies))
    folded = [*dict.fromkeys(map(_folded, names))]
    some = f"`{folded[0]}`" + (f" and {len(folded) - 1} more" if len(folded) > 1 else "")
    short = dtype.removeprefix("torch.")
    many = sizes.counted(len(names), "parameter")
    what = f"Keep {many} ({some}) in {short}: the program saves a copy of each in {short}, beside the parameter."
    subject, values = f"{many} in {short}", [copy.name for _, copy in copies]
    return _change(program, "keep the cast", subject, what, memory, names=names, dtype=short, values=values)


def _without_casts(program: Program, copies: Sequence[tuple[Node, Node]]) -> list[Graph]:
    """The halves as they are if the parameters have the dtype of their copies."""
    forward, backward = program.halves
    storages = {copy.value.storage: given.value.storage for given, copy in copies if copy.value and given.value}
    values = [structs.replace(one, storage=storages.get(one.storage, one.storage)) for one in forward.values]
    numbers = {given.name: copy.value_id for given, copy in copies}  # the parameter's value is its copy's
    gradients = {f"gradient of {given.descriptor}" for given, _ in copies}
    others = {copy.name: given.name for given, copy in copies}
    for name, text in zip(backward.outputs, backward.output_descriptors, strict=False):
        node = backward.by_name.get(name)
        if text in gradients and node is not None and node.target in CASTS:
            others[name] = backward.rows[node.inputs[0]].name
    return [_renamed(half, others, numbers, values) for half in (forward, backward)]


def _renamed(
    graph: Graph, names: Mapping[str, str], numbers: Mapping[str, int], values: Sequence[ValueRecord]
) -> Relisted:
    """A graph without the nodes in `names`: what reads one reads the node with the other name."""
    left = [node for node in graph.rows if node.name not in names]
    places = {node.name: number for number, node in enumerate(left)}
    rows = []
    for number, node in enumerate(left):
        read = [names.get(graph.rows[i].name, graph.rows[i].name) for i in node.inputs]
        inputs = tuple(dict.fromkeys(places[name] for name in read))
        value = numbers.get(node.name, node.value_id)
        rows.append(
            structs.replace(
                node, index=number, inputs=inputs, value_id=value, value=values[value] if value >= 0 else None
            )
        )
    outputs = [names.get(name, name) for name in graph.outputs]
    return Relisted(graph, rows, outputs, graph.output_descriptors, values)
