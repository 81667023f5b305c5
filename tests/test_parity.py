"""A sampled part of `make parity`, and how its page is put together."""

from __future__ import annotations

import json

import pytest
import torch

from tests.parity import __main__ as command
from tests.parity import report, walk
from tests.parity.cases import section, stable
from tests.parity.sections import SECTIONS

SAMPLED = {  # cheap and telling; the rest is `make parity`'s
    "op_dtypes": ["mul", "cumsum", "logical_and"],
    "modules": ["BatchNorm1d", "GRUCell"],
    "higher_order": ["cond.simple", "map.simple"],
    "models": ["convolutions", "llama"],
    "autograd_functions": ["SelectAutogradFunction", "ForwardHasDefaultArgsAutogradFunction"],
}


@pytest.mark.parametrize(("name", "group"), [(name, group) for name, groups in SAMPLED.items() for group in groups])
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
    assert "1 groups are missing, from c on" in text


def test_a_section_written_anew_leaves_the_others_as_they_are():
    page = report.replaced("", "B", "## B\n\nold\n", ["A", "B"])
    page = report.replaced(page, "A", "## A\n\nfirst\n", ["A", "B"])
    assert page.index("## A") < page.index("## B")
    again = report.replaced(page, "B", "## B\n\nnew\n", ["A", "B"])
    assert again == page.replace("old", "new")


def test_causes_name_no_path_and_no_address():
    assert stable("<f at 0x7f00aa> in /home/me/x.py, 1/2") == "<f at …> in …, 1/2"


def test_a_walk_goes_on_where_it_stopped_and_marks_a_case_that_ended_its_process(tmp_path):
    arguments = ["--section", "autograd_functions", "--folder", str(tmp_path), "--page", str(tmp_path / "page.md")]
    log = walk.progress_file(tmp_path, "autograd_functions")
    log.write_text(json.dumps({"key": "NumpyCubeAutogradFunction#0", "begun": True}) + "\n")
    assert command.main([*arguments, "--seconds", "0.001"]) == 1
    text = (tmp_path / "page.md").read_text()
    assert "the process ended | 1" in text
    assert "groups are missing" in text
