"""A recording as plain text tables for a terminal: which stages ran, how long they took, and what they changed."""

from __future__ import annotations

from collections.abc import Sequence

from aotviz.recording import sizes, tables
from aotviz.recording.dynamo_stage import plain_name
from aotviz.recording.listing import one_line
from aotviz.recording.saved import cost, costs_nothing
from aotviz.recording.schema import CompilationData, ErrorRecord, InputRecord, OutputRecord

WIDEST = 72  # characters of a cell
MOST_ROWS = 40  # of the table of inputs or outputs


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table with aligned columns, and numbers at the right. A cell is one line, and is cut if it is very long.

    >>> print(table(("stage", "ms"), [("trace", "12.5"), ("link", "0.1")]))
    stage    ms
    -----  ----
    trace  12.5
    link    0.1
    """
    cells = [[cell(value) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(header), *cells]) for i in range(len(header))]
    right = [bool(cells) and all(_is_number(row[i]) for row in cells) for i in range(len(header))]
    lines = []
    for row in [list(header), ["-" * width for width in widths], *cells]:
        parts = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True))
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def cell(value: object, widest: int = WIDEST) -> str:
    text = one_line(str(value))
    return text if len(text) <= widest else text[: widest - 3] + "..."


def compilation(data: CompilationData) -> str:
    """One compilation: its stages, then the special inputs and outputs, then a line on saved tensors."""
    kind = f" ({data.kind})" if data.kind else ""
    parts = [f"{one_line(plain_name(data.name))}{kind}, {time_and_stages(data, ' in ')}"]
    if data.cache is not None or data.replayed is not None:
        parts[0] += f"\n{cell(cache(data), 400)}"
    parts.append(stages(data))
    if data.error is not None:
        parts.append(failure(data.error))
    parts.extend(part for part in (inputs(data.inputs), outputs(data.outputs)) if part)
    if data.saved_tensors:
        parts.append(saved(data))
    return "\n\n".join(parts)


def time_and_stages(data: CompilationData, between: str) -> str:
    """How long the stages took that ran in this process, and how many there are."""
    total = sum(stage.elapsed_ns for stage in data.stages if not stage.replayed) / 1e6
    replayed = sum(stage.replayed for stage in data.stages)
    count = f"{len(data.stages)} stage{'' if len(data.stages) == 1 else 's'}"
    return f"{total:.1f} ms{between}{count}" + (f", {replayed} of them replayed from the cache" if replayed else "")


def cache(data: CompilationData) -> str:
    """What aotviz's cache said about a compilation; "" if it was not asked."""
    answer, replayed = data.cache, data.replayed
    said = f"cache {answer.outcome}: {answer.words}" if answer is not None else "cache hit" if replayed else ""
    saved = replayed.saved_ns if replayed is not None else 0
    differs = answer.differs if answer is not None else ()
    parts = [
        *(f"{one.name}: {one.before or 'nothing'} before, now {one.after or 'nothing'}" for one in differs),
        f"which saved {saved / 1e6:,.1f} ms" if saved else "",
        f"at {answer.place}" if answer is not None and answer.place else "",
        f"its stages are not shown: {replayed.note}" if replayed is not None and replayed.note else "",
    ]
    return "; ".join(part for part in (said, *parts) if part)


def failure(error: ErrorRecord) -> str:
    """Why a compilation did not finish, and whether the graph ran in eager instead."""
    if error.ran_in_eager:
        where = f" ({cell(error.place, 400)})" if error.place else ""
        return f"ran in eager{where}: stage {error.stage!r} refused it: {cell(error.message, 400)}"
    return f"failed in {error.stage!r}: {error.type}: {cell(error.message, 400)}"


def stages(data: CompilationData) -> str:
    rows = [
        (
            stage.name,
            f"{stage.elapsed_ns / 1e6:.1f}",
            sum(before.values()) or "",
            sum(after.values()) or "",
            ("replayed: " if stage.replayed else "") + ("late: " if stage.late else "") + stage.summary,
        )
        for _, stage, before, after in tables.ran(data)
    ]
    return table(("stage", "ms", "nodes before", "after", "what changed"), rows)


def inputs(records: Sequence[InputRecord]) -> str:
    """A table of the inputs that are mutated, duplicated or otherwise special, and a count of the plain ones."""
    special = [
        (r.name, r.dtype.removeprefix("torch."), _shape(r.shape), r.mutation, r.reason)
        for r in records
        if r.reason or r.duplicate_of or r.synthetic_base or r.mutates_data or r.mutates_metadata
    ]
    return _special("input", ("input", "dtype", "shape", "mutation", "why"), special, len(records))


def outputs(records: Sequence[OutputRecord]) -> str:
    """A table of the outputs that alias something, and a count of the plain ones."""
    special = [
        (r.name, r.output_type, r.base, " ".join(f".{step}" for step in r.view_chain), r.reason)
        for r in records
        if r.output_type != "non_alias" or r.reason
    ]
    return _special("output", ("output", "type", "base", "views", "why"), special, len(records))


def saved(data: CompilationData) -> str:
    """One line on what is saved for the backward."""
    own = [cost(record) for record in data.saved_tensors if not costs_nothing(record.name, record.memory_of)]
    donated = sum(record.donated for record in data.saved_tensors)
    return f"{sizes.kept(own, len(data.saved_tensors) - len(own))}; {donated} donated"


def _special(noun: str, header: Sequence[str], rows: Sequence[Sequence[str]], total: int) -> str:
    if not total:
        return ""
    plain = total - len(rows)
    count = f"{plain} plain {noun}{'' if plain == 1 else 's'}"
    if not rows:
        return count
    more = f"\n({len(rows) - MOST_ROWS} more)" if len(rows) > MOST_ROWS else ""
    return table(header, rows[:MOST_ROWS]) + more + (f"\nand {count}" if plain else "")


def _shape(shape: Sequence[int | str]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def _is_number(text: str) -> bool:
    return not text or text.replace(".", "", 1).isdigit()
