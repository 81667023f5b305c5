"""Failures, restarts and cache lookups: one point for each cause, and times only where the log has them."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch._inductor import config as inductor

import aotviz
from aotviz.explain.cures import guard_cures
from aotviz.explain.explanation import Point, by_urgency
from tests import corpus
from tests.explain.logs import logged, recording
from tests.releases import guards_requires_grad


def test_failures_of_one_cause_are_one_point_with_the_users_line(tmp_path) -> None:
    def fails(x):
        return x @ x.new_ones(7, 7)

    def program() -> None:
        for _ in range(4):
            torch._dynamo.reset()
            with contextlib.suppress(Exception):
                torch.compile(fails, backend="eager", fullgraph=True)(torch.ones(3, 5))

    points = [point for point in logged(program, tmp_path).explain().points if "failed because" in point.text]
    assert len(points) == 1
    assert points[0].text.count("`fails [0/0]`") == 3
    assert "and 1 other failed" in points[0].text
    assert points[0].code == "return x @ x.new_ones(7, 7)"


def test_recompiles_of_four_ranks_have_one_point_for_each_cause(tmp_path) -> None:
    (log,) = corpus.folder("recompiles_values").iterdir()
    lines = log.read_text().splitlines()
    for rank in range(4):
        ranked = [line[:-1] + f', "rank": {rank}}}' if line.startswith("V") else line for line in lines]
        (tmp_path / f"trace_rank_{rank}.log").write_text("\n".join(ranked))
    four, one = aotviz.read_trace(tmp_path, index=False), recording("recompiles_values")
    again = [[text for text in read.explain().sentences if "compiled again" in text] for read in (four, one)]
    assert len(again[0]) == len(again[1]) > 1
    assert len(four.recompiles()) == 4 * len(one.recompiles())


def test_a_function_that_runs_in_eager_after_a_graph_break_did_not_fail() -> None:
    assert not any("failed" in text for text in recording("restarts").explain().sentences)


def test_restarts_say_what_they_cost() -> None:
    found = [text for text in recording("restarts").explain().sentences if "again from the first line" in text]
    assert len(found) == 1
    assert "`breaks`, `grows`" in found[0]
    assert "2 times; what it had done before took" in found[0]
    one = [text for text in recording("restarts").explain("0/0").sentences if "again from the first line" in text]
    assert len(one) == 1


def test_bypasses_of_one_cause_are_one_point() -> None:
    torch._dynamo.reset()
    with inductor.patch(post_grad_custom_post_pass=lambda graph: None), aotviz.watch() as watched:
        for function in (lambda x: x.sin() + 1, lambda x: x.cos() + 1):
            torch.compile(function)(torch.randn(4))
    texts = [text for text in watched.explain().sentences if "bypassed" in text]
    assert len(texts) == 1
    assert "AOTAutograd cache and the FX graph cache" in texts[0]
    assert "Unsupported post grad custom pass. Compiling them took" in texts[0]


def test_a_part_that_prints_the_same_and_hashes_differently_is_named() -> None:
    found = next(
        point
        for point in recording("cache_type_first", "cache_type_second").explain().points
        if "missed the AOTAutograd cache" in point.text
    )
    assert "`torch._inductor.config.max_autotune_gemm_backends` differs in what torch does not print" in found.text
    assert "same type" in found.fix
    assert corpus.line("cache_type", "max_autotune_gemm_backends")


def test_what_is_set_is_not_advised(tmp_path) -> None:
    def program() -> None:
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                return gradient * 2

        torch._dynamo.reset()
        torch.compile(lambda x: Twice.apply(x).sin())(torch.ones(3, requires_grad=True))

    plain = logged(program, tmp_path).explain().points
    assert any("allow_custom_autograd_functions = True" in point.fix for point in plain)
    log = tmp_path / "trace.log"
    setting = "torch._functorch.config.autograd_cache_allow_custom_autograd_functions"
    text, name = log.read_text(), setting.rpartition(".")[2]
    assert f'"{name}": false' in text
    log.write_text(text.replace(f'"{name}": false', f'"{name}": true'))
    told = [point for point in aotviz.read_trace(log, index=False).explain().points if "bypassed" in point.text]
    assert "is set, and torch bypasses the cache anyway" in told[0].text
    assert not told[0].fix


def test_the_time_of_a_captured_backward_is_that_of_its_events() -> None:
    title = recording("compiled_autograd").explain().title
    assert "not timed" not in title
    assert "s in all" in title


def test_nobody_is_told_to_mark_what_compiled_autograd_lifted(tmp_path) -> None:
    def program() -> None:
        torch._dynamo.reset()
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
        with torch._dynamo.compiled_autograd._enable(lambda graph: torch.compile(graph, backend="aot_eager")):
            for rows in (2, 3, 4):
                model(torch.ones(rows, 4)).sum().backward()
                model.zero_grad()

    read = logged(program, tmp_path)
    assert {one.kind for one in read if one.compile_id.count("/") == 0} == {"compiled autograd"}
    fixes = " ".join(point.fix for point in read.explain().points)
    assert "mark_dynamic" not in fixes
    assert "these sizes are symbols in this capture" in fixes


def test_failures_come_first_and_then_what_costs_most(tmp_path) -> None:
    """One log of several programs of the corpus: a hang, an export that fails, a recompile limit, a bypass, breaks."""
    names = ("ranks", "exports", "recompile_limit", "cache_detailed_second", "graph_breaks", "errors")
    read = aotviz.read_trace([corpus.folder(name) for name in names], index=False)
    points = read.explain().points
    remarks = next(n for n, point in enumerate(points) if not point.kind)
    assert any("does not say whether" in point.text for point in points[remarks:])
    ranked = points[:remarks]
    assert "different collectives" in ranked[0].text
    failed = [point for point in ranked if point.failed]
    assert list(ranked[: len(failed)]) == failed
    said = " ".join(point.text for point in failed)
    for words in ("because it has to know whether", "the recompile limit", "runs entirely in eager", "failed because"):
        assert words in said
    rest = [(point.kind == "cache", -point.seconds) for point in ranked[len(failed) :]]
    assert rest == sorted(rest)  # misses of caches last
    assert rest[0][1] < 0
    assert any("s of compiling: " in point.text for point in points[remarks:])


def test_cache_misses_of_four_ranks_are_one_point_for_each_cause(tmp_path) -> None:
    """Rank 0 wrote the cache; ranks 1 to 3 miss it for the same reasons, and have one another's keys."""
    first, second = (next(corpus.folder(f"cache_detailed_{which}").glob("*.log")) for which in ("first", "second"))
    for rank, log in enumerate((first, second, second, second)):
        lines = log.read_text().split("\n")
        ranked = [line[:-1] + f', "rank": {rank}}}' if line.startswith("V") else line for line in lines]
        (tmp_path / f"trace_rank_{rank}.log").write_text("\n".join(ranked))
    both = recording("cache_detailed_first", "cache_detailed_second").explain().sentences
    four = aotviz.read_trace(tmp_path, index=False).explain().sentences
    apart = {text.split("`")[1] for text in four if text.startswith("In `")}  # the ranks' graphs or inputs differ
    assert apart == {f"{what}_differs" for what in ("code", "shape", "stride", "dtype", "grad")}
    misses = [sum("missed the" in text and "compared with" in text for text in texts) for texts in (both, four)]
    assert misses == [len(apart) + 1, 1]
    assert sum("with keys that other processes had looked up before" in text for text in four) == 1
    assert sum("bypassed" in text for text in four) == 1


