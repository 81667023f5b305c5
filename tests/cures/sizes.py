"""Recompiles because a size changed."""

from __future__ import annotations

import torch
from torch import nn

from aotviz.explain.cures import guard_cures as cures
from tests.cures.programs import compiled, program

LAYERS = [nn.Linear(size, 2) for size in (3, 4, 5, 6)]
MARK = "`torch._dynamo.mark_dynamic(x, 0)`"


@program("a size that varies", cures.SIZE, MARK, ("intel/auto-round#1679", "pytorch/pytorch#139474"))
def a_size(cured: bool) -> object:
    step, found = compiled(lambda x: x * 2), []
    for rows in (2, 3, 4):
        x = torch.ones(rows)
        if cured:
            torch._dynamo.mark_dynamic(x, 0)
        found.append(step(x))
    return found


@program("two sizes that vary", cures.SIZE, "`torch._dynamo.mark_dynamic(x, [1, 2])`")
def two_sizes(cured: bool) -> object:
    step, found = compiled(lambda x: x * 2), []
    for rows, columns in ((2, 2), (3, 2), (3, 4), (5, 6)):
        x = torch.ones(2, rows, columns)
        if cured:
            torch._dynamo.mark_dynamic(x, [1, 2])
        found.append(step(x))
    return found


@program("an image whose height and width vary together", cures.SIZE, "`torch._dynamo.mark_dynamic(x, [2, 3])`")
def a_square_image(cured: bool) -> object:
    step, found = compiled(lambda x: x * 2), []
    for width in (4, 6, 8):
        x = torch.ones(1, 3, width, width)
        if cured:
            torch._dynamo.mark_dynamic(x, [2, 3])
        found.append(step(x))
    return found


@program(
    "a size that two inputs share",
    cures.SIZES,
    "`torch._dynamo.mark_dynamic(x, 0)` and `torch._dynamo.mark_dynamic(y, 0)`",
)
def a_size_of_two_inputs(cured: bool) -> object:
    step, found = compiled(lambda x, y: x + y), []
    for rows in (2, 3, 4):
        x, y = torch.ones(rows), torch.ones(rows)
        if cured:
            torch._dynamo.mark_dynamic(x, 0)
            torch._dynamo.mark_dynamic(y, 0)
        found.append(step(x, y))
    return found


@program(
    "a size that varies, compiled with dynamic=False",
    cures.SIZE,
    "`torch.compile(..., dynamic=True)`",
    ("kijai/ComfyUI-KJNodes#454",),
)
def a_size_that_may_not_vary(cured: bool) -> object:
    step = compiled(lambda x: x * 2, dynamic=cured)
    return [step(torch.ones(rows)) for rows in (2, 3, 4, 5)]


@program(
    "an odd last batch of one row",
    cures.LAST_BATCH,
    "drop the odd last batch (`drop_last=True`)",
    ("saforem2/ezpz#190",),
)
def an_odd_last_batch(cured: bool) -> object:
    step = compiled(lambda x: x * 2)
    data = torch.utils.data.TensorDataset(torch.ones(9, 3))
    for (x,) in torch.utils.data.DataLoader(data, batch_size=4, drop_last=cured):
        step(x)
    return None


@program("a size of 1", cures.LAST_BATCH, "`torch._dynamo.decorators.mark_unbacked(x, 0)`", ("pytorch/pytorch#135430",))
def a_size_of_1(cured: bool) -> object:
    step, found = compiled(lambda x: x * 2), []
    for rows in (4, 1):
        x = torch.ones(rows)
        if cured:
            torch._dynamo.decorators.mark_unbacked(x, 0)
        found.append(step(x))
    return found


@program(
    "parameters of many sizes go through one function (Muon, Shampoo and similar optimizers)",
    cures.SIZE_OF_PARAMETER,
    "`torch._dynamo.config.force_parameter_static_shapes = False`",
    ("microsoft/dion#23",),
)
def sizes_of_parameters(cured: bool) -> object:
    with torch._dynamo.config.patch(force_parameter_static_shapes=not cured):
        step = compiled(lambda w: w * 2)
        return [step(nn.Parameter(torch.ones(rows, 2))) for rows in (3, 4, 5, 6)]


@program(
    "layers of many sizes go through one function",
    cures.SIZE_OF_PARAMETER,
    "`torch._dynamo.config.force_nn_module_property_static_shapes = False`",
)
def sizes_of_layers(cured: bool) -> object:
    settings = ("force_parameter_static_shapes", "force_nn_module_property_static_shapes")
    with torch._dynamo.config.patch(dict.fromkeys(settings, not cured)):
        step = compiled(lambda layer, x: layer(x))
        return [step(layer, torch.ones(1, layer.in_features)) for layer in LAYERS]


@program(
    "a branch on a size", cures.SYMBOLIC, "Move the branch out of the compiled function", ("pytorch/pytorch#149635",)
)
def a_branch_on_a_size(cured: bool) -> object:
    def step(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 5 else x * 3

    def twice(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return x * factor

    branching, plain = compiled(step, dynamic=True), compiled(twice, dynamic=True)
    found = []
    for rows in (3, 9):
        x = torch.ones(rows)
        found.append(plain(x, torch.tensor(2.0 if rows > 5 else 3.0)) if cured else branching(x))
    return found


@program(
    "sizes that `dynamic=False` keeps constant",
    cures.STATIC,
    "Leave out `dynamic=False`",
)
def sizes_that_are_kept_constant(cured: bool) -> object:
    step = compiled(lambda x: x * 2, dynamic=None if cured else False)
    return [step(torch.ones(size)).sum() for size in (3, 4, 5, 6, 7)]
