"""What a compiled function reaches without taking it: tensors become inputs, plain values are compared at each call."""

from __future__ import annotations

import copy
import functools
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import aotviz
from aotviz.lowerings import run_graph

Pair = namedtuple("Pair", "w b")


def leaf(*shape: int, k: float = 1.0) -> torch.Tensor:
    return (torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape) * k / 7).requires_grad_()


W = leaf(2, 2)
WEIGHTS = {"first": [leaf(2, 2)]}
LAYERS = [nn.Linear(2, 2), nn.Linear(2, 2)]
PAIR = Pair(leaf(2, 2), leaf(2))
CONFIG = SimpleNamespace(weight=leaf(2, 2), scale=2.0)
LR = 0.5
CALLS = 0


def by_default(x: torch.Tensor, w: torch.Tensor = WEIGHTS["first"][0], *, b: torch.Tensor = PAIR.b) -> torch.Tensor:
    return x @ w + b


class Holder:
    def __init__(self) -> None:
        self.weight = leaf(2, 2)
        self.layer = nn.Linear(2, 2)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight

    def through_the_layer(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.weight


class PlainAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Module()
        self.inner.weight = torch.ones(2)
        self.rest = [torch.full((2,), 3.0)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.inner.weight + self.rest[0]


def of_a_closure() -> Any:
    w, unbound = leaf(2, 2), None

    def inner(x: torch.Tensor) -> torch.Tensor:
        return (x @ w).sin() if unbound is None else x

    return inner


HOLDER = Holder()
REACHED: dict[str, tuple[Any, list[str]]] = {
    "a global": (lambda x: x @ W, ["W"]),
    "a closure": (of_a_closure(), ["w"]),
    "a container": (lambda x: x @ WEIGHTS["first"][0], ["WEIGHTS['first'][0]"]),
    "a default argument": (by_default, ["w", "b"]),
    "a function that it calls": (lambda x: by_default(x), ["x"]),
    "a named tuple": (lambda x: x @ PAIR.w + PAIR.b, ["PAIR.w", "PAIR.b"]),
    "an attribute": (lambda x: x @ CONFIG.weight, ["CONFIG.weight"]),
    "an object that is called": (HOLDER, ["weight", "x"]),
    "a bound object's module": (HOLDER.through_the_layer, ["weight", "layer.weight", "layer.bias"]),
    "a list of modules": (lambda x: LAYERS[1](LAYERS[0](x)), ["LAYERS[0].weight", "LAYERS[1].bias"]),
    "an attribute that is no buffer": (PlainAttribute(), ["inner.weight", "rest[0]"]),
    "a comprehension": (lambda x: sum(x @ w for w in WEIGHTS["first"]), ["WEIGHTS['first'][0]"]),
    "a partial": (functools.partial(by_default, w=W), []),
}


def gradients(fn: Any, leaves: list[torch.Tensor]) -> list[Any]:
    for one in leaves:
        one.grad = None
    x = leaf(2, 2, k=0.3)
    y = fn(x)
    y.sum().backward()
    return [y.detach(), x.grad, *(None if one.grad is None else one.grad.clone() for one in leaves)]


@pytest.mark.parametrize("how", sorted(REACHED))
def test_a_tensor_that_is_reached_is_an_input(how: str) -> None:
    fn, names = REACHED[how]
    leaves = [W, *WEIGHTS["first"], *PAIR, CONFIG.weight, HOLDER.weight, *HOLDER.layer.parameters()]
    leaves += [parameter for layer in LAYERS for parameter in layer.parameters()]
    before = [id(PAIR), id(PAIR.w), id(LAYERS[0].weight), id(WEIGHTS["first"][0])]
    compiled = aotviz.compile(fn, backend="eager", debug=True)
    expected = gradients(fn, leaves)
    for _ in range(2):
        torch.testing.assert_close(gradients(compiled, leaves), expected, rtol=0, atol=0)
    assert before == [id(PAIR), id(PAIR.w), id(LAYERS[0].weight), id(WEIGHTS["first"][0])]
    (compilation,) = compiled.recording
    assert set(names) <= set(compilation.inputs["name"])


def test_torchs_own_door_names_it() -> None:
    with pytest.raises(aotviz.Refused, match=r"uses the tensor \"WEIGHTS\['first'\]\[0\]\" without taking it"):
        aotviz.aot_function(lambda x: x @ WEIGHTS["first"][0], run_graph)(torch.ones(2, 2))


@pytest.mark.parametrize("read", [lambda w: w, lambda w: w.data, lambda w: w.detach(), lambda w: w.t()])
def test_torchs_own_door_names_a_parameter_however_it_is_read(read: Any) -> None:
    linear = nn.Linear(2, 2)
    with pytest.raises(aotviz.Refused, match=r"uses the tensor 'linear.weight' without taking it"):
        aotviz.aot_function(lambda x: x + read(linear.weight), run_graph)(torch.ones(2, 2))


def test_a_tensor_in_a_set_is_named() -> None:
    held = frozenset([torch.ones(2)])
    with pytest.raises(NotImplementedError, match=r"uses the tensor 'held\[0\]' without taking it as an argument"):
        aotviz.aot_function(lambda x: x + next(iter(held)), run_graph)(torch.ones(2))


def test_what_is_written_outside_is_written() -> None:
    def make() -> tuple[Any, dict[str, torch.Tensor]]:
        state = {"count": torch.zeros(()), "mean": torch.zeros(2)}

        def step(x: torch.Tensor) -> torch.Tensor:
            state["count"].add_(1)
            state["mean"].lerp_(x.detach(), 1 / state["count"])
            return x - state["mean"]

        return step, state

    (plain, expected), (fn, found) = make(), make()
    compiled = aotviz.compile(fn, backend="eager")
    for k in range(3):
        x = torch.tensor([1.0, k])
        assert torch.equal(compiled(x), plain(x))
    assert [(t.tolist(), t._version) for t in found.values()] == [(t.tolist(), t._version) for t in expected.values()]
    assert len(compiled.recording) == 1


def test_an_argument_may_be_what_is_reached() -> None:
    state = torch.zeros(4)

    def fn(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return state * 2

    compiled = aotviz.compile(fn, backend="eager")
    for x in (state[:2], state, torch.zeros(2), state[1:]):
        before = state.clone()
        expected = fn(x)
        state.copy_(before)
        assert torch.equal(compiled(x), expected)


def test_what_is_reached_may_be_a_parameter_of_a_module_in_sight() -> None:
    model = nn.Linear(2, 2)
    weights = list(model.parameters())

    def decayed(x: torch.Tensor) -> torch.Tensor:
        return model(x).sum() + sum(w.square().sum() for w in weights)

    compiled = aotviz.compile(decayed, backend="eager")
    x = torch.ones(1, 2)
    assert torch.equal(compiled(x), decayed(x))
    weights[0] = nn.Parameter(torch.zeros(2, 2))
    assert torch.equal(compiled(x), decayed(x))
    compiled(x).backward()
    assert weights[0].grad is not None


def test_what_was_put_in_its_place_is_used() -> None:
    held = {"w": leaf(2, 2)}
    compiled = aotviz.compile(lambda x: x @ held["w"], backend="eager")
    x = torch.ones(1, 2)
    compiled(x)
    held["w"] = leaf(2, 2, k=5)
    assert torch.equal(compiled(x), x @ held["w"])
    assert len(compiled.recording) == 1
    held["w"] = leaf(2, 3)
    assert torch.equal(compiled(x), x @ held["w"])
    assert len(compiled.recording) == 2
    del held["w"]
    with pytest.raises(KeyError):
        compiled(x)


def test_a_tensor_put_there_by_the_function_is_there() -> None:
    held = {"w": leaf(2)}
    deep = [[SimpleNamespace(holder=Holder())]]
    first, second = held["w"], deep[0][0].holder.weight

    def shallow(x: torch.Tensor) -> torch.Tensor:
        held["w"] = held["w"] * 2
        return x + held["w"]

    def deeply(x: torch.Tensor) -> torch.Tensor:
        deep[0][0].holder.weight = deep[0][0].holder.weight * 2
        return x

    for fn in (shallow, deeply):
        aotviz.compile(fn, backend="eager")(torch.ones(2))
    assert torch.equal(held["w"], first * 2)
    assert torch.equal(deep[0][0].holder.weight, second * 2)


def test_a_failure_in_the_middle_puts_everything_back() -> None:
    pair = (leaf(2), leaf(2))
    held = [pair]

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + held[0][0] + held[0][1]
        raise ZeroDivisionError(str(y.shape))

    with pytest.raises(ZeroDivisionError):
        aotviz.compile(fn, backend="eager")(torch.ones(2))
    assert held[0] is pair


def test_transforms_and_symbolic_sizes() -> None:
    fn = REACHED["a global"][0]
    compiled = aotviz.compile(fn, backend="eager", dynamic=True)
    for rows in (3, 4, 5):
        x = torch.ones(rows, 2)
        assert torch.equal(compiled(x), fn(x))
    assert len(compiled.recording) == 1
    x = torch.ones(4, 3, 2)
    assert torch.equal(torch.vmap(compiled)(x), torch.vmap(fn)(x))


def test_verify_copies_what_is_reached() -> None:
    state = torch.zeros(2)

    def fn(x: torch.Tensor) -> torch.Tensor:
        state.add_(1)
        return x * state

    assert aotviz.verify(fn, torch.ones(2)).equal
    assert state.tolist() == [0, 0]


# --- plain values ---------------------------------------------------------------------------------------------------


def helper(x: torch.Tensor) -> torch.Tensor:
    return x * CONFIG.scale


def test_a_global_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = aotviz.compile(lambda x: x * LR, backend="eager")
    x = torch.ones(2)
    assert compiled(x).tolist() == [0.5, 0.5]
    monkeypatch.setitem(globals(), "LR", 0.25)
    assert compiled(x).tolist() == [0.25, 0.25]
    assert len(compiled.recording) == 2
    (row,) = compiled.recording.recompiles().to_dict("records")
    assert (row["subject"], row["before"], row["after"]) == ("LR", "0.5", "0.25"), row
    monkeypatch.setitem(globals(), "LR", 0.5)
    assert compiled(x).tolist() == [0.5, 0.5]
    assert len(compiled.recording) == 2


def test_an_attribute_that_a_called_function_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = aotviz.compile(lambda x: helper(x) + 1, backend="eager")
    assert compiled(torch.ones(2)).tolist() == [3, 3]
    monkeypatch.setattr(CONFIG, "scale", 4.0)
    assert compiled(torch.ones(2)).tolist() == [5, 5]
    monkeypatch.setitem(globals(), "helper", lambda x: x * 10)
    assert compiled(torch.ones(2)).tolist() == [11, 11]


def test_types_count() -> None:
    held = {"k": 1}
    compiled = aotviz.compile(lambda x: x * held["k"], backend="eager")
    kinds = []
    for k in (1, 1.0, True):
        held["k"] = k
        kinds.append(compiled(torch.ones(2, dtype=torch.bool)).dtype)
    assert kinds == [torch.int64, torch.float32, torch.bool]


def test_a_list_of_numbers() -> None:
    sizes = [2, 3]
    compiled = aotviz.compile(lambda x: x.expand(*sizes) + len(sizes), backend="eager")
    assert compiled(torch.ones(1)).shape == (2, 3)
    sizes.insert(0, 4)
    assert compiled(torch.ones(1)).shape == (4, 2, 3)
    assert compiled(torch.ones(1))[0, 0, 0] == 4


def test_a_module_in_a_list_that_changed_between_train_and_eval() -> None:
    layers = [nn.Dropout(0.999)]
    compiled = aotviz.compile(lambda x: layers[0](x), backend="eager")
    torch.manual_seed(0)
    assert compiled(torch.ones(100)).sum() != 100
    layers[0].eval()
    assert compiled(torch.ones(100)).sum() == 100


def test_another_module_under_the_same_name() -> None:
    model = nn.Linear(2, 2)
    compiled = aotviz.compile(lambda x: model(x), backend="eager")
    x = torch.ones(1, 2)
    first = compiled(x)
    old, model = model, nn.Linear(2, 2)
    assert torch.equal(compiled(x), model(x))
    assert not torch.equal(compiled(x), first)
    model = old
    assert torch.equal(compiled(x), first)
    model = copy.deepcopy(old).double()
    assert compiled(x.double()).dtype == torch.float64


def test_a_counter_of_its_own_counts() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        global CALLS
        CALLS += 1
        return x * 2

    compiled = aotviz.compile(fn, backend="eager")
    before = CALLS
    for _ in range(3):
        compiled(torch.ones(2))
    assert before + 3 == CALLS


def test_a_class_attribute_and_a_method() -> None:
    class Settings:
        rate = 2.0

        def scaled(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.rate

    settings = Settings()
    compiled = aotviz.compile(lambda x: settings.scaled(x) + Settings.rate, backend="eager")
    assert compiled(torch.ones(1)).item() == 4
    Settings.rate = 3.0
    assert compiled(torch.ones(1)).item() == 6
    settings.rate = 5.0
    assert compiled(torch.ones(1)).item() == 8


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sizes = [2]
        self.shape = (2, 1)
        self.act = torch.relu
        self.kind = torch.float32
        self.config = SimpleNamespace(inner=SimpleNamespace(scale=2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(x.to(self.kind)).expand(*self.sizes, *x.shape).reshape(self.shape)
        return self.scaled(y)

    def scaled(self, y: torch.Tensor) -> torch.Tensor:
        return y * self.config.inner.scale


def _set(name: str, value: Any) -> Any:
    return lambda block: setattr(block, name, value)


CHANGES = {
    "a list": lambda block: block.sizes.__setitem__(slice(None), [1, 2]),
    "a tuple": _set("shape", (1, 2)),
    "a function": _set("act", torch.neg),
    "a dtype": _set("kind", torch.float64),
    "an object's object": lambda block: setattr(block.config.inner, "scale", 3.0),
    "another object": _set("config", SimpleNamespace(inner=SimpleNamespace(scale=5.0))),
}


@pytest.mark.usefixtures("clean_dynamo")
@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("nested", [False, True])
def test_what_a_module_holds_besides_tensors(how: str, nested: bool) -> None:
    block = Block()
    model = nn.Sequential(nn.Identity(), block) if nested else block
    compiled = aotviz.compile(model, backend="eager")
    x = torch.ones(1)
    for _ in range(2):
        assert torch.equal(compiled(x), model(x))
    assert len(compiled.recording) == 1
    CHANGES[how](block)
    found, expected = compiled(x), model(x)
    assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())
    assert len(compiled.recording) == 2


def test_what_an_argument_holds_besides_tensors() -> None:
    class Settings:
        def __init__(self) -> None:
            self.scale, self.calls, self.unread = 2.0, 0, 0
            self.inner = SimpleNamespace(shift=1.0)

    def fn(x: torch.Tensor, settings: Any, kinds: set[str]) -> torch.Tensor:
        settings.calls += 1
        return x * settings.scale + settings.inner.shift + ("twice" in kinds)

    compiled = aotviz.compile(fn, backend="eager")
    settings, kinds = Settings(), {"once"}
    for _ in range(2):
        assert compiled(torch.ones(1), settings, kinds).item() == 3
        settings.unread += 1
    assert settings.calls == 2
    settings.scale = 3.0
    assert compiled(torch.ones(1), settings, kinds).item() == 4
    settings.inner.shift = 2.0
    assert compiled(torch.ones(1), settings, kinds).item() == 5
    kinds.add("twice")
    assert compiled(torch.ones(1), settings, kinds).item() == 6


def test_what_is_defined_later() -> None:
    compiled = aotviz.compile(lambda x: later(x), backend="eager")

    def later(x: torch.Tensor) -> torch.Tensor:
        return x * offset

    offset = 2.0
    assert compiled(torch.ones(1)).item() == 2
    offset = 3.0
    assert compiled(torch.ones(1)).item() == 3
