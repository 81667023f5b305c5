"""Transforms of torch.func inside and around compiled functions."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests import func_transforms

from ..beside import Beside, in_eager
from ..cases import Case

TITLE = "Transforms of torch.func"
ABOUT = """
The programs of `tests/func_transforms.py`, with inputs that require grad and with inputs that don't, under
`torch.compile`: results, gradients and the state of the random generator. Backend "aotviz_eager" beside torch's
"aot_eager", and both beside eager. A program that raises an error in eager is equal if it raises one.
`python -m tests.parity --section transforms` writes this section.
"""


def groups() -> list[str]:
    return list(func_transforms.ALL)


def cases(group: str) -> Iterator[Case]:
    for needs_gradients in (False, True):
        key = f"{group}#{'with' if needs_gradients else 'without'} gradients"
        yield Beside(key, lambda backend, needs=needs_gradients: _differs(group, backend, needs)).case()


def _differs(name: str, backend: str, needs_gradients: bool) -> str:
    program, around = func_transforms.ALL[name]

    def run(make=lambda program: program):
        try:
            return func_transforms.results(program, around, needs_gradients, make), ""
        except Exception as error:
            return None, f"in the call: {type(error).__name__}: {error}"

    expected, eagers_error = run()
    found, error = run(lambda program: torch.compile(program, backend=backend))
    if expected is None or found is None:
        return "" if eagers_error and error else error or f"eager raises: {eagers_error}"
    same = len(expected) == len(found) and all(map(func_transforms.same, expected, found))
    return "" if same else f"values: {found}, in eager {expected}"


also = in_eager
