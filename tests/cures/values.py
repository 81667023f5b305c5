"""Recompiles because of numbers, objects and containers, which are compiled as constants."""

from __future__ import annotations

import collections
import enum
import gc
from typing import Any

import torch
from torch import nn

from aotviz.explain.cures import guard_cures as cures
from tests.cures.programs import Calls, Effect, compiled, program, settled, watched

STEPS: dict[str, Any] = {}  # of programs whose calls are made twice


class Layer(nn.Module):
    def __init__(self, index: Any) -> None:
        super().__init__()
        self.index, self.linear = index, nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.index


class Numbered(Layer):
    def forward(this, x: torch.Tensor) -> torch.Tensor:
        return this.linear(x) * this.index


def called_apart(kind: type[Layer], cured: bool) -> None:
    for i in range(5):
        layer = kind(torch.tensor(i) if cured else i)
        layer.compile(backend="eager")
        layer(torch.ones(2))


@program(
    "blocks that are compiled one by one, each with its index",
    cures.OWN_NUMBER,
    "keep it in a tensor and fill that",
    ("pytorch/pytorch#171593", "pytorch/pytorch#128071"),
)
def a_layers_index(cured: bool) -> None:
    called_apart(Layer, cured)


@program(
    "blocks with an index, under another name than `self`", cures.ATTRIBUTE_NUMBER, "`this.index = torch.tensor(...)`"
)
def a_layers_index_under_another_name(cured: bool) -> None:
    called_apart(Numbered, cured)


class Metric(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.updates = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.updates += 1
        return x * self.updates


@program(
    "a counter on a module",
    cures.MODULE_NUMBER,
    "`torch._dynamo.config.allow_unspec_int_on_nn_module = True`",
    ("meta-pytorch/torchrec#4338",),
)
def a_counter(cured: bool) -> object:
    with torch._dynamo.config.patch(allow_unspec_int_on_nn_module=cured):
        step = compiled(Metric())
        return [step(torch.ones(2)) for _ in range(5)]


@program(
    "a momentum that a scheduler cycles",
    cures.OPTIMIZER_MOMENTUM,
    "`cycle_momentum=False`",
)
def a_cycled_momentum(cured: bool) -> object:
    parameter = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([parameter], lr=torch.tensor(0.1))
    options: Any = {"max_lr": 0.2, "total_steps": 9, "cycle_momentum": not cured}
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, **options)
    step = compiled(lambda: optimizer.step())
    for _ in range(4):
        parameter.grad = torch.ones(3)
        step()
        scheduler.step()
    return None  # the results differ, as the momentum does


@program(
    "a learning rate that a scheduler changes",
    cures.OPTIMIZER_NUMBER,
    "`SGD(parameters, lr=torch.tensor(0.1))` and `group['lr'].fill_(value)`",
    ("pytorch/pytorch#107076", "pytorch/pytorch#120934"),
)
def a_learning_rate(cured: bool) -> object:
    parameter = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], lr=torch.tensor(0.1) if cured else 0.1)
    step = compiled(lambda: optimizer.step())
    for turn in range(1, 5):
        parameter.grad = torch.ones(3)
        (group,) = optimizer.param_groups
        if cured:
            group["lr"].fill_(0.1 / turn)
        else:
            group["lr"] = 0.1 / turn
        step()
    return parameter.detach()


class Cache:
    def __init__(self, size: Any) -> None:
        self.size = size


@program(
    "a key-value cache that counts its entries in an int",
    cures.ATTRIBUTE_NUMBER,
    "`cache.size = torch.tensor(...)`",
    ("meta-pytorch/torchtune#1663",),
)
def a_counting_cache(cured: bool) -> object:
    step = compiled(lambda x, cache: x * cache.size, dynamic=None if cured else False)
    cache, found = Cache(torch.tensor(1) if cured else 1), []
    for _ in range(4):
        found.append(step(torch.ones(2), cache))
        cache.size += 1
    return found


@program("a float that is passed", cures.COMPUTED_NUMBER, "`torch.tensor(scale)`", ("pytorch/pytorch#149405",))
def a_float(cured: bool) -> object:
    step = compiled(lambda x, scale: x * scale)
    return [step(torch.ones(2), torch.tensor(scale) if cured else scale) for scale in (1.5, 2.5)]


@program("a number that is passed", cures.COMPUTED_NUMBER, "`torch.tensor(scale)`", ("pytorch/pytorch#132849",))
def a_number(cured: bool) -> object:
    step = compiled(lambda x, scale: x * scale)
    return [step(torch.ones(2), torch.tensor(scale) if cured else scale) for scale in (2, 3)]


