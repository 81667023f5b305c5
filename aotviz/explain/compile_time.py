"""Where the compile time goes, by the lines and the modules of the user's program.

Nothing times a compiler by source line: it captures, traces and lowers whole graphs. So the seconds of a compilation
are shared among the operators of the graph that Dynamo captured (of its own pipeline without Dynamo: the forward), and
each operator's share goes to its line, with what was made of it later: its backward and its kernels. A line that is
inlined many times, or unrolled in a loop, shows as what it costs. Equal blocks are one row: `h.*.attn`, 12 modules.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aotviz.explain import explained_tables, timeline
from aotviz.explain.cures import time_cures
from aotviz.explain.cures.registry import NO_ADVICE
from aotviz.explain.explanation import Point, counted, seconds, sentence
from aotviz.explain.misses import LIBRARY
from aotviz.explain.rows import GRAPH_LINE, Facts
from aotviz.explain.time_parts import AOT, BACKEND, CAPTURE, GUARDS, KERNELS, UNKNOWN, part_of
from aotviz.recording.dynamo_stage import REST
from aotviz.recording.sources import UNKNOWN as NO_LINE
from aotviz.recording.sources import SourceLine, module_path

if TYPE_CHECKING:
    from aotviz.explain.marked_frame import ExplainedTable

BY = ("line", "module")
GRAPHS = ("dynamo_output_graph", "aot_joint_graph", "aot_forward_graph", "aot_inference_graph")  # the first there is
ROLES = ("dynamo", "export", "inference", "forward")
STATEMENT = re.compile(r"^\s+(?!#|return\b|class\b|def\b)[A-Za-z_]\w*(?:: \"[^\"]*\")? = (?P<value>.*)")
BLOCK = re.compile(r"(?<![^.])\d+(?![^.])")  # a number in a module's path: one of several equal ones
MOST_TOLD = 3
GENERATED = "<eval_with_key>"  # the file of a graph's own code, which a captured backward is
UNROLLED = 200  # operators of one line in one graph: the line stands in a loop
COVERED = 0.95  # of a compilation's time: events that last longer are all of it
PARTS = {  # its columns
    CAPTURE: "capture",
    GUARDS: "guards",
    BACKEND: "backend",
    AOT: "aotautograd",
    KERNELS: "kernels",
    UNKNOWN: "other",
}

Operator = tuple[SourceLine, str, str]  # its line, the path of its module, the class of that


@dataclass
class Share:
    """What one line, or one kind of module, cost."""

    line: SourceLine
    module: str  # with `*` for the number of one of several equal ones
    kind: str  # the module's class
    modules: set[str] = field(default_factory=set)
    operators: int = 0
    parts: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # part of the time -> seconds
    compilations: dict[str, None] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())

    @property
    def is_unrolled(self) -> bool:
        return self.operators >= UNROLLED * len(self.compilations)


def shares(facts: Facts, by: str = "line", only: int | None = None) -> list[Share]:
    """The costliest first. What no operator of the user's stands for has no line and no module."""
    if by not in BY:
        raise ValueError(f"by is {' or '.join(map(repr, BY))}, not {by!r}")
    found: dict[object, Share] = {}
    for place in range(len(facts.data.compilations)) if only is None else (only,):
        parts = {part: spent for part, spent in parts_of(facts, place).items() if spent}
        counts = Counter(operators(facts, place)) if parts else Counter[Operator]()
        counts = counts or Counter([(NO_LINE, "", "")])
        for (line, module, kind), count in counts.items():
            folded = BLOCK.sub("*", module)
            key: object = (folded, kind) if by == "module" else str(line)  # a line may stand in two functions
            one = found.get(key)
            if one is None:
                one = found[key] = Share(line if by == "line" else NO_LINE, folded, kind)
            elif (one.module, one.kind) != (folded, kind):
                one.module = one.kind = ""  # the line stands in several
            one.modules.add(module)
            one.operators += count
            one.compilations[facts.id(place)] = None
            for part, spent in parts.items():
                one.parts[part] += spent * count / counts.total()
    return sorted((one for one in found.values() if one.parts), key=lambda one: -one.seconds)


