"""The notebooks of the course, run without a kernel, with answers in place of a student's.

A cell of predictions is filled with the answers of the folded cell that follows it: the key that a teacher reads.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
ANSWER = re.compile(r"<details><summary>Answer.*?```python\n(.*?)```", re.DOTALL)
PREDICTION = re.compile(r"(\w+)\.predict\((.*)\)\s*", re.DOTALL)
VIEW = re.compile(r"(\w+)\.see\(.*\)")
Key = dict[str, dict[str, Any]]  # puzzle's variable -> question -> answer


def cells(name: str) -> list[Any]:
    return list(nbformat.read(NOTEBOOKS / name, as_version=4).cells)


def key_of(name: str) -> Key:
    """The answers that stand folded below each prediction."""
    key: Key = {}
    asked = ""
    for cell in cells(name):
        if cell.cell_type == "code" and (found := PREDICTION.fullmatch(cell.source)):
            asked = found[1]
        elif cell.cell_type == "markdown" and (answer := ANSWER.search(cell.source)):
            key[asked] = eval(answer[1], {"set": set})
    return key


def questions_of(name: str) -> dict[str, list[str]]:
    """The questions of each prediction, by the puzzle's variable."""
    found = {}
    for cell in cells(name):
        if cell.cell_type == "code" and (match := PREDICTION.fullmatch(cell.source)):
            asked = ast.parse(match[2].strip(), mode="eval").body
            assert isinstance(asked, ast.Dict)
            found[match[1]] = [question.value for question in asked.keys if isinstance(question, ast.Constant)]
    return found


@dataclass
class Ran:
    """A notebook that has run."""

    scope: dict[str, Any]
    predicted: dict[str, list[Any]]  # puzzle's variable -> what the cell said, and then what each of the keys got
    seen: dict[str, list[Any]]  # puzzle's variable -> what its view showed before any key, and after all of them


def ran(name: str, *keys: Key) -> Ran:
    """Run the cells of a notebook. After each cell of predictions, as it stands, predict from each key in turn."""
    found = Ran({"__name__": "__main__"}, {}, {})
    views: dict[str, str] = {}
    for cell in cells(name):
        if cell.cell_type != "code" or "aotviz.explore_inputs" in cell.source:  # a widget that needs a kernel
            continue
        if match := PREDICTION.fullmatch(cell.source):
            found.predicted[match[1]] = [_value(cell, found.scope)]
        elif match := VIEW.fullmatch(cell.source):
            found.seen[match[1]] = [_value(cell, found.scope)]
            views[match[1]] = cell
        else:
            exec(compile(cell.source, f"<{name} {cell.id}>", "exec"), found.scope)
    for puzzle, said in found.predicted.items():
        said += [found.scope[puzzle].predict(key[puzzle]) for key in keys]
    for puzzle, shown in found.seen.items():
        shown.append(_value(views[puzzle], found.scope))
    return found


def _value(cell: Any, scope: dict[str, Any]) -> Any:
    return eval(compile(cell.source, f"<{cell.id}>", "eval"), scope)
