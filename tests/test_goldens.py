"""What aotviz writes for a few programs, kept as text to be read: the facts, the graphs and the wrapper that runs.

A difference is either a mistake or an improvement: look at it, and if it is the latter, `make goldens`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from aotviz.recording.terminal import inputs, outputs
from tests.doors import alone

ROOT = Path(__file__).resolve().parents[1]
GOLDENS = Path(__file__).with_name("goldens")
UPDATE = bool(os.environ.get("AOTVIZ_UPDATE_GOLDENS"))


def plain(x: torch.Tensor, w: torch.Tensor) -> Any:
    return (x * w).sin()


def mutated_input_and_its_view(x: torch.Tensor, w: torch.Tensor) -> Any:
    x.add_(1)
    return (x * w).sin(), x[:2]


def moving_average(x: torch.Tensor, w: torch.Tensor, average: torch.Tensor) -> Any:
    y = (x - average) * w
    with torch.no_grad():
        average.mul_(0.5).add_(x.mean(0))
    return y


def two_views_of_one_base(head: torch.Tensor, tail: torch.Tensor, w: torch.Tensor) -> Any:
    head.mul_(2)
    return (tail * w).sum()


def duplicate_input(x: torch.Tensor, again: torch.Tensor, w: torch.Tensor) -> Any:
    x.add_(again)
    return x * w


def alias_of_an_intermediate(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x * w
    return y.view(-1), y.t()


def without_gradients(x: torch.Tensor) -> Any:
    x.t_()
    return x.exp(), x


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(4, 3), torch.ones(3, requires_grad=True)


def arguments(program: Callable[..., Any]) -> list[torch.Tensor]:
    x, w = tensors()
    if program is moving_average:
        return [x, w, torch.zeros(3)]
    if program is two_views_of_one_base:
        return [x[:3], x[2:], w]
    if program is duplicate_input:
        return [x, x, w]
    if program is without_gradients:
        return [x]
    return [x, w]


PROGRAMS = (
    plain,
    mutated_input_and_its_view,
    moving_average,
    two_views_of_one_base,
    duplicate_input,
    alias_of_an_intermediate,
    without_gradients,
)


def described(program: Callable[..., Any]) -> str:
    compiled = alone(program)
    result = compiled(*arguments(program))
    leaves = [leaf for leaf in (result if isinstance(result, tuple) else (result,)) if leaf.requires_grad]
    if leaves:
        torch.autograd.backward([leaf.sum() for leaf in leaves])
    compilation = compiled.recording[0]
    roles = ["joint", "forward", "backward"] if compilation.kind == "training" else ["inference"]
    parts = [inputs(compilation.data.inputs), outputs(compilation.data.outputs)]
    parts += [compilation.graph(role).code.rstrip() for role in roles]
    parts += [compiled.source.rstrip()]
    return "\n\n\n".join(part for part in parts if part).replace(f"{ROOT}{os.sep}", "").replace(os.sep, "/") + "\n"


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="graphs and wrappers differ by release")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_golden(program: Callable[..., Any]) -> None:
    path = GOLDENS / f"{program.__name__}.txt"
    found = described(program)
    if UPDATE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    difference = "\n".join(
        difflib.unified_diff(expected.splitlines(), found.splitlines(), "kept", "found", lineterm="")
    )
    assert found == expected, f"{path.relative_to(ROOT)} differs; if that is right, `make goldens`\n{difference}"


def test_every_golden_file_belongs_to_a_program() -> None:
    assert {path.stem for path in GOLDENS.glob("*.txt")} == {program.__name__ for program in PROGRAMS}
