"""`python -m tests.mutants` changes a file, and tells which changes its tests do not notice."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from tests.mutants import edits
from tests.processes import run

ROOT = Path(__file__).parents[1]


def test_each_edit_changes_the_file_in_one_place() -> None:
    source = "RULES = ((1, f), *g)\nif a < 1 and not b == c:\n    raise E\nd = e + True"
    made = []
    for number in range(len([*edits(ast.parse(source))])):
        tree = ast.parse(source)
        [*edits(tree)][number][2]()
        made.append(ast.unparse(ast.fix_missing_locations(tree)))
    assert len({*made, ast.unparse(ast.parse(source))}) == 1 + len(made) == 12


@pytest.mark.slow
def test_what_no_test_notices_is_told(tmp_path: Path) -> None:
    (tmp_path / "ages.py").write_text("def may_vote(age, citizen):\n    return age >= 18 and citizen\n")
    (tmp_path / "test_ages.py").write_text(
        "from ages import may_vote\n\ndef test_it():\n    assert may_vote(19, True) and not may_vote(19, False)\n"
        "    assert not may_vote(3, True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    ran = run(["-m", "tests.mutants", "ages.py", "test_ages.py"], environment, tmp_path, forked=False)
    assert ran.stdout.splitlines()[-1] == "1 of 3 changes were noticed", ran.stdout + ran.stderr
    assert {line.split(": ")[1] for line in ran.stdout.splitlines()[:-1]} == {"GtE to Gt", "18 to 19"}
    assert ran.returncode == 1
