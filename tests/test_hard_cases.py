"""Programs that torch's own AOTAutograd gets wrong or refuses: docs/programs.md says what becomes of each."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aotviz.torch_private import versions
from tests.oracle.hard_cases import CASES, COMPILERS, outcome

PAGE = Path(__file__).parents[1] / "docs" / "programs.md"
SILENT = list(CASES)[:4]  # torch.compile gives wrong values, and says nothing
ERRORS = {
    "inputs that overlap only inside a tensor subclass, and are written": "overlap in memory inside a tensor",
}


def told() -> dict[str, list[str]]:
    """By title, what the page says of each compiler."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return {title: outcomes for title, *outcomes in rows if len(outcomes) == len(COMPILERS) and title in CASES}


def test_the_page_tells_of_each_program():
    assert list(told()) == list(CASES)


@pytest.mark.parametrize("compiler", list(COMPILERS)[:2])
@pytest.mark.parametrize("title", CASES)
def test_ours_is_right_or_refuses_with_a_reason(title, compiler):
    if title == "an input that is resized in place" and versions.has("an input that grows is taken for a view"):
        pytest.skip("torch can't trace it")
    found, value = outcome(title, COMPILERS[compiler])
    assert found == told()[title][list(COMPILERS).index(compiler)], value
    if found == "refused":
        assert ERRORS[title] in str(value)
    else:
        assert found == "right"


@pytest.mark.every(3)
@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the page tells of torch 2.13")
@pytest.mark.parametrize("compiler", list(COMPILERS)[2:])
@pytest.mark.parametrize("title", CASES)
def test_torchs_own_does_what_the_page_says(title, compiler):
    assert outcome(title, COMPILERS[compiler])[0] == told()[title][list(COMPILERS).index(compiler)]


def test_nothing_is_silently_wrong_and_almost_all_is_right():
    ours = {title: outcomes[:2] for title, outcomes in told().items()}
    assert all("wrong" not in outcomes for outcomes in ours.values())
    assert all(ours[title] == ["right", "right"] for title in SILENT)
    assert sum(outcomes == ["right", "right"] for outcomes in ours.values()) == len(CASES) - len(ERRORS)
