"""A sampled part of `make parity`, and how its page is put together."""

from __future__ import annotations

import json

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tests.oracle.progress import stable
from tests.parity import __main__ as command
from tests.parity import graphs, report, walk
from tests.parity.cases import section
from tests.parity.sections import SECTIONS
from tests.tiers import slow

SAMPLED = {  # cheap and telling, the first of each section most of all; the rest is `make parity`'s
    "op_dtypes": ["mul", "cumsum", "logical_and"],
    "modules": ["GRUCell", "BatchNorm1d"],
    "higher_order": ["cond.simple", "map.simple"],
    "models": ["convolutions", "llama", "gru", "embeddings on Inductor"],
    "autograd_functions": ["SelectAutogradFunction", "ForwardHasDefaultArgsAutogradFunction"],
}


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("name", "group"),
    [
        slow(name, group) if k and name != "autograd_functions" else (name, group)
        for name, groups in SAMPLED.items()
        for k, group in enumerate(groups)
    ],
)
def test_what_torch_gets_right_ours_gets_right(name, group):
    torch.manual_seed(0)
    judged = 0
    for case in section(name).cases(group):
        row = case.judge()
        assert not row.get("worse"), f"{case.key}: {row['ours']['text']}"
        judged += "ours" in row
    assert judged


@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_lists_its_groups_once(name):
    groups = section(name).groups()
    assert groups
    assert len(groups) == len(set(groups))


def row(key, ours="equal", theirs="equal", worse=False, better=False):
    made = {who: {"status": s, "cause": f"{s}: x", "text": ""} for who, s in (("ours", ours), ("torch", theirs))}
    return {"key": key, **made, "worse": worse, "better": better}


def test_the_page_counts_by_cause_and_names_what_is_missing():
    rows = [row("a#0"), row("a#1", ours="wrong", worse=True), {"key": "b#0", "skipped": "sparse"}]
    text = report.section_text("Title", "About.", rows, ["c"])
    assert "| aotviz | 1 | 0 | 1 | 0 |" in text
    assert "| wrong: x | 1 | `a#1` |" in text
    assert "| sparse | 1 |" in text
    assert "Missing: 1 groups (c)." in text


def test_a_section_written_anew_leaves_the_others_as_they_are():
    page = report.replaced("# Head\n", "B", "## B\n\nold\n", ["A", "B"])
    page = report.replaced(page, "A", "## A\n\nfirst\n", ["A", "B"])
    assert page.startswith("# Head\n\n## A\n")
    assert page.index("## A") < page.index("## B")
    again = report.replaced(page, "B", "## B\n\nnew\n", ["A", "B"])
    assert again == page.replace("old", "new")
    assert "## C\n\nof another command\n" in report.replaced(
        page + "\n## C\n\nof another command\n", "A", "## A\n", ["A", "B"]
    )


def test_causes_name_no_path_and_no_address():
    assert stable("<f at 0x7f00aa> in /home/me/x.py, 1/2") == "<f at …> in …, 1/2"


@pytest.mark.slow
def test_a_walk_goes_on_where_it_stopped_and_marks_a_case_that_ended_its_process(tmp_path):
    arguments = ["--section", "autograd_functions", "--folder", str(tmp_path), "--page", str(tmp_path / "page.md")]
    log = walk.progress_file(tmp_path, "autograd_functions")
    log.write_text(json.dumps({"key": "NumpyCubeAutogradFunction#0", "started": True}) + "\n")
    assert command.main([*arguments, "--seconds", "0.001"]) == 1
    text = (tmp_path / "page.md").read_text()
    assert "the process ended | 1" in text
    assert "Missing: " in text


def compilation(fn):
    graph = make_fx(fn, tracing_mode="fake")(torch.ones(2, 3))
    return dict.fromkeys(graphs.ROLES, graph)


@pytest.mark.parametrize(
    ("ours", "theirs", "why"),
    [
        (lambda x: x.sin(), lambda x: x.sin(), []),
        (lambda x: x.sin(), lambda x: x.sin().t(), ["views"]),
        (lambda x: x.sin(), lambda x: x.cos(), ["other"]),
        (lambda x: x.sin(), lambda x: x.sin().sum(), ["other"]),
        (lambda x: (x.sin(), x.cos()), lambda x: (x.cos(), x.sin())[::-1], ["order"]),
    ],
)
def test_why_graphs_differ_is_told_from_the_graphs(ours, theirs, why):
    found = graphs.beside([compilation(ours)], [compilation(theirs)])
    assert found["causes"] == why
    assert found["same"] == dict.fromkeys(graphs.ROLES, 0 if why else 1)


def test_of_graphs_that_one_pipeline_has_alone_none_is_counted():
    sine, cosine = (compilation(fn) for fn in (lambda x: x.sin(), lambda x: x.cos()))
    found = graphs.beside([cosine, sine], [sine])
    assert found["causes"] == ["pieces"]
    assert found["same"] == dict.fromkeys(graphs.ROLES, 1)


def test_the_page_shows_an_example_of_each_cause():
    row = {"key": "m", "graphs": graphs.beside([compilation(lambda x: x.sin())], [compilation(lambda x: x.sin().t())])}
    text = "\n".join(graphs.table([row]))
    assert "+return sin_1" in text
    assert "-return t_1" in text
    assert graphs.CAUSES["views"] in text


def test_a_walk_may_start_in_the_middle():
    groups = section("higher_order").groups()
    assert walk.groups_from("higher_order", groups[2]) == [*groups[2:], *groups[:2]]
    with pytest.raises(SystemExit, match="no group 'nothing'"):
        walk.groups_from("higher_order", "nothing")


def test_the_page_does_not_depend_on_the_order_of_a_run(tmp_path):
    rows = {k: row(k, theirs="wrong", better=True) for k in ("cond.simple#0", "map.simple#0", "scan.simple#0")}
    for page, found in (("one", rows), ("other", dict(reversed(rows.items())))):
        command.write(tmp_path / page, "higher_order", found)
    assert (tmp_path / "one").read_text() == (tmp_path / "other").read_text()
