"""Recompiles because a size changed."""

from __future__ import annotations

import torch
from torch import nn

from aotviz.explain.cures import guard_cures as cures
from tests.cures.programs import compiled, errors, program

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


@program("a first call with one row", cures.SIZE_1, "`torch._dynamo.decorators.mark_unbacked(x, 1)`")
def one_token_first(cured: bool) -> object:
    step, found = compiled(lambda x: x * 2), []
    for length in (1, 2, 3):
        x = torch.ones(2, length)
        if cured:
            torch._dynamo.decorators.mark_unbacked(x, 1)
        found.append(step(x))
    return found


@program(
    "two inputs that have one size by chance",
    cures.DUCK,
    "`torch._dynamo.mark_dynamic(y, 0)` and `torch._dynamo.mark_dynamic(x, 0)`",
)
def equal_sizes_of_two_inputs(cured: bool) -> object:
    step, found = compiled(lambda x, y: x.sum() + y.sum(), dynamic=True), []
    for rows, others in ((4, 4), (5, 6), (7, 9)):
        x, y = torch.ones(rows), torch.ones(others)
        for one in (x, y) if cured else ():
            torch._dynamo.mark_dynamic(one, 0)
        found.append(step(x, y))
    return found


@program("as many rows as features", cures.DUCK, MARK)
def as_many_rows_as_features(cured: bool) -> object:
    step, found = compiled(lambda x: x @ LAYERS[1].weight.detach().T, dynamic=True), []
    for rows in (4, 4, 3):
        x = torch.ones(rows, 4)
        if cured:
            torch._dynamo.mark_dynamic(x, 0)
        found.append(step(x))
    return found


@program("a size that is marked as static", cures.STATIC, "or a `mark_static` of this size")
def a_static_size(cured: bool) -> object:
    step, found = compiled(lambda x: x * 2), []
    for rows in (4, 5, 6, 7):
        x = torch.ones(rows)
        if not cured:
            torch._dynamo.mark_static(x, 0)
        found.append(step(x))
    return found


class Memory(nn.Module):
    """Keeps all rows that it was called with, in a buffer or in a plain attribute."""

    def __init__(self, in_buffer: bool) -> None:
        super().__init__()
        rows = torch.zeros(2, 3)
        if in_buffer:
            self.register_buffer("rows", rows)
        else:
            self.rows = rows

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.rows = torch.cat([self.rows, x])
        return self.rows.sum(0)


@program("a buffer that grows", cures.SIZE_OF_BUFFER, "Keep it as a plain attribute")
def a_growing_buffer(cured: bool) -> object:
    model = compiled(Memory(in_buffer=not cured))
    return [model(torch.ones(1, 3)) for _ in range(4)]


@program("a size above the maximum of its mark", cures.MARKED_RANGE, "Give a `max` that no call exceeds", (), errors)
def a_size_above_its_mark(cured: bool) -> object:
    step, found = compiled(lambda x: x * 2), []
    for rows in (4, 6, 40):
        x = torch.ones(rows)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=64 if cured else 16)
        found.append(step(x))
    return found


@program("a mark with a minimum alone", cures.MARKED_BY_MIN, "a `max` as well as a `min`", (), errors)
def a_mark_with_a_minimum(cured: bool) -> object:
    x = torch.ones(4)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=64 if cured else None)
    return compiled(lambda x: x * 2)(x)


@program(
    "compiled containers of layers of other widths",
    cures.SIZE_OF_PARAMETER,
    "`torch._dynamo.config.force_nn_module_property_static_shapes = False`",
)
def containers_of_widths(cured: bool) -> object:
    torch.manual_seed(0)
    settings = {"force_parameter_static_shapes": not cured, "force_nn_module_property_static_shapes": not cured}
    with torch._dynamo.config.patch(settings), torch.no_grad():
        x = torch.ones(2, 3)
        for width, other in ((3, 4), (4, 5), (5, 6)):
            x = compiled(nn.Sequential(nn.Linear(width, other), nn.ReLU()))(x)
        return x
