"""The counts of `tests/share_of_any.py`, which CI runs."""

from __future__ import annotations

from tests.share_of_any import STORED, Figures, as_text, debts, from_text, of_report, worse

SOURCE = """
def f(x: list[object], y: "int" = 0) -> object:  # type: ignore[misc]
    z: dict[str, object] = cast(dict, x)
    return isinstance(z, object)
"""
REPORT = """
              Name    Anys    Exprs   Coverage
----------------------------------------------
            aotviz      17      119     85.71%
   aotviz.ir.forms      10      100     90.00%
  aotviz.ir.graphs      20      100     80.00%
   aotviz.pipeline       3      100     97.00%
----------------------------------------------
             Total      50      419     88.07%
"""


def test_a_cast_an_object_and_an_ignored_line_are_counted() -> None:
    assert debts(SOURCE) == {"casts": 1, "objects": 3, "ignores": 1}


def test_the_files_of_a_folder_are_one_room() -> None:
    assert of_report(REPORT) == {"aotviz": {"any": 20, "all": 219}, "ir": {"any": 30, "all": 200}}


def test_what_has_risen_is_told_and_a_tenth_is_rounding() -> None:
    before = {"ir": Figures(9.5, 1, 1, 0), "stages": Figures(7.5, 0, 0, 0)}
    now = {"ir": Figures(9.7, 0, 2, 0), "stages": Figures(7.6, 0, 0, 0)}
    assert list(worse(now, before)) == ["ir: percent is 9.7, was 9.5", "ir: objects is 2, was 1"]


def test_the_stored_figures_are_read_as_they_were_written() -> None:
    text = STORED.read_text()
    assert as_text(from_text(text)) == text
