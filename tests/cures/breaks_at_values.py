"""Graph breaks at a Python value that depends on a tensor, or on an object that is made, hooked or wrapped inside."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from torch import nn

from aotviz.explain.cures import break_cures as cures
from tests.cures.programs import compiled, errors, graph_breaks, program, settled

STEPS: dict[str, Any] = {}  # of programs whose calls are made twice


@program(
    "a comparison of whole tensors", cures.COMPARED, "Keep the answer in a tensor, `(x == y).all()`", (), graph_breaks
)
def a_comparison(cured: bool) -> object:
    def branches(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 2 if torch.equal(x, y) else x

    def chooses(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where((x == y).all(), x * 2, x)

    return compiled(chooses if cured else branches)(torch.ones(3), torch.ones(3))


@program(
    "a tensor's value in a text", cures.FORMATTED, "make the text of it outside the compiled function", (), graph_breaks
)
def a_text(cured: bool) -> object:
    if cured:
        y, loss = compiled(lambda x: (x * 2, x.sum()))(torch.ones(3))
        return y, [*map(ord, f"loss {loss.item():.2f}")]
    y, text = compiled(lambda x: (x * 2, f"loss {x.sum().item():.2f}"))(torch.ones(3))
    return y, [*map(ord, text)]


@program("a flag of NumPy", cures.NUMPY_FLAG, "Pass `bool(clip)`", (), graph_breaks)
def a_flag_of_numpy(cured: bool) -> object:
    def step(x: torch.Tensor, clip: Any) -> torch.Tensor:
        return x.relu() if clip else x * 1

    clips = compiled(step)
    return [clips(torch.ones(3), bool(flag) if cured else flag) for flag in np.array([True, False])]


@program(
    "an environment variable that is set inside",
    cures.BUILTIN,
    "Call it outside the compiled function",
    (),
    graph_breaks,
)
def an_environment_variable(cured: bool) -> object:
    def sets(x: torch.Tensor) -> torch.Tensor:
        os.environ["AOTVIZ_OF_A_TEST"] = "1"
        return x * 2

    if cured:
        os.environ["AOTVIZ_OF_A_TEST"] = "1"
    found = compiled((lambda x: x * 2) if cured else sets)(torch.ones(3))
    del os.environ["AOTVIZ_OF_A_TEST"]
    return found


@program(
    "a module that is made inside", cures.MADE_INSIDE, "Make the module or parameter once, outside", (), graph_breaks
)
def a_module_made_inside(cured: bool) -> object:
    layer = nn.Linear(3, 3)

    def makes(x: torch.Tensor) -> torch.Tensor:
        return nn.Linear(3, 3)(x)

    return compiled(layer.forward if cured else makes)(torch.ones(2, 3)).shape


@program("autocast that depends on a size", cures.CONSTANT_NEEDED, "and pass the answer, a bool", (), errors)
def autocast_by_size(cured: bool) -> object:
    def step(x: torch.Tensor, large: bool | None) -> torch.Tensor:
        with torch.autocast("cpu", enabled=x.shape[0] > 4 if large is None else large):
            return x @ x.T

    products = compiled(step)
    return [products(torch.ones(rows, 2), rows > 4 if cured else None).float() for rows in (2, 8, 3, 9)]


class Hooked(nn.Module):
    """Doubles the gradient of its layer's output, by a hook of the layer or of the output."""

    def __init__(self, of_output: bool) -> None:
        super().__init__()
        self.layer, self.of_output = nn.Linear(3, 3), of_output
        if not of_output:
            self.layer.register_full_backward_pre_hook(lambda module, gradients: (gradients[0] * 2,))
            self.layer.register_full_backward_hook(lambda module, taken, given: None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        if self.of_output:
            y.register_hook(lambda gradient: gradient * 2)
        return y.relu()


@program(
    "a backward hook of a module", cures.MODULE_BACKWARD_HOOK, "`y.register_hook(hook)` in `forward`", (), graph_breaks
)
def a_backward_hook(cured: bool) -> object:
    torch.manual_seed(0)
    model = Hooked(of_output=cured)
    compiled(model, backend="aot_eager")(torch.ones(2, 3, requires_grad=True)).sum().backward()
    return [parameter.grad for parameter in model.parameters()]


@program("an optimizer's step with a scheduler", cures.SCHEDULED, "Nothing is to be done", (), settled)
def a_scheduled_step(cured: bool) -> object:
    def step(optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()

    if "scheduled" not in STEPS:
        weight = torch.ones(3, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=torch.tensor(0.1))
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        STEPS["scheduled"] = weight, optimizer, scheduler, compiled(step)
    weight, optimizer, scheduler, of_optimizer = STEPS["scheduled"]
    for _ in range(3):
        weight.grad = torch.zeros(3)
        of_optimizer(optimizer)
        scheduler.step()
    return weight.detach()


@program("a nested tensor of the strided layout", cures.NESTED, "with `layout=torch.jagged`", (), graph_breaks)
def a_strided_nested_tensor(cured: bool) -> object:
    layout = torch.jagged if cured else torch.strided
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)
    return compiled(lambda x: x * 2)(nested).unbind()


@program("a generator as an argument", cures.ITERATED, "Pass a list", (), graph_breaks)
def a_generator_as_an_argument(cured: bool) -> object:
    def total(parts: Any) -> torch.Tensor:
        found = torch.zeros(3)
        for part in parts:
            found = found + part.sin()
        return found

    parts = [torch.ones(3), torch.ones(3)]
    return compiled(total)(parts if cured else (part for part in parts))
