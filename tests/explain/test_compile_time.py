"""Where the compile time goes by source line and by module: the rows add up, and follow what the graph has."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

import aotviz
from aotviz.explain import compile_time
from aotviz.explain.rows import Facts
from tests import corpus
from tests.explain.logs import logged, recording


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x).relu().sin().cos().tanh()
        return self.second(x)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x + 1


def recorded() -> aotviz.Recording:
    with aotviz.record() as made:
        aotviz.compile(Model(), backend="eager")(torch.ones(2, 4)).sum().backward()
    return made


def test_equal_blocks_are_one_row_and_the_rows_add_up() -> None:
    made = recorded()
    table = made.compile_time(by="module").set_index("module")
    assert dict(table.modules) == {"blocks.*": 3, "blocks.*.first": 3, "blocks.*.second": 3, "": 0}
    assert dict(table.operators) == {"blocks.*": 12, "blocks.*.first": 3, "blocks.*.second": 3, "": 1}
    assert table.loc["blocks.*", "class"] == "Block"
    assert table.seconds.sum() == pytest.approx(made.overview().seconds)
    assert table.share.sum() == pytest.approx(1)
    assert table.loc["blocks.*"].seconds == pytest.approx(made.overview().seconds * 12 / 19)
    parts = table[list(compile_time.PARTS.values())].sum()
    times = made.overview().times
    assert {name: parts[column] for name, column in compile_time.PARTS.items() if parts[column]} == pytest.approx(times)


def test_the_line_with_most_operators_is_first_and_is_said() -> None:
    first, *_ = recorded().compile_time().itertuples()
    assert first.code == "x = self.first(x).relu().sin().cos().tanh()"
    assert first.operators == 15
    assert first.module == ""  # it is in a Block and in a Linear
    made = recorded()
    (told,) = (text for text in made.explain().sentences if text.startswith("By source line"))
    assert "`x = self.first(x).relu().sin().cos().tanh()` 79%" in told


@pytest.mark.parametrize("name", corpus.names())
def test_the_lines_of_a_log_are_those_of_its_graphs_and_their_times_add_up(name: str) -> None:
    read = recording(name)
    assert read.compile_time().seconds.sum() == pytest.approx(read.overview().seconds)
    facts, whole = Facts(*read.rows), read.data
    for place, one in enumerate(whole.compilations):
        printed = facts.text(facts.text_of(place, "dynamo_output_graph"))
        if printed.count("class ") != 1:
            continue  # the bodies of a higher-order operator are printed as graphs of their own
        lines = Counter(line.line for line, *_ in compile_time.operators(facts, place))
        graph = one.graphs[next(stage.graphs["dynamo"] for stage in one.stages if "dynamo" in stage.graphs)]
        assert lines.total() == sum(op in "fmc" for op in graph.op)


def test_a_loop_that_is_unrolled_costs_by_its_length(tmp_path: Path) -> None:
    def long(x):
        for _ in range(9):
            x = x.sin()
        return x * 2

    def program() -> None:
        torch._dynamo.reset()
        torch.compile(long, backend="aot_eager")(torch.ones(3))

    table = logged(program, tmp_path).compile_time().set_index("code")
    assert table.loc["x = x.sin()"].operators == 9
    assert table.loc["x = x.sin()"].share == pytest.approx(0.9)


def test_another_way_to_group_is_refused() -> None:
    with pytest.raises(ValueError, match="by is 'line' or 'module', not 'file'"):
        recorded().compile_time(by="file")
