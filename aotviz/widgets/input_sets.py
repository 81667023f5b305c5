"""The comparison of several sets of inputs as text: a row for each set, and the sentences on what differs."""

from __future__ import annotations

from aotviz.explain.compared_inputs import last_graphs
from aotviz.recording.schema import CompilationData, RecordingData

HEAD = ("set", "inputs", "kind", "graph", "saved", "wrapper")


def rows(data: RecordingData) -> list[tuple[str, ...]]:
    """One row for each set, with the columns of HEAD; a set that was not compiled has its error in the second."""
    if data.compared is None:
        return []
    by_id = {one.id: one for one in data.compilations}
    return [
        (one.name, *((one.error,) if one.error or one.compilation not in by_id else _row(by_id[one.compilation])))
        for one in data.compared.sets
    ]


def _row(one: CompilationData) -> tuple[str, ...]:
    graphs, role = last_graphs(one)
    main = graphs.get(role)
    inputs = ", ".join(
        f"{record.name}: {record.dtype.removeprefix('torch.')}[{', '.join(map(str, record.shape))}]"
        for record in one.inputs
    )
    return (
        inputs,
        one.kind,
        f"{len(one.graphs[main].op)} nodes" if main is not None else "",
        f"{len(one.saved_tensors)} tensors",
        f"{len(one.wrapper.source.rstrip().splitlines())} lines" if one.wrapper else "",
    )


def as_text(data: RecordingData) -> str:
    """The table, and a sentence for each difference."""
    if data.compared is None:
        return ""
    table = [HEAD, *rows(data)]
    whole = [row for row in table if len(row) == len(HEAD)]
    widths = [max(len(row[column]) for row in whole) for column in range(len(HEAD))]
    widths[0] = max(len(row[0]) for row in table)
    lines = [f"{data.compared.function}, compiled for {len(data.compared.sets)} sets of inputs"]
    for row in table:
        cells = [f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)]
        lines.append(f"  {'  '.join(cells)}".rstrip())
    said = data.compared.sentences or ["Nothing differs: the pipeline does the same for all sets."]
    return "\n".join([*lines, *(f"- {sentence}" for sentence in said)])
