"""Graph breaks, times and differences between ranks, on the corpus."""

from __future__ import annotations

import pytest

from tests import corpus
from tests.explain.logs import recording

BREAKS = [
    ("prints", 'print("value"', "`print` cannot be part of a graph", "reorderable_logging_functions"),
    ("branches_on_data", "if x.sum() > 0", "branches on a tensor's value", "torch.where"),
    ("leaves_torch", "y.tolist()", "`tolist()` needs the tensor's values", "Keep the values in tensors"),
    ("calls_disabled", "return not_compiled(y) * 2", "torch.compiler.disable", "Remove the `disable`"),
    ("asks_for_a_number", "int(x.max())", "as a Python number", "capture_scalar_outputs = True"),
    ("logs_each_layer", 'log.warning("layer")', "a log message", "ignore_logging_functions"),
    (
        "breaks_on_purpose",
        "torch._dynamo.graph_break()",
        "calls `torch._dynamo.graph_break()`",
        "Remove the `graph_break()` call",
    ),
]


@pytest.mark.parametrize(("function", "code", "why", "fix"), BREAKS, ids=[one[0] for one in BREAKS])
def test_a_graph_break_is_told_with_its_line_and_remedy(function, code, why, fix) -> None:
    table = recording("graph_breaks").distinct_graph_breaks()
    found = table[table.function == function].iloc[0]
    assert found.place == f"corpus/graph_breaks.py:{corpus.line('graph_breaks', code)}"
    assert code in found.code
    assert why in found.why
    assert fix in found.fix


def test_a_break_in_a_loop_is_said_to_put_the_whole_function_into_eager() -> None:
    table = recording("graph_breaks").distinct_graph_breaks().set_index("function")
    assert table.loc["logs_each_layer"].whole_function_in_eager
    assert not table.loc["prints"].whole_function_in_eager


def test_breaks_met_again_are_counted_not_repeated() -> None:
    table = recording("compiled_autograd").distinct_graph_breaks()
    assert len(table) == 1
    assert table.iloc[0]["count"] == 2
    assert table.iloc[0].compilations == ("0/0", "0/1")


def test_the_timeline_adds_up() -> None:
    table = recording("training").timeline()
    total = table.iloc[0]
    assert total.event == "all compilations"
    assert total.seconds == pytest.approx(table.own_seconds.sum())
    first = table[table.depth == 1]
    assert first.seconds.sum() == pytest.approx(total.seconds)
    assert {"0/0 forward", "0/1 forward", "0/2 forward"} <= set(first.event)
    assert "entire_frame_compile" in set(table.event)


def test_the_timeline_of_one_compilation_is_its_part_of_the_whole() -> None:
    log = recording("training")
    whole, one = log.timeline(), log.timeline("0/1")
    assert one.iloc[0].event == "0/1 forward"
    assert one.iloc[0].seconds == pytest.approx(whole[whole.event == "0/1 forward"].iloc[0].seconds)


def test_the_plot_draws_every_span_within_its_parent() -> None:
    drawn = recording("training").plot_timeline().data[0]
    assert drawn.type == "icicle"
    values, children = dict(zip(drawn.ids, drawn["values"], strict=True)), {}
    for id, parent in zip(drawn.ids, drawn.parents, strict=True):
        children.setdefault(parent, []).append(values[id])
    assert len(children[""]) == 1
    for parent, inside in children.items():
        if parent:
            assert sum(inside) <= values[parent] * (1 + 1e-9)


def test_ranks_that_run_other_collectives_are_told_first() -> None:
    first = recording("ranks").explain().points[0]
    assert "different collectives in `reduce_loss`" in first.text
    assert "rank 0 runs `all_reduce`; rank 1 runs `all_reduce`, `all_reduce`" in first.text
    assert "hang" in first.fix


def test_a_rank_that_compiles_once_more_is_told_with_the_reason() -> None:
    table = recording("ranks").rank_differences().set_index("kind")
    found = table.loc["compilation"]
    assert found.function == "step"
    assert "Rank 1 compiled `step`" in found.why
    assert "a second time, rank 0 did not" in found.why
    assert "dimension 0 of `x` had size 4 and now has size 5" in found.why


def test_ranks_that_agree_on_a_function_are_not_told_of() -> None:
    assert "alike" not in set(recording("ranks").rank_differences().function)


def test_one_rank_has_no_differences() -> None:
    assert len(recording("training").rank_differences()) == 0


@pytest.mark.parametrize(
    ("compilation", "told"),
    [("0/0", "this backend cannot compile anything"), ("1/0", "a and b must have same reduction dim")],
)
def test_a_failed_compilation_is_told_with_what_was_raised(compilation, told) -> None:
    assert any(told in text for text in recording("errors").explain(compilation).sentences)


@pytest.mark.parametrize("name", corpus.names())
def test_every_log_of_the_corpus_is_explained(name) -> None:
    log = recording(name)
    overall = log.explain()
    assert overall.points
    assert "<li" in overall._repr_html_()
    for compilation in log:
        assert log.explain(compilation.id).points, compilation.id
