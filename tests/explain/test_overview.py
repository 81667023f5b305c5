"""What a person sees first of a recording: the headline names the first cause, the times add up, what followed from a
cause stands with it, and what has no cause is healthy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import aotviz
from aotviz.explain import answers
from aotviz.lowerings import run_graph
from aotviz.reading.recording import Recording
from aotviz.widgets import parts
from tests import corpus
from tests.explain.logs import recording

HEADLINES = {  # what the program of the corpus does, in the words of the overview
    "aliases": "`writes_a_view` was recompiled: `x` had 1 dimension and now has 2. It costs 459 ms of 2.7 s.",
    "aoti": "Compiled 2 times, 25.8 s. Nothing was compiled again, and no graph broke.",
    "errors": "5 of 5 compilations failed. `on_broken_backend [0/0]` failed: the backend `broken_backend` raised "
    "RuntimeError: this backend cannot compile anything. 4 other causes below.",
    "exports": "5 of 8 exports failed. Export 2 and 1 other export failed: it is not known while tracing whether "
    "`n > 3`. 2 other causes below.",
    "graph_breaks": "`logs_each_layer` runs in eager: a log message cannot be part of a graph. 8 other causes below.",
    "ranks": "Ranks 0 and 1 will hang: in `reduce_loss`, `twice` is True where it is False on rank 0: rank 1 runs "
    "`all_reduce` where rank 0 runs no further collective. 3 other causes below.",
    "recompile_limit": "`forward` was recompiled 16 times up to the limit, and the rest runs in eager: "
    "`self.steps_done` changed (values seen: 0, 1, 2, 3, 4, ... 15). 4 other causes below.",
}


@pytest.mark.parametrize("name", HEADLINES)
def test_the_headline_is_the_first_cause(name: str) -> None:
    found = recording(name).overview()
    assert found.headline == HEADLINES[name]
    assert found.healthy == (name == "aoti")
    assert str(found).startswith(found.headline)


def test_exports_and_compilations_that_failed_are_counted_apart() -> None:
    class Branch(torch.nn.Module):
        def __init__(self, given: int | None) -> None:
            super().__init__()
            self.given = given

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n = self.given or x.sum().item()
            return x * 2 if n > 3 else x

    @torch.compile(backend="eager")
    def good(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @torch.compile(backend="eager", fullgraph=True)
    def bad(x: torch.Tensor) -> torch.Tensor:
        print("in the graph")
        return x + 1

    attempts = [
        *(
            lambda given=given: torch.export.export(Branch(given), (torch.ones(3),), strict=True)
            for given in (4, 5, None)
        ),
        lambda: good(torch.ones(3)),
        lambda: good(torch.ones(3, dtype=torch.float64)),
        lambda: bad(torch.ones(3)),
    ]
    torch._dynamo.reset()
    failed = []
    with aotviz.watch() as watched:
        for attempt in attempts:
            try:
                attempt()
            except Exception as error:
                failed.append(error)
    assert len(failed) == 2
    assert watched.overview().headline.startswith("1 of 3 exports and 1 of 3 compilations failed. ")
    assert watched.explain().title.startswith("3 exports and 3 compilations of 2 functions, 1 of them a recompile; ")


def test_a_second_run_that_had_to_compile_is_told_before_a_bypass_that_cost_little() -> None:
    cold, bypass = recording("cache_second").overview().causes.itertuples()
    assert cold.title.startswith("6 compilations found nothing in the caches")
    assert bypass.title.startswith("`custom_function [7/0]` bypassed the cache: the graph calls a custom")
    assert cold.seconds > 20 * bypass.seconds
    first = recording("cache_detailed_second").explain(earlier=recording("cache_detailed_first")).points[0]
    assert "`shape_differs [1/0]` missed" in first.text


def test_a_recompile_that_cost_little_is_told_to_have_and_no_other() -> None:
    found = recording("recompile_limit").overview()
    total = sum(row.seconds for row in found.functions.itertuples())
    told = {row.text: row.seconds / total for row in found.causes.itertuples() if row.kind == "recompile"}
    small = {text: share for text, share in told.items() if "so there is little to gain" in text}
    assert 0 < len(small) < len(told)
    assert max(small.values()) < 0.05
    assert all(f"That is {share:.0%} of the compile time" in text for text, share in small.items())


def test_an_error_is_told_by_one_sentence_in_lists_in_the_banner_and_by_explain() -> None:
    one = recording("errors")
    titles = list(one.overview().causes.title)
    for shown in (parts.index(one).compilations, answers.for_page(one).compilations):
        words = [head.error.message.rstrip(".") for head in shown]
        assert [title.partition("failed: ")[2].lower() for title in titles] == [told.lower() for told in words]
    assert (
        parts.compilation(one, "4/0").compilation.error.message == "The program raises ValueError while it is traced."
    )
    assert one["4/0"].data.error.message.startswith("Observed exception")  # torch's own, where it is kept


@pytest.mark.parametrize("name", corpus.names())
def test_a_title_says_of_what_it_is_and_is_whole(name: str) -> None:
    for title in recording(name).overview().causes.title:
        assert not title.endswith("…")
        assert title.count("`") % 2 == 0
        assert not re.match(r"It |The program |`?Torch says", title)


@pytest.mark.parametrize("name", corpus.names())
def test_the_times_add_up_and_every_cause_is_about_something_that_is_there(name: str) -> None:
    one = recording(name)
    found, known = one.overview(), {compilation.id for compilation in one.compilations}
    assert sum(found.times.values()) == pytest.approx(found.seconds)
    for cause in found.causes.itertuples():
        assert cause.kind
        assert cause.title
        assert set(cause.compilations) <= known
    assert {id for row in found.functions.itertuples() for id in row.compilations} == known


@pytest.mark.parametrize("name", corpus.names())
def test_causes_come_in_the_order_of_explain_and_none_is_lost(name: str) -> None:
    one = recording(name)
    causes = one.overview().causes
    points = [point for point in one.explain().points if point.kind]
    assert [(row.text, row.followed) for row in causes.itertuples()] == [(one.text, one.followed) for one in points]
    told = " ".join(one.explain().sentences)
    for section in answers.sections(answers.facts_of(one)):
        for point in section.points:
            assert point.kind in ("", "ranks") or point.text in told  # a recompile says on which ranks it was


def job(folder: Path) -> Recording:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.scale = torch.nn.Linear(4, 4), 1.0

        def forward(self, x):
            y = self.linear(x) * self.scale
            if y.sum() > 1e9:
                y = y + 1
            return y.sin()

    torch._dynamo.reset()  # another test may have compiled the same code
    model = Scaled()
    with aotviz.record() as made:
        compiled = aotviz.compile(model, backend="eager", cache=str(folder))
        for size, scale in ((4, 1.0), (4, 2.0), (5, 3.0), (6, 3.0)):
            model.scale = scale
            compiled(torch.randn(size, 4)).sum().backward()
    return made


def test_what_the_rest_of_a_function_sees_again_follows_from_what_changed(tmp_path: Path) -> None:
    found = job(tmp_path).overview()
    by_title = {row.title.partition(": ")[2]: row for row in found.causes.itertuples()}
    size = by_title["dimension 0 of `x` had size 4 and now has size 5"]
    rest, *_ = size.followed
    assert "dimension 0 of `y` had size 4 and now has size 5" in rest
    assert len(size.compilations) == 2
    assert by_title["`self.scale` was 1.0 and is now 2.0"].kind == "recompile"
    assert by_title["the program branches on a tensor's value, which is not known while compiling"].code
    assert len(found.causes) == 3
    assert [(row.name, row.after, row.again) for row in found.functions.itertuples()] == [
        ("Scaled", "", 2),
        ("forward", f"after line {job.__code__.co_firstlineno + 8}", 1),
    ]
    assert not found.healthy


def test_a_saved_file_says_the_same(tmp_path: Path) -> None:
    made = job(tmp_path)
    made.save(tmp_path / "job.aotviz")
    loaded = aotviz.load(tmp_path / "job.aotviz")
    assert str(loaded.overview()) == str(made.overview())
    assert loaded.overview().functions.equals(made.overview().functions)


def test_a_second_process_says_that_nothing_was_compiled(tmp_path: Path) -> None:
    def half(x):
        return (x * 0.5).sin()

    headlines = []
    for _ in range(2):
        torch._dynamo.reset()
        with aotviz.record() as made:
            aotviz.compile(half, backend="eager", cache=str(tmp_path))(
                torch.ones(3, requires_grad=True)
            ).sum().backward()
        headlines.append(made.overview().headline)
    assert headlines[0].startswith("Compiled once, ")
    assert headlines[0].endswith("Nothing was compiled again, and no graph broke.")
    assert headlines[1].startswith("Nothing was compiled: 1 of 1 from the cache, ")


def test_what_is_written_viewed_kept_and_refused_is_told_of_each_function() -> None:
    def writes(x, w):
        x.mul_(2)
        return x[0], (x * w).sum()

    with aotviz.record() as made:
        compiled = aotviz.aot_function(writes, run_graph)
        compiled(torch.ones(3), torch.ones(3, requires_grad=True))
    (row,) = made.overview().functions.itertuples()
    assert row.aliases.startswith("writes `x`; ")
    assert row.aliases.endswith(" is a view")
    assert row.kept_bytes == 12


def test_a_rest_after_a_graph_break_is_not_called_by_dynamos_name(tmp_path: Path) -> None:
    for of in (job(tmp_path), *map(recording, corpus.names())):
        said = of.overview()
        assert "torch_dynamo_resume" not in " ".join([str(of.explain()), said.headline, *said.causes.title])
