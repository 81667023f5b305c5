"""Plans side by side: what each partitioner, memory budget or policy saves, recomputes and needs, before it runs.

A plan is one way to cut a joint graph. Its peaks are those of `Memory`, so they are exact for graphs that run operator
by operator; its time is an estimate (`costs.py`). Of several plans, some are worse than another one in both. Of the
rest, a knee is a plan at which the price of a saved byte rises: a corner of the lower hull of peak against time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from aotviz.recording import costs, sizes, tables
from aotviz.recording.costs import Speed
from aotviz.recording.frozen import Frozen
from aotviz.recording.graph import Graph
from aotviz.recording.live_bytes import Memory, Timeline
from aotviz.recording.memory_facts import replaced_inputs
from aotviz.recording.saved import cost, held
from aotviz.recording.schema import CompilationData

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure


class Cut(Protocol):
    """A compilation that was partitioned: what a plan is read from."""

    @property
    def data(self) -> CompilationData: ...

    def graph(self, role: str, stage: str | None = None) -> Graph: ...


class Measured(NamedTuple):
    """What a run of a plan needed."""

    ms: float  # of a forward and a backward; the fastest of several
    peak_forward: int  # bytes alive, measured after each operator
    peak_backward: int
    differences: tuple[str, ...]  # a line for each node at which the plan differs from what was measured


@dataclass(frozen=True)
class Plan:
    """One way to cut the joint graph."""

    partitioner: str
    budget: float | None  # None: the partitioner reads none
    compilation: Cut
    memory: Memory
    symbols: Mapping[str, int]
    speed: Speed
    measured: Measured | None = None

    @property
    def name(self) -> str:
        return self.partitioner if self.budget is None else f"{self.partitioner}, budget {self.budget:g}"

    @property
    def peak_cpu(self) -> int:
        return self.memory.on("cpu").peak.nbytes if "cpu" in self.memory.devices else 0

    @cached_property
    def saved_bytes(self) -> int:
        """Bytes that stay allocated for the backward beside inputs and parameters, on the device whose peak counts."""
        records = self.compilation.data.saved_tensors
        known = held(records)
        elsewhere = self.memory.all_holders if self.counted.device else []
        moved = sum(one.nbytes for one in elsewhere if one.kind == "saved" and one.device != self.counted.device)
        return (sum(known) if len(known) == len(records) else self.memory.saved_bytes) - moved

    @cached_property
    def recomputed_flop(self) -> int:
        return sum(one.flop for one in self._recomputed)

    @cached_property
    def recompute_ms(self) -> float:
        return 1e3 * sum(one.seconds(self.speed) for one in self._recomputed)

    @cached_property
    def estimated_ms(self) -> float:
        """Of a forward and a backward."""
        return 1e3 * sum(one.seconds(self.speed) for found in self._costs.values() for one in found)

    @property
    def ms(self) -> float:
        """As measured, or else as estimated."""
        return self.estimated_ms if self.measured is None else self.measured.ms

    @property
    def peak(self) -> int:
        return self.counted.peak.nbytes

    @cached_property
    def counted(self) -> Timeline:
        """The memory whose peak counts: that of the accelerator, if the tensors are on one and on the CPU."""
        accelerator = self.memory.accelerator
        return self.memory.on(accelerator) if accelerator else self.memory

    @cached_property
    def _costs(self) -> dict[str, list[costs.Cost]]:
        return {role: costs.costs(self.compilation.graph(role), self.symbols) for role in ("forward", "backward")}

    @cached_property
    def _recomputed(self) -> list[costs.Cost]:
        return [self._costs["backward"][one.made_at] for one in self.compilation.data.recomputed]


class Allocation(Frozen, frozen=True):
    """A storage that is alive at the peak of one of two plans, or has another size there."""

    plan: str  # whose peak is higher, although its budget is smaller
    than: str
    at: str  # the node at the peak of `plan`
    name: str
    kind: str
    nbytes: int  # more at the peak of `plan`; negative: less
    source: str


class Plans:
    """Plans of one program, in the order in which they were asked for.

    `plans[0]` is the compilation of the first one: its `saved_tensors`, `recomputed`, `graph("backward")`, `memory()`.
    """

    def __init__(self, name: str, plans: Sequence[Plan]) -> None:
        self.name = name
        self.plans = tuple(plans)

    def __len__(self) -> int:
        return len(self.plans)

    def __getitem__(self, number: int) -> Cut:
        return self.plans[number].compilation

    def __iter__(self) -> Iterator[Cut]:
        return (plan.compilation for plan in self.plans)

    def __repr__(self) -> str:
        return f"<aotviz Plans of {self.name!r}: {len(self)} plans, the lowest peak {self._lowest}>"

    def __str__(self) -> str:
        return "\n\n".join([self.table.to_string(), *self.sentences])

    def _repr_html_(self) -> str:
        return str(self.table.to_html())

    @property
    def _lowest(self) -> str:
        best = min(self.plans, key=lambda plan: plan.peak, default=None)
        return "-" if best is None else f"{sizes.told(best.peak)} ({best.name})"

    @cached_property
    def accelerators(self) -> tuple[str, ...]:
        """The device whose peaks are in the table, where another column has those of the CPU; empty otherwise."""
        return tuple(dict.fromkeys(plan.counted.device for plan in self.plans if plan.counted.device))

    @cached_property
    def knees(self) -> tuple[int, ...]:
        """The numbers of the plans at which the price of a saved byte rises, the fastest first."""
        return corners([(plan.ms, plan.peak) for plan in self.plans])

    @property
    def table(self) -> pd.DataFrame:
        """One row per plan.

        Columns: partitioner, budget (missing if the partitioner reads none), saved (values), saved_bytes, recomputed
        (nodes), recomputed_flop, recompute_ms and estimated_ms (of a step), peak_forward, peak_backward and peak
        (bytes), at (the node at the peak), knee. Where tensors are on an accelerator and on the CPU, the peaks are
        those of the accelerator, and peak_cpu is that of the CPU. If the plans were run, also measured_ms,
        measured_peak and wrong (a sentence for an estimate that the run did not confirm).
        """
        columns = dict(_COLUMNS)
        if self.accelerators:
            columns["peak_cpu"] = ("int64", lambda plan: plan.peak_cpu)
        if any(plan.measured for plan in self.plans):
            columns |= _MEASURED
            columns["wrong"] = ("str", self._wrong)
        columns["knee"] = ("bool", lambda plan: self.plans.index(plan) in self.knees)
        return tables.table(columns, self.plans)

    def _wrong(self, plan: Plan) -> str:
        """Where the estimate of a plan was wrong: in bytes, or in which of two plans is faster."""
        if plan.measured is None:
            return ""
        said = [f"the peak: {plan.measured.differences[0]}"] if plan.measured.differences else []
        for other in self.plans:
            if other.measured is None or other is plan or plan.estimated_ms >= other.estimated_ms:
                continue
            if plan.measured.ms > NOISE * other.measured.ms:
                text = f"the time: estimated {_percent(plan.estimated_ms, other.estimated_ms)} of {other.name}"
                said.append(f"{text}, measured {_percent(plan.measured.ms, other.measured.ms)}")
                break
        return "; ".join(said)

    @cached_property
    def reversals(self) -> pd.DataFrame:
        """Where a smaller budget has a higher peak: the allocations that make it so, one per row, the largest first.

        `nbytes` is what is alive at the peak of `plan` and not at the peak of `than`, with the same partitioner and the
        next larger budget; negative for what is alive there only. The rows of a pair add up to the difference.
        """
        return tables.records(Allocation, [one for a, b in self._reversed() for one in _allocations(a, b)])

    @property
    def sentences(self) -> list[str]:
        """What the table shows: the knees, and each budget with a higher peak than a larger one."""
        said = [f"The peaks are those of {one}; `peak_cpu` is that of the CPU." for one in self.accelerators]
        said += [f"Knee: {self.plans[i].name}, {sizes.told(self.plans[i].peak)}." for i in self.knees]
        for plan, larger in self._reversed():
            said.append(f"{plan.name} needs {_more(plan, larger)}: {_most(plan, larger)}.")
        return said

    def _reversed(self) -> Iterator[tuple[Plan, Plan]]:
        """Each plan whose peak is higher than that of the next larger budget, with that."""
        budgets = [plan for plan in self.plans if plan.budget is not None]
        for plan in budgets:
            larger = [o for o in budgets if o.partitioner == plan.partitioner and _budget(o) > _budget(plan)]
            nearest = min(larger, key=_budget, default=None)
            if nearest is not None and plan.peak > nearest.peak:
                yield plan, nearest

    def plot(self) -> Figure:
        """Peak against time, a point per plan, as a plotly figure. Marked are the knees, and the budgets that need more
        than a larger one, with the largest allocation that makes it so."""
        from plotly.graph_objects import Figure, Scatter

        figure = Figure()
        for partitioner in dict.fromkeys(plan.partitioner for plan in self.plans):
            own = [plan for plan in self.plans if plan.partitioner == partitioner]
            figure.add_trace(
                Scatter(
                    x=[plan.ms for plan in own], y=[plan.peak for plan in own], name=partitioner,
                    mode="lines+markers+text", textposition="middle right",
                    text=["" if plan.budget is None else f"  {plan.budget:g}" for plan in own],
                    customdata=[[plan.name, plan.counted.peak.node, sizes.told(plan.saved_bytes)] for plan in own],
                    hovertemplate="%{customdata[0]}<br>%{y:,} bytes at %{customdata[1]}<br>%{x:.3f} ms"
                    "<br>saved: %{customdata[2]}<extra></extra>",
                )
            )  # fmt: skip
        more = list(self._reversed())
        marked = [("knee", "circle-open", [self.plans[i] for i in self.knees])]
        if more:
            marked.append(("needs more than a larger budget", "diamond-open", [plan for plan, _ in more]))
        for name, symbol, plans in marked:
            figure.add_trace(
                Scatter(
                    x=[plan.ms for plan in plans], y=[plan.peak for plan in plans], name=name, mode="markers",
                    marker={"symbol": symbol, "size": 18}, hoverinfo="skip",
                )
            )  # fmt: skip
        for plan, larger in more:
            most = _most(plan, larger).replace("`", "").replace(", ", ",<br>").replace(" (", "<br>(")
            text = f"{_more(plan, larger)}:<br>{most}"
            figure.add_annotation(x=plan.ms, y=plan.peak, text=text, ax=0, ay=-40, yanchor="bottom", standoff=10)
        how = "measured" if any(plan.measured for plan in self.plans) else "estimated"
        title = f"{self.name}: the lowest peak is {self._lowest}"
        figure.update_layout(
            title=title, xaxis_title=f"ms per step, {how}", yaxis_title="bytes at the peak",
            legend={"orientation": "h", "yanchor": "top", "y": -0.2},
        )  # fmt: skip
        ticks = _ticks([plan.peak for plan in self.plans])
        figure.update_yaxes(tickvals=ticks, ticktext=list(map(sizes.told, ticks)))
        return figure


def _ticks(peaks: Sequence[int]) -> list[int]:
    """Amounts of memory from below the lowest peak to above the highest, in steps of a power of two.

    >>> [sizes.told(one) for one in _ticks([3_400_000, 4_900_000])]
    ['3.00 MiB', '3.50 MiB', '4.00 MiB', '4.50 MiB', '5.00 MiB']
    """
    if not peaks:
        return []
    step = 2 ** max(0, ((max(peaks) - min(peaks)) // 2).bit_length() - 1)
    return list(range(min(peaks) // step * step, max(peaks) + step, step))


NOISE = 1.1  # a run that is slower by less is not called slower

_COLUMNS: tables.Columns = {
    **tables.attributes(partitioner="str", budget="float64"),
    "saved": ("int64", lambda plan: sum(1 for one in plan.compilation.data.saved_tensors if cost(one) != 0)),
    "saved_bytes": ("int64", lambda plan: plan.saved_bytes),
    "recomputed": ("int64", lambda plan: len(plan.compilation.data.recomputed)),
    **tables.attributes(recomputed_flop="int64", recompute_ms="float64", estimated_ms="float64"),
    "peak_forward": ("int64", lambda plan: plan.counted.peak_of("forward").nbytes),
    "peak_backward": ("int64", lambda plan: plan.counted.peak_of("backward").nbytes),
    "peak": ("int64", lambda plan: plan.peak),
    "at": ("str", lambda plan: plan.counted.peak.node),
}
_MEASURED: tables.Columns = {
    "measured_ms": ("float64", lambda plan: plan.measured and plan.measured.ms),
    "measured_peak": ("Int64", lambda plan: plan.measured and max(plan.measured[1:3])),
}


def _more(plan: Plan, larger: Plan) -> str:
    return f"{sizes.told(plan.peak - larger.peak)} more than {larger.name}"


def _most(plan: Plan, larger: Plan) -> str:
    """The largest of the allocations that make it so."""
    most = max(_allocations(plan, larger), key=lambda one: one.nbytes)
    return f"at `{most.at}`, `{most.name}` is alive ({sizes.told(most.nbytes)}; {_why(most.kind)})"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %"


def _budget(plan: Plan) -> float:
    return plan.budget or 0.0


def _why(kind: str) -> str:
    return {"saved": "saved for the backward", "intermediate": "computed in the backward"}.get(kind, f"{kind}")


def _allocations(plan: Plan, other: Plan) -> list[Allocation]:
    """What is alive at the peak of a plan and not at that of another, and the reverse, the largest first."""
    found: dict[str, Allocation] = {}
    peak = plan.counted.peak
    for memory, sign in ((plan.counted, 1), (other.counted, -1)):
        for one in memory.at_peak:
            before = found.get(one.name)
            total = sign * one.nbytes + (before.nbytes if before else 0)
            kind, source = (before.kind, before.source) if before else (one.kind, one.source)
            found[one.name] = Allocation(plan.name, other.name, peak.node, one.name, kind, total, source)
    return sorted((one for one in found.values() if one.nbytes), key=lambda one: -one.nbytes)


def corners(points: Sequence[tuple[float, float]]) -> tuple[int, ...]:
    """The numbers of the points (time, peak) that are inner corners of the lower hull, by time.

    The hull begins at the fastest point and ends at the lowest. At each of its corners, a further saved byte costs more
    time than the bytes before.

    >>> corners([(1, 100), (2, 50), (4, 40), (3, 60), (9, 39)])
    (1, 2)
    >>> corners([(1, 100), (2, 50)])
    ()
    """
    hull: list[int] = []
    for i in sorted(range(len(points)), key=lambda i: points[i]):
        if hull and points[i][1] >= points[hull[-1]][1]:
            continue  # slower, and no lower
        while len(hull) > 1 and not _turns(points[hull[-2]], points[hull[-1]], points[i]):
            hull.pop()
        hull.append(i)
    return tuple(hull[1:-1])


def _turns(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Whether the way from a to c is above b."""
    return (b[0] - a[0]) * (c[1] - a[1]) > (c[0] - a[0]) * (b[1] - a[1])


def plan(
    partitioner: str,
    budget: float | None,
    compilation: Cut,
    kinds: Mapping[str, str],
    symbols: Mapping[str, int] = MappingProxyType({}),
    speed: Speed = Speed(),  # noqa: B008
) -> Plan:
    """The plan of a compilation that was partitioned. `kinds`: what each input is, by its name."""
    halves = [compilation.graph(role) for role in ("forward", "backward")]
    memory = Memory(partitioner, halves, kinds, symbols, replaced=replaced_inputs(compilation.data.inputs))
    return Plan(partitioner, budget, compilation, memory, symbols, speed)