def test_a_recompile_on_one_rank_is_one_point_that_names_the_rank() -> None:
    texts = [text for text in recording("ranks").explain().sentences if "`step`" in text and "again" in text]
    assert len(texts) == 1
    assert "Only rank 1 compiled it again" in texts[0]


def test_a_miss_that_follows_from_what_ranks_diverge_in_is_not_told() -> None:
    texts = recording("ranks").explain().sentences
    assert sum("`reduce_loss`" in text for text in texts) == 1


def test_a_point_about_which_nothing_is_to_be_done_comes_after_those_with_a_cure() -> None:
    cured = Point("cured", fix=guard_cures.GROWING_CACHE.said(), seconds=1)
    settled = Point("settled", fix=guard_cures.PROMPT.said(), seconds=9)
    failed = Point("failed", fix=guard_cures.PROMPT.said(), failed=True)
    assert by_urgency([settled, cured, failed]) == [failed, cured, settled]


class Named(torch.nn.Module):
    """A block whose name is a constant of its programs, as the key-value cache of a layer is."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * len(self.name)


@pytest.mark.parametrize("names", ["abcd", "aaaa"])
def test_a_size_that_changes_once_for_each_of_many_programs_follows_from_what_made_them_many(names: str) -> None:
    torch._dynamo.reset()
    blocks = [Named(name) for name in names]
    with aotviz.watch() as recording:
        for block in blocks:
            block.compile(backend="eager")
        for length in (5, 7):
            for block in blocks:
                block(torch.ones(length))
    points = [point for point in recording.explain().points if point.kind == "recompile"]
    assert len(points) == 1
    if names == "aaaa":
        assert "dimension 0 of `x` had size 5" in points[0].text
        assert len(recording) == 2
    else:
        assert "`self.name` was 'a' and is now 'b'" in points[0].text
        assert any("dimension 0 of `x` had size 5 and now has size 7" in text for text in points[0].followed)
        assert len(points[0].ids) == len(recording) - 1 == 7


@guards_requires_grad
def test_recompiles_that_one_edit_cures_are_one_point() -> None:
    torch._dynamo.reset()
    model = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(3))).requires_grad_(False)
    with aotviz.watch() as recording:
        step = torch.compile(model, backend="eager")
        for layer in (model[2], model[1], model[0]):
            layer.requires_grad_(True)
            step(torch.ones(2, 3))
    (point,) = [point for point in recording.explain().points if point.kind == "recompile"]
    assert len(point.ids) == len(recording) - 1 == 2
    assert "`step[0].bias.requires_grad` was False and is now True" in " ".join([point.text, *point.followed])
