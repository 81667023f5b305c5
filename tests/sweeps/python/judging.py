"""One program in eager, and compiled in each of several ways: what differs."""

from __future__ import annotations

import contextlib
import os
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import aotviz
from aotviz.ir.refusals import Refused
from tests.oracle.progress import Row
from tests.sweeps.python import asked, remembered, replaced, surroundings  # noqa: F401  # each adds its programs
from tests.sweeps.python.programs import PROGRAMS, combine

combine()

WAYS: dict[str, Callable[[Any], Any]] = {  # in the order of the table's columns
    "Dynamo alone": lambda f: torch.compile(f, backend="eager"),
    "aot_eager": lambda f: torch.compile(f, backend="aot_eager"),
    "aotviz_eager": lambda f: torch.compile(f, backend="aotviz_eager"),
    "aotviz.compile": lambda f: aotviz.compile(f, backend="eager"),
}
LONGEST = 160  # characters of a reason


def judged(key: str, ways: tuple[str, ...] = tuple(WAYS)) -> Row:
    """{way: {"status", "why"}}: "equal", "wrong", "refused" or "raised", compared with eager."""
    expected = outcome(key, lambda f: f)
    return {way: compared(key, WAYS[way], expected) for way in ways}


def outcome(key: str, way: Callable[[Any], Any]) -> list[Any]:
    """What the calls of a program gave, one after the other, and the state that they left."""
    found: list[Any] = []
    with _as_before():
        run = PROGRAMS[key]()
        compiled = way(next(run))
        while True:
            try:
                args = next(run)
            except StopIteration as end:
                return [*found, _plain(end.value)]
            try:
                result = compiled(*args)
            except Refused:
                raise
            except Exception as error:
                result = f"raised {type(error).__name__}"
                found.append((result, without_paths(str(error))[:LONGEST]))
            else:
                found.append((_plain(result), _plain(args)))


def compared(key: str, way: Callable[[Any], Any], expected: list[Any]) -> dict[str, str]:
    """How a program that is compiled this way does, beside what eager gave."""
    torch._dynamo.reset()
    try:
        found = outcome(key, way)
    except Refused as error:
        return {"status": "refused", "why": _short(error)}
    except Exception as error:
        return {"status": "raised", "why": f"{type(error).__name__}: {_short(error)}"}
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True), 1):
        raised = isinstance(ours, tuple) and isinstance(ours[0], str) and ours[0].startswith("raised ")
        if raised and ours[0] != theirs[0]:
            return {"status": "raised", "why": f"call {number}: {ours[0].removeprefix('raised ')}: {ours[1]}"}
        if not raised and not _same(ours, theirs):
            what = f"call {number}" if number < len(expected) else "the state afterwards"
            return {"status": "wrong", "why": what}
    return {"status": "equal", "why": ""}


def _plain(value: Any) -> Any:
    """A copy that later calls do not change."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone(), value.requires_grad
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(_plain, value)]
    if isinstance(value, dict):
        return [type(value).__name__, *((key, _plain(item)) for key, item in value.items())]
    if isinstance(value, np.ndarray):
        return value.copy()
    return value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if (one.dtype, one.shape, one.device, one.layout) != (other.dtype, other.shape, other.device, other.layout):
            return False
        return one.device.type == "meta" or torch.equal(one.nan_to_num(1e30), other.nan_to_num(1e30))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if callable(one) and callable(other):  # a second copy of the program has its own functions
        return True
    return bool(type(one) is type(other) and (one == other or (one != one and other != other)))


def _short(error: BaseException) -> str:
    lines = [line.strip() for line in without_paths(str(error)).splitlines() if line.strip()]
    return (lines[0] if lines else "no message")[:LONGEST]


def without_paths(text: str) -> str:
    """The text with places in this checkout as anybody's checkout has them."""
    return text.replace(f"{Path(__file__).parents[3]}{os.sep}", "")


@contextlib.contextmanager
def _as_before() -> Iterator[None]:
    """Every run begins with the same seeds and ends with the settings it found."""
    environment, here = dict(os.environ), os.getcwd()
    random.seed(0)
    np.random.seed(0)  # programs read this generator
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(here)
