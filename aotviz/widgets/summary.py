"""A short summary of a recording, for places that do not run scripts: nbconvert, a diff view, an email.

It has one table per compilation: its stages, how long each took, the nodes after it, and what it changed. The summary
is available as text and as HTML; in HTML every name is escaped, and `code` in backquotes is a code element.
"""

from __future__ import annotations

from aotviz.explain import answers
from aotviz.explain.explanation import in_html
from aotviz.recording import terminal
from aotviz.recording.dynamo_stage import plain_name
from aotviz.recording.schema import CompilationData, RecordingData, StageRecord

HEAD = ("stage", "ms", "nodes", "what changed")


def title(data: RecordingData) -> str:
    """The page's title, e.g. "GPT2 (training) · aotviz"."""
    names = [f"{plain_name(one.name)}{f' ({one.kind})' if one.kind else ''}" for one in data.compilations[:3]]
    more = f" and {len(data.compilations) - 3} more" if len(data.compilations) > 3 else ""
    return f"{', '.join(names) or 'empty recording'}{more} · aotviz"


def nodes(compilation: CompilationData, stage: StageRecord) -> str:
    """The number of nodes in each graph, e.g. "forward 12, backward 15"; "" for a stage without graphs."""
    return ", ".join(f"{role} {len(compilation.graphs[index].op)}" for role, index in stage.graphs.items())


def rows(compilation: CompilationData) -> list[tuple[str, str, str, str]]:
    """One row per stage, with the columns of HEAD."""
    return [
        (
            stage.name,
            f"{stage.elapsed_ns / 1e6:.2f}",
            nodes(compilation, stage),
            ("replayed: " if stage.replayed else "") + stage.summary,
        )
        for stage in compilation.stages
    ]


def heading(compilation: CompilationData) -> str:
    """The compilation's name, kind, number of stages and time, and its error if there is one."""
    kind = f" · {compilation.kind}" if compilation.kind else ""
    said = terminal.cache(compilation)
    took = terminal.time_and_stages(compilation, " · ")
    text = f"{plain_name(compilation.name)}{kind} · {took}{f' · {said}' if said else ''}"
    if compilation.error is None:
        return text
    error = answers.plain_error(compilation.error)
    what = "ran in eager" if error.ran_in_eager else f"{error.type} in {error.stage}"
    return f"{text} · {what}: {error.message}"


def as_text(data: RecordingData) -> str:
    """The summary as aligned columns for a terminal."""
    if not data.compilations:
        return "aotviz recording: nothing was compiled"
    out: list[str] = []
    for compilation in data.compilations:
        table = [HEAD, *rows(compilation)]
        widths = [max(len(row[column]) for row in table) for column in range(3)]
        out.append(heading(compilation))
        for name, ms, counts, what in table:
            out.append(f"  {name:{widths[0]}}  {ms:>{widths[1]}}  {counts:{widths[2]}}  {what}".rstrip())
    return "\n".join(out)


def as_html(data: RecordingData) -> str:
    """The summary as plain HTML tables, without styles or scripts."""
    if not data.compilations:
        return "<p>aotviz recording: nothing was compiled</p>"
    out: list[str] = []
    for compilation in data.compilations:
        head = "".join(f"<th>{name}</th>" for name in HEAD)
        body = "".join(
            "<tr>" + "".join(f"<td>{in_html(cell)}</td>" for cell in row) + "</tr>" for row in rows(compilation)
        )
        caption = in_html(heading(compilation))
        out.append(f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    return "\n".join(out)
