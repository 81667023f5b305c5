"""The words of the workbench are in one file: `aotviz.what_is`, and the pages that are made from it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import aotviz
from aotviz.explain.terms import KINDS, UnknownTerm, terms

ROOT = Path(__file__).resolve().parents[1]
SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z`\"#]|aotviz|retain)")


def test_a_word_prints_itself_and_is_html_in_a_notebook() -> None:
    donated = aotviz.what_is("donated")
    assert str(donated).startswith("donated (badge)\n  The backward may overwrite the memory")
    assert repr(donated) == str(donated)
    assert "<b>donated</b> (badge)" in donated._repr_html_()
    assert "<code>retain_graph=True</code>" in donated._repr_html_()
    assert all(len(line) <= 120 for line in str(donated).splitlines())


def test_a_stage_has_a_program_before_and_after_it() -> None:
    (stage,) = aotviz.what_is("Functionalize").terms
    assert "x.add_(1)" in stage.before
    assert "add = x + 1" in stage.after
    assert "before:\n    x.add_(1)" in str(aotviz.what_is("functionalize"))


def test_a_word_with_several_meanings_has_all_of_them() -> None:
    assert [term.kind for term in aotviz.what_is("metadata").terms] == ["stage", "badge"]


@pytest.mark.parametrize(
    ("shown", "name"), [("storage 3", "storage 0"), ("TracedCall", "TracedCall"), ("view of base", "view of base")]
)
def test_a_text_is_found_as_the_workbench_shows_it(shown: str, name: str) -> None:
    assert aotviz.what_is(shown).terms[0].name == name


def test_an_unknown_word_is_an_error_that_names_similar_ones() -> None:
    with pytest.raises(UnknownTerm, match=r"'dontaed' is no word of the workbench\. Similar words: 'donated'"):
        aotviz.what_is("dontaed")
    with pytest.raises(LookupError, match=r"docs/glossary\.md lists all of them"):
        aotviz.what_is("qqqq")


def test_each_term_has_two_sentences_and_each_stage_at_most_three_lines() -> None:
    assert {term.group for term in terms()} == set(KINDS)
    assert [term.name for term in terms() if len(SENTENCE.split(term.text.strip())) != 2] == []
    staged = [term for term in terms() if term.group.endswith("stages") or term.group == "whole_backward"]
    assert [term.name for term in staged if not term.before or not term.after] == []
    assert [term.name for term in terms() for code in (term.before, term.after) if code.count("\n") > 2] == []
    names = [(term.group, term.name) for term in terms()]
    assert len(names) == len(set(names))


def test_the_pages_and_the_front_end_have_the_current_words() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs/write_terms.py", "--check"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_needs_no_torch() -> None:
    code = "import sys, aotviz; print(aotviz.what_is('tangent')); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT)
