"""Where a workbench opens: a bookmark names a compilation, a stage, a graph and a view, which stay valid when numbers
change.

The front end reads bookmarks leniently (`Bookmark` in extensions/core/src/state.ts), because an old one may name what
no longer exists. `Recording.show` checks the names, because an author of a notebook should hear of a wrong one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from aotviz.recording.compilation import Compilation
from aotviz.recording.findings import Painting

Beside = str | tuple[str, str] | Compilation  # a stage, one of its graphs, or the same stage of another compilation
MOST_BESIDE = 2  # as in state.ts

VIEWS = {  # the text of a tab, in lower case: the view's id in extensions/core/src/views
    "side by side": "compared",
    "code": "code",
    "diff": "diff",
    "graph": "graph",
    "backward": "backward",
    "aliasing": "aliasing",
    "events": "events",
    "saved tensors": "saved",
    "memory": "memory",
    "wrapper": "wrapper",
    "evidence": "evidence",
    "compilations": "compilations",
    "overview": "overview",
    "timeline": "timeline",
    "records": "records",
}


def bookmark(
    view: str,
    compilation: Compilation,
    stage: str,
    graph: str,
    paintings: Sequence[Painting],
    beside: Sequence[Beside] = (),
) -> dict[str, str]:
    """What the workbench is to select; "" leaves the choice to it.

    The last painting of the compilation colours its graphs. It also says which graph opens, if the arguments do not.

    Raises ValueError for an unknown view or too many graphs beside, and LookupError for an unknown stage or graph; the
    message lists what there is.
    """
    found = {"view": view, "compilation": compilation.id, "stage": stage, "role": graph}
    if view:
        if view.lower() not in VIEWS:
            raise ValueError(f"no view {view!r}; the workbench has {', '.join(VIEWS)}")
        found["view"] = VIEWS[view.lower()]
    check(compilation, stage, graph)
    if len(beside) > MOST_BESIDE:
        raise ValueError(f"beside has {len(beside)} graphs; at most {MOST_BESIDE} are drawn beside the selected one")
    for painted in paintings:
        if painted.compilation == compilation.id:
            found["painting"] = painted.label
            if found["view"] in ("", "graph") and not stage:
                found |= {"view": "graph", "stage": painted.stage, "role": painted.graph, "node": painted.node}
    others = [named(compilation, stage, one) for one in beside]
    found["beside"] = json.dumps(others, separators=(",", ":")) if others else ""
    found["paintings"] = str(len(paintings))  # a later one is opened at first
    return {name: text for name, text in found.items() if text}


def named(compilation: Compilation, stage: str, one: Beside) -> dict[str, str]:
    """The names of a graph to draw beside the selected one (`Beside` in extensions/core/src/state.ts)."""
    if isinstance(one, Compilation):
        check(one, stage)
        return {"compilation": one.id}
    name, graph = (one, "") if isinstance(one, str) else one
    check(compilation, name, graph)
    return {"stage": name, "role": graph} if graph else {"stage": name}


def check(compilation: Compilation, stage: str, graph: str = "") -> None:
    """Raise LookupError if there is no such stage or graph."""
    graphs = {record.name: sorted(record.graphs) for record in compilation.data.stages}
    if stage and stage not in graphs:
        raise LookupError(f"{compilation.name}: no stage {stage!r}. Stages: {list(graphs)}")
    if graph and graph not in graphs.get(stage, ()):
        where = f"stage {stage!r} has {graphs[stage]}" if stage else "a graph needs a stage"
        raise LookupError(f"{compilation.name}: no graph {graph!r}; {where}")