@program(
    "a number under dynamic=False",
    cures.CONSTANT_NUMBER,
    "compile with `dynamic=None`, where a number that changes becomes a symbol",
)
def a_number_that_stays_constant(cured: bool) -> object:
    step = compiled(lambda x, scale: x * scale, dynamic=None if cured else False)
    return [step(torch.ones(2), scale) for scale in (2, 3, 4, 5)]


SCALE = 1


@program("a global number", cures.GLOBAL_NUMBER, "Pass `SCALE` as an argument")
def a_global_number(cured: bool) -> object:
    global SCALE
    reading, taking = compiled(lambda x: x * SCALE), compiled(lambda x, scale: x * scale)
    found = []
    for SCALE in (2, 3, 4):
        x = torch.ones(3)
        found.append(taking(x, torch.tensor(SCALE)) if cured else reading(x))
    return found


MODE = "sin"


@program("a global setting of the program", cures.GLOBAL_VALUE, "Set `MODE` once")
def a_global_value(cured: bool) -> object:
    global MODE
    step = compiled(lambda x: x.sin() if MODE == "sin" else x.cos())
    MODE = "cos" if cured else "sin"
    step(torch.ones(3))
    MODE = "cos"
    step(torch.ones(3))
    return None


@program("a string that is passed", cures.VALUE, "move the choice out of the function", ("pytorch/pytorch#100455",))
def a_choice(cured: bool) -> object:
    choose = compiled(lambda x, kind: torch.relu(x) if kind == "relu" else torch.tanh(x))
    apply = compiled(lambda x, relu: torch.where(relu, torch.relu(x), torch.tanh(x)))
    x = torch.ones(3)
    return [apply(x, torch.tensor(k == "relu")) if cured else choose(x, k) for k in ("relu", "tanh")]


class Dropping(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.5, self.training) * 2


@program("train() and eval()", cures.TRAINING, "Both are kept", ("pytorch/pytorch#110803",), measure=settled)
def training(cured: bool) -> object:
    step = STEPS.setdefault("training", compiled(Dropping()))
    for on in (True, False):
        step.train(on)
        step(torch.ones(2))
    return None


@program("a flag that is passed", cures.FLAG, "Both are kept", measure=settled)
def a_flag(cured: bool) -> object:
    step = STEPS.setdefault("flag", compiled(lambda x, flag: x * 2 if flag else x))
    return [step(torch.ones(2), flag) for flag in (True, False)]