def parts_of(facts: Facts, place: int) -> dict[str, float]:
    """The seconds of a compilation by the parts of the compiler.

    Its events take a little longer or shorter than torch says that it took. They then count in proportion.
    """
    found: dict[str, float] = defaultdict(float)
    top = timeline.span_of(facts, place)
    if top is None:
        for stage in facts.timed_stages(place):
            if stage.elapsed_ns > 0:
                found[part_of(stage.name) or AOT] += stage.elapsed_ns / 1e9
        return found
    for span, part in timeline.by_part(top):
        found[part] += span.own_seconds
    found[BACKEND] = max(0.0, found[BACKEND] - facts.of_our_backend.get(place, 0.0))
    took, told = facts.seconds(place), sum(found.values())
    if took and told > COVERED * took:
        return {part: spent * took / told for part, spent in found.items()}
    found[UNKNOWN] += max(0.0, took - told)
    return found


def operators(facts: Facts, place: int) -> Iterator[Operator]:
    """Those of the graph that the user's program became."""
    for kind in GRAPHS:
        if text := facts.text(facts.text_of(place, kind)):
            yield from _printed(text)
            return
    graph = next((one for one in (facts.graph(place, role) for role in ROLES) if one is not None), None)
    for row in graph.rows if graph is not None else ():
        if row.op not in ("placeholder", "output"):
            line = NO_LINE if row.source.file.startswith(GENERATED) else row.source
            yield line, module_path(row.module_path), row.module_type.rpartition(".")[2]


def _printed(text: str) -> Iterator[Operator]:
    """The same of a graph in a log, which has the lines and no modules."""
    line = NO_LINE
    for statement in text.splitlines():
        if match := GRAPH_LINE.search(statement):
            function, code = REST.sub(r"\g<function>", match["function"]), match["code"].strip()
            line = SourceLine(match["file"], int(match["line"]), function, code)
            if line.file.startswith(GENERATED):
                line = NO_LINE
        elif (match := STATEMENT.match(statement)) and not match["value"].isidentifier():
            yield line, "", ""


COLUMNS: explained_tables.Columns = {  # of (share, the seconds of all)
    "place": ("str", lambda row: str(row[0].line)),
    "code": ("str", lambda row: row[0].line.code),
    "function": ("str", lambda row: row[0].line.function),
    "module": ("str", lambda row: row[0].module),
    "class": ("str", lambda row: row[0].kind),
    "modules": ("int64", lambda row: len(row[0].modules - {""})),
    "operators": ("int64", lambda row: row[0].operators),
    "seconds": ("float64", lambda row: row[0].seconds),
    "share": ("float64", lambda row: row[0].seconds / row[1] if row[1] else 0.0),
    **{
        name: ("float64", lambda row, part=part: row[0].parts.get(part, 0.0))  # type: ignore[misc]
        for part, name in PARTS.items()
    },
    "compilations": ("object", lambda row: tuple(row[0].compilations)),
}


def frame(facts: Facts, only: int | None = None, *, by: str = "line") -> ExplainedTable:
    """One row for each line or kind of module, the costliest first; the seconds add up to those of compiling."""
    found = shares(facts, by, only)
    total = sum(one.seconds for one in found)
    return explained_tables.table(
        COLUMNS, [(one, total) for one in found], marked=("seconds",), hidden=("compilations",)
    )


def points(facts: Facts) -> list[Point]:
    """The lines of the user's that compiling spent most on; nothing where one line has all and is in no loop."""
    found = shares(facts)
    total = sum(one.seconds for one in found)
    own = [one for one in found if one.line.line and not LIBRARY.search(one.line.file)]
    unrolled = [one for one in own[:MOST_TOLD] if one.is_unrolled]
    if not total or (len(own) < 2 and not unrolled):
        return []
    told = [
        " ".join(filter(None, (str(one.line), one.line.code and f"`{one.line.code}`", f"{one.seconds / total:.0%}")))
        + f" ({seconds(one.seconds)}{f', {one.operators:,} operators' if one in unrolled else ''})"
        for one in own[:MOST_TOLD]
    ]
    more = f"; {counted(len(own) - MOST_TOLD, 'other line')}" if len(own) > MOST_TOLD else ""
    note = "A compilation's time is shared among the operators of its graph; `recording.compile_time()` has all lines"
    fix = time_cures.UNROLLED.said() if unrolled else NO_ADVICE
    return [Point(sentence(f"By source line, most was spent on {'; '.join(told)}{more}", note), fix=fix)]
