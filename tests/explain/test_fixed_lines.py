"""A size that was meant to stay dynamic, and the line that made it a constant for each call."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

from aotviz.explain.cures import export_cures
from tests.explain.logs import logged

SCALES = list(range(20))


def picks(x):
    doubled = x.sin() + x.shape[0]
    return doubled * SCALES[x.shape[0]]


def grows(x):
    return x.sin() + x.shape[0]


def explained(function, folder: Path):
    def program() -> None:
        torch._dynamo.reset()
        step = torch.compile(function, backend="eager")
        for size in (3, 4, 5, 6):
            step(torch.ones(size))

    (point,) = (point for point in logged(program, folder).explain().points if point.kind == "recompile")
    return point


def test_the_line_that_fixed_the_size_is_told_not_the_first_that_read_it(tmp_path: Path) -> None:
    point = explained(picks, tmp_path)
    _, first = inspect.getsourcelines(picks)
    assert point.code == "return doubled * SCALES[x.shape[0]]"
    assert point.place.endswith(f":{first + 2}")
    assert "Dynamo made `x.shape[0]` a symbol, and this line made it a constant again" in point.text
    assert "became symbolic" not in point.text
    assert "is symbolic from now on" not in point.text
    assert "is not dynamic" not in point.text + point.title
    assert point.fix.cures == (export_cures.FIXED_SIZE,)
    assert "mark_dynamic(x" not in point.fix


def test_to_mark_such_a_size_raises_as_the_advice_says() -> None:
    torch._dynamo.reset()
    x = torch.ones(7)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(ConstraintViolationError):
        torch.compile(picks, backend="eager")(x)


def test_a_size_that_stays_a_symbol_is_told_to_be_marked(tmp_path: Path) -> None:
    point = explained(grows, tmp_path)
    assert "`x.shape[0]` is symbolic from now on" in point.text
    assert "`torch._dynamo.mark_dynamic(x, 0)`" in point.fix
