"""One recompile for each kind of plain value that a guard can hold: ints, floats, globals, closures, containers."""

import dataclasses
import enum

import torch


def compiled(function):
    return torch.compile(function, backend="eager")


@compiled
def step_counter(x, step):
    if step % 2 == 0:
        return x + step
    return x - step


@compiled
def learning_rate(x, rate):
    if rate > 0.015:
        return x * rate
    return x - rate


temperature = 1.0


@compiled
def reads_a_global(x):
    return x / temperature


def make_closure():
    power = 2

    @compiled
    def reads_a_closure(x):
        return x**power

    def change(value):
        nonlocal power
        power = value

    return reads_a_closure, change


@compiled
def mode_by_name(x, mode):
    return x.relu() if mode == "relu" else x.tanh()


@compiled
def dictionary(x, settings):
    if "bias" in settings:
        x = x + settings["bias"]
    return x * settings["scale"]


@compiled
def growing_list(tensors):
    return sum(tensors)


@compiled
def takes_a_function(x, activation):
    return activation(x)


@compiled
def maybe_none(x, mask):
    return x + 1 if mask is None else x * mask


@compiled
def other_type(x, values):
    return x + values[0]


class Phase(enum.Enum):
    WARM_UP = 1
    TRAIN = 2


@compiled
def by_phase(x, phase):
    return x * 2 if phase is Phase.WARM_UP else x * 3


@dataclasses.dataclass
class Settings:
    width: int
    residual: bool


@compiled
def by_attribute(x, settings):
    return x + settings.width if settings.residual else x * settings.width


@compiled
def default_dtype(x):
    return x + torch.zeros(3)


x = torch.ones(3)
for step in range(4):
    step_counter(x, step)
for rate in (0.01, 0.02, 0.03):
    learning_rate(x, rate)
reads_a_global(x)
temperature = 2.0
reads_a_global(x)
reads_a_closure, change = make_closure()
reads_a_closure(x)
change(3)
reads_a_closure(x)
mode_by_name(x, "relu")
mode_by_name(x, "tanh")
dictionary(x, {"scale": 2})
dictionary(x, {"scale": 2, "bias": 1})
for length in (1, 2, 3):
    growing_list([x] * length)
takes_a_function(x, lambda value: value.relu())
takes_a_function(x, lambda value: value.relu())
maybe_none(x, None)
maybe_none(x, x)
other_type(x, [1, 2])
other_type(x, (1, 2))
by_phase(x, Phase.WARM_UP)
by_phase(x, Phase.TRAIN)
by_attribute(x, Settings(4, True))
by_attribute(x, Settings(4, False))
default_dtype(x)
torch.set_default_dtype(torch.float64)
default_dtype(x)
