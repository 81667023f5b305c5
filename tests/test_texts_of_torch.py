"""No text of torch as torch wrote it is where a person reads: in what commands print and write, in what a recording
prints, and in the tables that explain. tests/ui/test_overview.py looks at the workbench.

The tables that are the rows of a log (`recording.guards`, `.artifacts`, ...) have torch's texts: they are the log.
"""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
import torch

import aotviz
from aotviz.__main__ import COMMANDS, main
from aotviz.reading.recording import Recording
from aotviz.widgets import summary
from tests import corpus
from tests.explain.logs import logged, recording
from tests.raw_texts import raw
from tests.ui import fixture

OWN = "own pipeline"
TABLES = (
    "recompiles",
    "cache_misses",
    "distinct_graph_breaks",
    "rank_differences",
    "graph_runs",
    "estimates",
    "timeline",
    "compile_time",
)
ELSEWHERE = {"demo", "verify", "cache", "open"}  # they compile, list keys, or serve the workbench


def read(name: str) -> Recording:
    return Recording(fixture.recording().data) if name == OWN else recording(name)


@pytest.mark.parametrize("name", [OWN, *corpus.names()])
def test_what_a_recording_prints_is_in_plain_words(name: str) -> None:
    of = read(name)
    found = {
        "repr": raw(repr(of)),
        "str": raw(of),
        "explain": raw(of.explain()),
        "explain in a notebook": raw(of.explain()._repr_html_()),
        "overview": raw(of.overview()),
        "text of a notebook": raw(summary.as_text(of.data)),
        "HTML of a notebook": raw(summary.as_html(of.data)),
        "title of a page": raw(summary.title(of.data)),
    }
    for one in of:
        found |= {f"repr of {one.id}": raw(repr(one)), f"{one.id} explained": raw(of.explain(one.id))}
    for data in of.data.compilations:
        found[f"names in the rail of {data.id}"] = raw("\n".join(name for stage in data.stages for name in stage.code))
    for kind in TABLES:
        table = getattr(of, kind)()
        found |= {f"{kind} in a notebook": raw(table._repr_html_()), f"{kind} printed": raw(repr(table))}
        for column in table.columns.difference(table.hidden):
            found[f"{kind}.{column}"] = [line for cell in table[column] for line in raw(cell)]
    assert {place: lines for place, lines in found.items() if lines} == {}


def words_of(page: str) -> str:
    """What a browser shows of a page without its scripts."""
    body = re.sub(r"(?s)<(script|style|title)\b.*?</\1>", "", page)
    return html.unescape(re.sub(r"<[^>]*>", "\n", body))


@pytest.mark.parametrize("name", [OWN, *corpus.names()])
def test_what_a_command_prints_and_writes_is_in_plain_words(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = tmp_path / "of.aotviz"
    read(name).save(of)
    source = str(of) if name == OWN else str(corpus.folder(name))
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    commands = {
        "show": ["show", source],
        "explain": ["explain", source, "--all"],
        "save": ["save", source, "-o", str(tmp_path / "saved.aotviz")],
        "report": ["report", source, "-o", str(page)],
        "trace": ["trace", source, "-o", str(trace)],
    }
    assert set(commands) | ELSEWHERE == set(COMMANDS)
    found = {}
    for command, arguments in commands.items():
        status, said = main(arguments), capsys.readouterr()
        assert status == 0 or "contains no times" in said.err
        found[command] = raw(said.out + said.err)
    found["the page"] = raw(words_of(page.read_text(encoding="utf-8")))
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"] if trace.exists() else []
    found["names of spans"] = [line for event in events for line in raw(event["name"])]
    assert {place: lines for place, lines in found.items() if lines} == {}


def failing(folder: Path) -> Recording:
    """A strict export and a `fullgraph=True` whose errors torch tells with its own objects."""

    class Adds(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y

    def program() -> None:
        torch._dynamo.reset()
        one, other = torch.ones(4), torch.ones(3)
        with pytest.raises(Exception, match="FakeTensor"):
            torch.export.export(Adds(), (one, other), strict=True)
        with pytest.raises(Exception, match="FakeTensor"):
            torch.compile(Adds(), fullgraph=True, backend="eager")(one, other)

    return logged(program, folder)


def test_an_error_that_torch_tells_with_its_objects_is_told_by_operator_and_message(tmp_path: Path) -> None:
    of = failing(tmp_path)
    assert raw(of.explain()) == raw(of.overview()) == []
    titles = list(of.overview().causes.title)
    assert len(titles) == 2
    assert all(": `add` raised RuntimeError: Attempting to broadcast" in title for title in titles)
    for one in aotviz.read_trace(tmp_path, index=False):
        assert raw(repr(one)) == raw(one) == []
