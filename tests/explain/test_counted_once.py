"""Times of a recording: each second counts for one compilation, however compilations and threads lie in one another."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aotviz.explain import timeline
from aotviz.explain.rows import Facts
from aotviz.recording.schema import FORMAT, NONE, VERSION, CompilationData, EventTable, RecordingData
from tests.explain.logs import logged


def test_a_compilation_inside_another_one_counts_once(tmp_path: Path) -> None:
    inner = torch.compile(lambda x: (x.sin() * 2).cos(), backend="aot_eager")

    def backend(graph, inputs):
        inner(torch.ones(3))
        return graph

    made = logged(lambda: torch.compile(lambda x: x * 3, backend=backend)(torch.ones(2)), tmp_path)
    data, texts = made.rows
    dynamo = [row for row, name in enumerate(data.events.name) if texts[name] == "dynamo"]
    begun = [data.events.start_us[row] for row in dynamo]
    took = [data.events.duration_us[row] / 1e6 for row in dynamo]
    assert begun[1] + took[1] * 1e6 < begun[0] + took[0] * 1e6  # the second lies in the first
    table = made.timeline()
    assert table.iloc[0].seconds == pytest.approx(took[0])
    (outer, within) = (table[table.event.str.startswith(f"{one.id} ")].iloc[0].seconds for one in made)
    assert within == pytest.approx(took[1])
    assert outer == pytest.approx(took[0] - took[1])
    assert made.overview().seconds == pytest.approx(Facts(*made.rows).total_seconds)
    assert took[0] - took[1] < made.overview().seconds <= took[0]  # what torch says is a little less than its event


def events(*rows: tuple[str, float, float, int, int]) -> Facts:
    """Of one compilation; a row is (name, beginning and end in seconds, row of the event around it, compilation)."""
    names = [name for name, *_ in rows]
    table = EventTable(
        name=list(range(len(rows))),
        start_us=[begun * 1e6 for _, begun, *_ in rows],
        duration_us=[(ended - begun) * 1e6 for _, begun, ended, *_ in rows],
        parent=[parent for *_, parent, _ in rows],
        compilation=[compilation for *_, compilation in rows],
        log=[0] * len(rows),
        line=[1] * len(rows),
        thread=[0] * len(rows),
        args=[NONE] * len(rows),
    )
    one = CompilationData("0/0", "f", "", 0, {}, [], [], [], [], [], [], None, None, compile_id="0/0", log=0)
    return Facts(RecordingData(FORMAT, VERSION, {}, names, [one], 0, events=table), names)


def test_what_other_threads_do_meanwhile_is_no_time_of_its_own() -> None:
    facts = events(
        ("early", 0, 2, NONE, NONE),
        ("part", 1, 2, 0, NONE),
        ("dynamo", 2, 10, NONE, 0),
        ("wait", 4, 9, 2, 0),
        ("kernel 0", 4, 8, NONE, NONE),
        ("kernel 1", 4, 9, NONE, NONE),
        ("late", 9, 12, NONE, NONE),
        ("later", 11, 13, NONE, NONE),
    )
    compiled, apart = timeline.compiling(facts)
    assert compiled.seconds == 8
    assert {name: span.seconds for name, span in apart.children.items()} == {
        "early": 2, "kernel 0": 0, "kernel 1": 0, "late": 2, "later": 1,
    }  # fmt: skip
    assert timeline.tree(facts).seconds == 13
    texts = timeline.explain_all(facts).sentences
    assert texts == [
        "Of 8.0 s of compiling: capture by Dynamo 8.0 s (100%, 5.0 s of it in `wait`).",
        "Before and between the compilations, 5.0 s went to: late 2.0 s, early 2.0 s, later 1.0 s.",
    ]