def applied(function: Any, x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = function(x) * 2
    return result


@program("a lambda that is made in a loop", cures.FUNCTION, "outside the loop", ("pytorch/pytorch#107866",))
def a_lambda_in_a_loop(cured: bool) -> object:
    def outer(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    step, found = compiled(applied), []
    for _ in range(3):
        exec("function = lambda x: x.sin()", names := {})  # type: ignore[var-annotated]  # a new code object each time
        found.append(step(outer if cured else names["function"], torch.ones(2)))
    return found


@program(
    "a list of which only the length is read",
    cures.ONLY_LENGTH,
    "Pass `len(lengths)` in its place",
)
def a_length(cured: bool) -> object:
    step = compiled(lambda x, lengths: x / (lengths if cured else len(lengths)))
    return [step(torch.ones(3), count if cured else [1.5] * count) for count in range(2, 6)]


@program(
    "a list that grows",
    cures.LENGTH,
    "Stack the elements into one tensor with a dynamic dimension",
    ("pytorch/pytorch#93724", "tdrussell/diffusion-pipe#439"),
)
def a_loop_over_a_list(cured: bool) -> object:
    step = compiled(lambda parts: parts.sum(0) if cured else sum(parts), dynamic=True if cured else None)
    found = []
    for count in (2, 3, 4):
        parts = [torch.ones(3) for _ in range(count)]
        found.append(step(torch.stack(parts) if cured else parts))
    return found


@program("a hook that comes after the first call", cures.MODULE_HOOKS, "Register them before the first call")
def a_late_hook_of_a_module(cured: bool) -> object:
    model, found = Layer(3), []
    step = torch.compile(model, backend="aotviz_eager")
    for k in range(2):
        if k == (0 if cured else 1):
            model.linear.register_forward_hook(lambda module, given, result: result * 2)
        found.append(step(torch.ones(2)).shape)
    return found


@program("a list in place of a tuple", cures.TYPE, "`tuple(parts)`")
def a_list_for_a_tuple(cured: bool) -> object:
    step = compiled(lambda parts: parts[0] * parts[1])
    found = []
    for kind in (tuple, list):
        parts = kind((torch.ones(2), torch.zeros(2)))
        found.append(step(tuple(parts) if cured else parts))
    return found


@program(
    "a batch whose keys vary",
    cures.KEYS,
    "Give `given` the same keys in each call",
    ("pytorch/tensordict#1606", "pytorch/pytorch#175858"),
)
def a_key_that_is_missing(cured: bool) -> object:
    step = compiled(lambda given: sum(value for value in given.values() if value is not None))
    full = {"x": torch.ones(2), "y": None}
    return [step(full if cured else given) for given in ({"x": torch.ones(2)}, full)]


class Config:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


@program(
    "an attribute that is set after the first call",
    cures.ATTRIBUTE,
    "Set the attribute before the first call",
    ("huggingface/transformers#46421",),
)
def a_late_attribute(cured: bool) -> object:
    config = Config()
    if cured:
        config.scale = torch.ones(2)
    step = compiled(lambda x, config: x * config.scale if hasattr(config, "scale") else x * 3)
    step(torch.ones(2), config)
    config.scale = torch.ones(2)
    step(torch.ones(2), config)
    return None


def of_class(x: torch.Tensor, kind: type) -> torch.Tensor:
    return x * 2 if kind is Config else x * 3


@program("a class that is made for each call", cures.IDENTITY, "keep one object")
def a_new_object(cured: bool) -> object:
    step, kept, found = compiled(of_class), [type("Made", (), {}) for _ in range(3)], []
    for number in range(3):
        found.append(step(torch.ones(2), kept[0 if cured else number]))
    return found


@program("an object that is deleted and made again", cures.DELETED, "Keep `kind` alive", ("pytorch/pytorch#130776",))
def a_deleted_object(cured: bool) -> object:
    step, found, kept = compiled(of_class), [], type("Made", (), {})
    for _ in range(2):
        found.append(step(torch.ones(2), kept if cured else type("Made", (), {})))
        gc.collect()
    return found


@program("a counter that became a symbol", cures.SYMBOL, "Nothing is to be done", measure=settled)
def a_counter_that_became_a_symbol(cured: bool) -> object:
    with torch._dynamo.config.patch(allow_unspec_int_on_nn_module=True):
        step = STEPS.setdefault("counter", compiled(Metric()))
        return [step(torch.ones(2)) for _ in range(4)]


@program("two numbers that change together", cures.ALSO, "Those calls fail the guard on `shift` as well")
def two_numbers(cured: bool) -> object:
    step = compiled(lambda x, scale, shift: x * scale + shift, dynamic=None if cured else False)
    given = torch.tensor if cured else int
    return [step(torch.ones(2), given(n), given(n + 1)) for n in (2, 3, 4, 5)]


class Language(enum.Enum):
    EN = 1
    DE = 2
    FR = 3
    IT = 4


@program("a member of an Enum", cures.MEMBER, "pass that as a tensor")
def a_member(cured: bool) -> object:
    offsets = torch.arange(5.0)
    chosen = compiled(lambda x, language: x + offsets[language.value])
    given = compiled(lambda x, offset: x + offset)
    x = torch.ones(3)
    return [given(x, offsets[one.value]) if cured else chosen(x, one) for one in Language]


@program("a class made in a loop", cures.NEW_CLASS, "Define the class of `batch` once")
def a_class_made_in_a_loop(cured: bool) -> object:
    step, found = compiled(lambda batch: batch.x - batch.y), []
    outside = collections.namedtuple("Batch", ["x", "y"])
    for _ in range(4):
        kind = outside if cured else collections.namedtuple("Batch", ["x", "y"])
        found.append(step(kind(torch.ones(3), torch.zeros(3))))
    return found


@program("a dict whose keys are in another order", cures.KEY_ORDER, "`{key: batch[key] for key in sorted(batch)}`")
def keys_in_another_order(cured: bool) -> object:
    step, found = compiled(lambda batch: sum(batch.values())), []
    for names in ("ab", "ba"):
        batch = {name: torch.ones(2) for name in names}
        found.append(step({key: batch[key] for key in sorted(batch)} if cured else batch))
    return found


class Stages(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList()

    def add(self) -> None:
        self.blocks.append(nn.Linear(2, 2))
        torch.nn.init.eye_(self.blocks[-1].weight)
        torch.nn.init.zeros_(self.blocks[-1].bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


@program("a block that is appended after the first call", cures.MODULES, "Add all of them before the first call")
def a_block_that_is_appended(cured: bool) -> object:
    model = Stages()
    step, found = compiled(model), []
    for _ in range(3 if cured else 1):
        model.add()
    for _ in range(3):
        found.append(step(torch.ones(1, 2)))
        if not cured:
            model.add()
    return found


@program("a block that is appended, each compiled", cures.MODULES, "compile each of them (`block.compile()`)")
def each_block_compiled(cured: bool) -> object:
    model = Stages()
    step, found = model if cured else compiled(model), []
    for _ in range(3):
        model.add()
        if cured:
            model.blocks[-1].compile(backend="eager")
        found.append(step(torch.ones(1, 2)))
    return found


class Cached(nn.Module):
    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def forward(self, x: torch.Tensor, kept: list[torch.Tensor]) -> torch.Tensor:
        kept[self.index] = torch.cat([kept[self.index], x])
        return x + kept[self.index].sum(0)


@program(
    "blocks that look up what is theirs by an index",
    cures.LOOKED_UP,
    "compile the model in place of its blocks",
    ("huggingface/transformers#36484",),
)
def an_index_that_looks_up(cured: bool) -> object:
    blocks, kept = [Cached(index) for index in range(4)], [torch.ones(index + 1, 3) for index in range(4)]

    def forward(x: torch.Tensor) -> torch.Tensor:
        for block in blocks:
            x = block(x, kept)
        return x

    if cured:
        return compiled(forward)(torch.ones(1, 3))
    for block in blocks:
        block.compile(backend="eager")
    return forward(torch.ones(1, 3))


NAMED = "sin 0"


@program(
    "a global string that changes often",
    cures.GLOBAL_VALUE,
    "work out what depends on it outside of the function, and pass that",
)
def a_global_string(cured: bool) -> object:
    global NAMED
    reading = compiled(lambda x: x * int(NAMED.split()[1]))
    taking, found = compiled(lambda x, factor: x * factor), []
    for step in range(2, 6):
        NAMED = f"sin {step}"
        found.append(taking(torch.ones(3), torch.tensor(step)) if cured else reading(torch.ones(3)))
    return found


NORMS: list[torch.Tensor] = []


@program("a list that a hook fills", cures.FILLED, "return the value and put it into")
def a_list_that_a_hook_fills(cured: bool) -> object:
    model = nn.Linear(2, 2, bias=False)
    nn.init.ones_(model.weight)
    if not cured:
        model.register_forward_hook(lambda module, args, out: NORMS.append(out.norm()))
    NORMS.clear()
    step = compiled((lambda x: (model(x), model(x).norm())) if cured else (lambda x: model(x)))
    for _ in range(2):
        result = step(torch.ones(2))
        if cured:
            NORMS.append(result[1])
    return list(NORMS)


class Kinds:
    kind: str | None = None


class SetsItsKind(nn.Module):
    def __init__(self, kinds: Kinds) -> None:
        super().__init__()
        self.kinds = kinds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kinds.kind is None:
            self.kinds.kind = "double"
        return x * 2


@program("an attribute that the first call sets", cures.SET_BY_CALL, "set it before that call")
def an_attribute_set_by_the_first_call(cured: bool) -> object:
    return of_kind(Kinds(), cured)


@program("an attribute that is None until the first call sets it", cures.SET_BY_CALL, "`self.kinds.kind`")
def a_none_set_by_the_first_call(cured: bool) -> object:
    kinds = Kinds()
    kinds.kind = None
    return of_kind(kinds, cured)


def of_kind(kinds: Kinds, cured: bool) -> object:
    model = SetsItsKind(kinds)
    if cured:
        model.kinds.kind = "double"
    step = compiled(model)
    return [step(torch.ones(3)) for _ in range(2)]


def compiled_nothing(calls: Calls, cured: bool) -> Effect:
    recording, result = watched(calls, cured)
    return Effect(int(not len(recording)), "watches of nothing", recording, result)


class Encoder(nn.Module):
    def embed(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@program("a method that is not `forward`", cures.NOT_COMPILED, "compile another method itself", (), compiled_nothing)
def another_method(cured: bool) -> object:
    if cured:
        module = Encoder()
        module.embed = compiled(module.embed)  # type: ignore[method-assign]
    else:
        module = compiled(Encoder())
    return module.embed(torch.ones(3))


@program(
    "`compile()` of torch's own class", cures.NOT_COMPILED, "`module = torch.compile(module)`", (), compiled_nothing
)
def compile_of_a_sequential(cured: bool) -> object:
    module = nn.Sequential(nn.ReLU())
    if cured:
        return compiled(module)(torch.ones(3))
    module.compile(backend="eager")
    return module(torch.ones(3))


@program("hooks that come and go", cures.MODULE_HOOKS, "what a hook does can depend on a tensor that you change", ())
def a_hook_on_another_layer_in_each_call(cured: bool) -> object:
    layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(3))
    for number, layer in enumerate(layers):
        torch.nn.init.constant_(layer.weight, number + 1.0)
        torch.nn.init.zeros_(layer.bias)
    model, found = torch.nn.Sequential(*layers), []
    on = torch.ones(3)
    if cured:
        for number, layer in enumerate(layers):
            layer.register_forward_hook(lambda module, given, result, number=number: result * on[number])
    step = torch.compile(model, backend="aotviz_eager")
    for number, layer in enumerate(layers):
        if cured:
            on.fill_(1)[number] = 0
            found.append(step(torch.ones(2)).detach())
        else:
            handle = layer.register_forward_hook(lambda module, given, result: result * 0)
            found.append(step(torch.ones(2)).detach())
            handle.remove()
    return found
