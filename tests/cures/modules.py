"""Recompiles because of what a module holds: numbers and texts of its own, of its submodules, and lists of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from aotviz.explain import answers, recompiles
from aotviz.explain.cures import guard_cures as cures
from tests.cures.programs import Calls, Effect, compiled, program, watched

CONFIG = torch._dynamo.config


def beyond_the_limit(calls: Calls, cured: bool) -> Effect:
    """How often a call that fits no program was not compiled because of the limit."""
    with CONFIG.patch(recompile_limit=2):
        recording, result = watched(calls, cured)
    outcomes = [one.outcome for one in recompiles.find(answers.facts_of(recording))]
    return Effect(outcomes.count("limit"), "calls beyond the limit", recording, result)


class Scaled(nn.Module):
    """A block of attention, which passes a number to an argument that takes no tensor."""

    def __init__(self, index: int, as_buffer: bool = False) -> None:
        super().__init__()
        self.index, self.as_buffer = index, as_buffer
        if as_buffer:
            self.register_buffer("scale", torch.tensor(1.0 / (index + 1)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.as_buffer:
            return x + F.scaled_dot_product_attention(x * self.scale, x, x, scale=1.0)
        return x + F.scaled_dot_product_attention(x, x, x, scale=1.0 / (self.index + 1))


def in_turn(blocks: Sequence[Callable[[torch.Tensor], torch.Tensor]]) -> torch.Tensor:
    x = torch.linspace(0, 1, 8).reshape(1, 2, 4)
    for block in blocks:
        x = block(x)
    return x


@program(
    "blocks compiled one by one, each with a number of its own",
    cures.OWN_NUMBER,
    "compile the model in place of its blocks, `torch.compile(model)`",
)
def blocks_with_numbers(cured: bool) -> object:
    blocks = [Scaled(index) for index in range(5)]
    if cured:
        return in_turn([compiled(nn.Sequential(*blocks))])
    for block in blocks:
        block.compile(backend="eager")
    return in_turn(blocks)


@program(
    "blocks that pass a number of their own to an argument",
    cures.OWN_NUMBER,
    "make what is computed from the number a tensor, once in `__init__` (`register_buffer`), and multiply tensors",
)
def numbers_for_an_argument(cured: bool) -> object:
    blocks = [Scaled(index, as_buffer=cured) for index in range(5)]
    for block in blocks:
        block.compile(backend="eager")
    return in_turn(blocks)


class Weighted(nn.Module):
    def __init__(self, weight: object) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


@program(
    "a number of a module that the program sets between calls",
    cures.OWN_NUMBER,
    "`torch._dynamo.config.allow_unspec_int_on_nn_module = True`",
)
def a_number_set_between_calls(cured: bool) -> object:
    module, found = Weighted(1), []
    with CONFIG.patch(allow_unspec_int_on_nn_module=cured):
        step = compiled(module)
        for number in range(2, 7):
            module.weight = number
            found.append(step(torch.ones(2)))
    return found


@program("a number of blocks that became a symbol", cures.NEEDED_NUMBER, "compile the model in place of its blocks")
def a_symbol_for_an_argument(cured: bool) -> object:
    blocks = [Scaled(index) for index in range(5)]
    with CONFIG.patch(allow_unspec_int_on_nn_module=True):
        if cured:
            return in_turn([compiled(nn.Sequential(*blocks))])
        for block in blocks:
            block.compile(backend="eager")
        return in_turn(blocks)


@program("a symbol that an argument needs", cures.NEEDED_NUMBER, "Make what is computed from it a tensor")
def a_tensor_for_a_symbol(cured: bool) -> object:
    with CONFIG.patch(allow_unspec_int_on_nn_module=True):
        return numbers_for_an_argument(cured)


def dropping(model: nn.Module, dropout: nn.Dropout, cured: bool) -> object:
    step = compiled(model.eval())
    if cured:
        dropout.p = 0.3
    found = [step(torch.ones(2, 4))]
    dropout.p = 0.3
    return [*found, step(torch.ones(2, 4))]


@program("the rate of a dropout within a module of torch", cures.LIBRARY_NUMBER, "Set it before the first call")
def a_dropout_in_a_sequential(cured: bool) -> object:
    dropout = nn.Dropout(0.1)
    return dropping(nn.Sequential(nn.Identity(), dropout), dropout, cured)


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(x) * 2


@program("the rate of a model's dropout", cures.LIBRARY_NUMBER, "Set it before the first call")
def a_dropout_of_a_model(cured: bool) -> object:
    model = Dropping()
    return dropping(model, model.dropout, cured)


class Adapted(nn.Module):
    """A layer with several adapters, of which a name, or the tensor itself, says which one is active."""

    def __init__(self, cured: bool) -> None:
        super().__init__()
        self.weights = {name: torch.full((2,), float(n)) for n, name in enumerate("abcd")}
        self.cured, self.active, self.weight = cured, "a", self.weights["a"]

    def choose(self, name: str) -> None:
        if self.cured:
            self.weight = self.weights[name]
        else:
            self.active = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (self.weight if self.cured else self.weights[self.active])


def adapted(layer: Adapted, model: nn.Module) -> object:
    step, found = compiled(model), []
    for name in "abcd":
        layer.choose(name)
        found.append(step(torch.ones(2)))
    return found


@program("a name that selects an adapter of a module of torch", cures.MODULE_VALUE, "keep that in place of the name")
def an_adapter_in_a_sequential(cured: bool) -> object:
    layer = Adapted(cured)
    return adapted(layer, nn.Sequential(layer, nn.ReLU()))


@program("a name that selects an adapter", cures.MODULE_VALUE, "keep that in place of the name")
def an_adapter(cured: bool) -> object:
    layer = Adapted(cured)
    return adapted(layer, layer)


@program(
    "more adapters than programs",
    cures.MORE_PROGRAMS,
    "`torch._dynamo.config.recompile_limit = 64`",
    measure=beyond_the_limit,
)
def more_adapters(cured: bool) -> object:
    CONFIG.recompile_limit = 64 if cured else 2
    layer = Adapted(cured=False)
    return adapted(layer, nn.Sequential(layer, nn.ReLU()))


@program("a submodule that is replaced after the first call", cures.OTHER_MODULE, "Replace `step[0]` before the first")
def a_replaced_submodule(cured: bool) -> object:
    model = nn.Sequential(nn.ReLU(), nn.ReLU())
    step = compiled(model)
    for replaced in (cured, True):
        if replaced:
            model[0] = nn.Tanh()
        step(torch.ones(2))
    return None


ACTIVATIONS = (F.relu, F.gelu, F.silu, F.mish)


@program(
    "functions of torch that are compiled one by one",
    cures.SHARED_LIMIT,
    "Compile the function or module of your own that calls them",
    measure=beyond_the_limit,
)
def functions_of_torch(cured: bool) -> object:
    x = torch.ones(2)
    if cured:
        return compiled(lambda x: [activation(x) for activation in ACTIVATIONS])(x)
    return [compiled(activation)(x) for activation in ACTIVATIONS]


@program(
    "more functions of torch than programs",
    cures.SHARED_LIMIT,
    "allow more programs before the first call",
    measure=beyond_the_limit,
)
def more_functions_of_torch(cured: bool) -> object:
    CONFIG.recompile_limit = 64 if cured else 2
    return [compiled(activation)(torch.ones(2)) for activation in ACTIVATIONS]


def listed(x: torch.Tensor, past: list[torch.Tensor]) -> torch.Tensor:
    past.append(x * 2)
    return torch.stack(past, 1).sum(1)


@program("a list of tensors that grows", cures.GROWING_LIST, "or one that grows, `past = torch.cat([past, new], 1)`")
def a_growing_list(cured: bool) -> object:
    def grown(x: torch.Tensor, past: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        past = torch.cat([past, (x * 2)[:, None]], 1)
        return past.sum(1), past

    step, found = compiled(grown if cured else listed), []
    one, several = torch.empty(2, 0, 3), list[torch.Tensor]()
    for number in range(6):
        x = torch.full((2, 3), float(number))
        if cured:
            y, one = step(x, one)
        else:
            y = step(x, several)
        found.append(y)
    return found


@program("past tensors in a list", cures.GROWING_LIST, "`past.index_copy_(1, i, new)` with a tensor `i`, and a mask")
def a_list_of_fixed_size(cured: bool) -> object:
    def filled(x: torch.Tensor, past: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        past.index_copy_(1, i, (x * 2)[:, None])
        mask = torch.arange(past.shape[1]) <= i
        return torch.where(mask[None, :, None], past, 0.0).sum(1)

    step, found = compiled(filled if cured else listed), []
    one, several = torch.empty(2, 8, 3), list[torch.Tensor]()
    for number in range(6):
        x = torch.full((2, 3), float(number))
        found.append(step(x, one, torch.tensor([number])) if cured else step(x, several))
    return found


@program("a dimension other than the batch, of size 1", cures.SIZE_1, "Pad dimension 1 of `x` to at least 2")
def a_dimension_of_size_1(cured: bool) -> object:
    step = compiled(lambda x: x.sum(1))
    for size in (2, 1):
        x = torch.ones(3, size)
        step(F.pad(x, (0, 1)) if cured and size == 1 else x)
    return None


@program("modules of several classes as an argument", cures.OTHER_CLASS, "Compile the function that calls this one")
def modules_of_several_classes(cured: bool) -> object:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(3, 3), torch.nn.LayerNorm(3)]

    def applied(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        return layer(x).relu()

    step = applied if cured else compiled(applied)

    def through_all(x: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            x = step(layer, x)
        return x

    with torch.no_grad():
        return (compiled(through_all) if cured else through_all)(torch.ones(2, 3))


@program("a hook that puts results into a dictionary", cures.HOOK_FILLS, '`seen["relu"] = None`')
def a_hook_that_fills(cured: bool) -> object:
    model, seen = torch.nn.Sequential(torch.nn.ReLU()), dict[str, Any]()
    if cured:
        seen["relu"] = None

    def keep(module: torch.nn.Module, inputs: object, output: torch.Tensor) -> None:
        seen["relu"] = output.detach()

    model[0].register_forward_hook(keep)
    step = compiled(lambda x: model(x))
    return [step(torch.ones(3)) for _ in range(3)], seen["relu"]


class Angles(torch.nn.Module):
    """Multiplies by a table of cosines, which is made for `length` rows and again where `x` has more."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length
        self.cosines = torch.arange(length).cos()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > self.length:
            self.length = x.shape[0]
            self.cosines = torch.arange(self.length).cos()
        return x * self.cosines[: x.shape[0]]


@program("a table that grows with a size", cures.GROWN_TABLE, "make the table once in `__init__`, for the largest size")
def a_table_that_grows(cured: bool) -> object:
    model = compiled(Angles(16 if cured else 2))
    return [model(torch.ones(rows)) for rows in (3, 5, 7, 9, 4)]
