"""Exports that fail because of their example or its `dynamic_shapes`, and what was exported for one size."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import Dim

from aotviz.explain.cures import export_cures as cures
from tests.cures.exports import exported
from tests.cures.programs import errors, program


def doubled(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * 2


@program("an export whose example has one row", cures.EXAMPLE_OF_1, "an example that has at least 2", (), errors)
def an_example_of_one_row(cured: bool) -> None:
    exported(doubled, torch.ones(2 if cured else 1, 3), dynamic_shapes=({0: Dim("rows")},))


@program("a strict export whose example has one row", cures.EXAMPLE_OF_1, "an example that has at least 2", (), errors)
def a_strict_example_of_one_row(cured: bool) -> None:
    exported(doubled, torch.ones(2 if cured else 1, 3), dynamic_shapes=({0: Dim("rows")},), strict=True)


@program(
    "an export whose example is larger than its Dim allows", cures.EXAMPLE_OUTSIDE, "another `min` or `max`", (), errors
)
def an_example_above_its_dim(cured: bool) -> None:
    exported(doubled, torch.ones(8), dynamic_shapes={"x": {0: Dim("rows", max=16 if cured else 3)}})


@program("an export of a function", cures.NO_MODULE, "the `forward` of a `torch.nn.Module`", (), errors)
def an_export_of_a_function(cured: bool) -> None:
    if cured:
        exported(doubled, torch.ones(3))
    else:
        torch.export.export(lambda x: x * 2, (torch.ones(3),))


def root_of_numpy(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.sqrt(x.numpy()))


@program("an export with NumPy in it", cures.NUMPY, "Export with `strict=True`", (), errors)
def an_export_with_numpy(cured: bool) -> None:
    exported(root_of_numpy, torch.ones(3), strict=cured)


class Masked(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return x if mask is None else x * mask


@program("an export with a dimension of None", cures.SHAPE_OF_NO_TENSOR, "Give None for `mask`", (), errors)
def an_export_without_its_mask(cured: bool) -> None:
    rows = {0: Dim("rows")}
    torch.export.export(Masked(), (torch.ones(3), None), dynamic_shapes={"x": rows, "mask": None if cured else rows})


@program(
    "an exported program that is called with another size",
    cures.EXPORTED_SIZE,
    '`dynamic_shapes={"x": {0: torch.export.Dim("size")}, ...}`',
    (),
    errors,
)
def a_program_for_one_size(cured: bool) -> None:
    shapes = {"x": {0: Dim("size")}, "mask": None} if cured else None
    program = torch.export.export(Masked(), (torch.ones(3, 4), None), dynamic_shapes=shapes)
    program.module()(torch.ones(5, 4), None)


def repeats(self: Any, x: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
    for _ in range(int(times)):
        x = x * 2
    return x


def repeats_as_often(self: Any, x: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
    n = times.item()
    torch._check(n == 2)
    for _ in range(n):
        x = x * 2
    return x


@program(
    "an export with a number that `int` reads",
    cures.UNKNOWN_NUMBER,
    "with `n = times.item()` in place of `int(times)`: `torch._check(n == ...)`",
    (),
    errors,
)
def an_export_of_a_loop(cured: bool) -> None:
    exported(repeats_as_often if cured else repeats, torch.ones(3), torch.tensor(2))
