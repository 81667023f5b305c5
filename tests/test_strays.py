"""What a compiled function's module and arguments hold besides tensors, one compiled function in another, copies."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import aotviz
from aotviz import Refused
from aotviz.lowerings import run_graph
from tests.doors import alone

SCALE = aotviz.compile(lambda x: x.sin(), backend="eager")


def test_a_choice_by_value_says_where_and_what_to_do() -> None:
    def chooses(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x * 2
        return x

    with pytest.raises(
        Refused, match=r"value of a tensor that depends on 'x', at .*`if x.sum.. > 0:`.*where"
    ) as caught:
        alone(chooses)(torch.ones(2))
    assert caught.value.reason == "value of a tensor"


def test_a_value_is_named_by_the_variables_of_the_part_that_asks_for_it() -> None:
    def asks(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        w = w + 1
        loss, größe = (x * w).sum(), x.sum()
        return [w.cos(), x * 2 if loss > größe else x]

    with pytest.raises(Refused, match=r"the value of a tensor that depends on 'loss' and 'größe', at "):
        alone(asks)(torch.ones(2), torch.ones(2))


def test_the_value_of_a_complex_number_is_refused_too() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()

    assert alone(scaled)(torch.ones(2)).tolist() == [2.0, 2.0]  # torch has a symbol for a float
    with pytest.raises(Refused, match=r"value of a tensor that depends on 'x', at .*\.item\(\)") as caught:
        alone(scaled)(torch.ones(2, dtype=torch.complex64))
    assert caught.value.reason == "value of a tensor"


def test_a_value_that_a_module_of_torch_asks_for_is_named_by_its_buffer() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, momentum=None))
    with pytest.raises(Refused, match=r"the value of the buffer '1\.num_batches_tracked' of BatchNorm1d"):
        alone(model)(torch.ones(3, 2))
    assert model[1].num_batches_tracked == 0  # nothing has run
    alone(model.eval())(torch.ones(3, 2))


def test_a_compiler_must_return_a_sequence() -> None:
    def careless(graph: Any, inputs: Any) -> Any:
        return lambda *args: graph(*args)[0]

    with pytest.raises(TypeError, match="returned Tensor; it must return a tuple or list"):
        aotviz.compile(lambda x: x.sin(), backend=careless)(torch.ones(2))


# --- attributes of modules ------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state: dict[str, Any] = {}
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state["h"] = x * 2
        return self.state["h"]


class Counting(Recurrent):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + 1


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0
        self.note = ""
        self.layer = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.scale * getattr(self, "late", 1.0)


def test_a_tensor_assigned_to_an_attribute_is_refused_and_taken_back() -> None:
    module = Recurrent()
    with pytest.raises(Refused, match=r"assigns a tensor to self\.state\['h'\]"):
        alone(module)(torch.ones(2))
    assert module.state == {}


def test_what_a_module_assigns_to_itself_is_there_after_the_call() -> None:
    module = Recurrent()
    aotviz.compile(module, backend="eager")(torch.ones(2))
    assert module.state["h"].tolist() == [2, 2]
    counting = Counting()
    compiled = aotviz.compile(counting, backend="eager")
    for _ in range(3):
        compiled(torch.ones(2))
    assert counting.calls == 3


def test_a_counter_is_warned_about() -> None:
    module = Counting()
    compiled = alone(module)
    with pytest.warns(UserWarning, match=r"changes self\.calls from 0 to 1"):
        compiled(torch.ones(2))


def test_a_plain_value_that_is_set_once_is_no_change() -> None:
    class Settles(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen = True
            return x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # torch has others, on Python 3.13.0
        aotviz.compile(Settles(), backend="eager")(torch.ones(2))


def test_weight_norm_assigns_what_the_call_then_reads() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.nn.utils.weight_norm(nn.Linear(2, 2))
    x = torch.ones(1, 2)
    torch.testing.assert_close(aotviz.compile(module, backend="eager")(x), module(x))


class Cache:
    """Holds tensors, as a cache of keys and values does, and is no pytree."""

    def __init__(self) -> None:
        self.layers: list[Any] = []
        self.calls = 0


def _fills(x: torch.Tensor, cache: Any) -> torch.Tensor:
    cache.layers.append(Cache())
    cache.layers[-1].keys = x * 2
    return x + 1


def _assigns(x: torch.Tensor, given: Any) -> torch.Tensor:
    given["keys"][0] = x * 2
    return x + 1


@pytest.mark.parametrize(
    ("fn", "given", "what"),
    [(_fills, Cache(), "'cache.layers'"), (_assigns, {"keys": [1]}, r".given\['keys'\].")],
)
def test_what_an_argument_holds_is_not_changed_by_a_trace(fn: Any, given: Any, what: str) -> None:
    before = copy.deepcopy(given)
    with pytest.raises(Refused, match=f"{fn.__name__} changes what the Python object {what} holds"):
        alone(fn)(torch.ones(2), given)
    assert given == before if isinstance(given, dict) else vars(given) == vars(before)


def test_a_tensor_that_an_argument_holds_is_named() -> None:
    cache = Cache()
    cache.keys = torch.ones(2)
    with pytest.raises(
        NotImplementedError,
        match=r"uses the tensor 'cache.keys' without .* make Cache, which is passed as 'cache', a py",
    ):
        alone(lambda x, cache: x + cache.keys)(torch.ones(2), cache)


def test_an_object_may_count_its_calls() -> None:
    def counts(x: torch.Tensor, cache: Any) -> torch.Tensor:
        cache.calls += 1
        return x + 1

    assert aotviz.compile(counts, backend="eager")(torch.ones(2), Cache()).tolist() == [2, 2]


def test_pruning_assigns_what_the_call_then_reads() -> None:
    pruned = prune.l1_unstructured(nn.Linear(4, 4), "weight", 0.5)
    x = torch.ones(1, 4)
    compiled = aotviz.compile(pruned, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(x), pruned(x))
    gradients = []
    for module in (pruned, compiled):
        pruned.zero_grad()
        module(x).sum().backward()
        gradients.append(pruned.weight_orig.grad.clone())
    torch.testing.assert_close(gradients[1], gradients[0])


def test_a_lazy_module_is_called_before_it_is_compiled() -> None:
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
    compiled = alone(model)
    with pytest.raises(Refused, match=r"'weight' of 0 \(LazyLinear\) has no shape until the first call"):
        compiled(torch.ones(2, 4))
    expected = model(torch.ones(2, 4))
    torch.testing.assert_close(compiled(torch.ones(2, 4)), expected)


def _rescale(module: Any) -> None:
    module.scale = 3.0


def _hook(module: Any) -> None:
    module.layer.register_forward_hook(lambda _module, _args, result: result + 1)


def _backward_hook(module: Any) -> None:
    module.layer.register_full_backward_hook(lambda _module, gradients, _: (gradients[0] * 3,))


def _backward_pre_hook(module: Any) -> None:
    module.layer.register_full_backward_pre_hook(lambda _module, gradients: (gradients[0] * 3,))


def _late(module: Any) -> None:
    module.late = 2.0


def _replace(module: Any) -> None:
    module.layer = nn.Sequential(module.layer, nn.Tanh())


def _drop_the_bias(module: Any) -> None:
    module.layer.bias = None


def _new_weight(module: Any) -> None:
    module.layer.weight = nn.Parameter(torch.zeros(2, 2))


CHANGES = (_rescale, _hook, _backward_hook, _backward_pre_hook, _late, _replace, _drop_the_bias, _new_weight)


@pytest.mark.parametrize("change", CHANGES)
def test_a_module_that_was_changed_is_compiled_anew(change: Any) -> None:
    module = Scaled()
    compiled = aotviz.compile(module, backend="eager")
    compiled(torch.ones(1, 2))
    change(module)
    found = []
    for call in (compiled, module):
        x = torch.ones(1, 2, requires_grad=True)
        result = call(x)
        result.sum().backward()
        found.append((result, x.grad))
    torch.testing.assert_close(found[0], found[1])


def test_an_attribute_that_went_and_one_that_came_are_noticed() -> None:
    module = Scaled()
    module.late = 2.0
    compiled = aotviz.compile(module, backend="eager")
    x = torch.ones(1, 2)
    compiled(x)
    del module.late
    torch.testing.assert_close(compiled(x), module(x))
    module.late = 4.0
    del module.note
    module.remark = ""
    torch.testing.assert_close(compiled(x), module(x))


@pytest.mark.usefixtures("clean_dynamo")
def test_what_changed_in_a_module_is_said() -> None:
    module = Scaled()
    compiled = aotviz.compile(module, backend="eager")
    compiled(torch.ones(1, 2))
    module.scale = 3.0
    compiled(torch.ones(1, 2))
    (row,) = compiled.recording.recompiles().to_dict("records")
    assert (row["subject"], row["before"], row["after"]) == ("self.scale", "2.0", "3.0")


# --- one compiled function in another, and copies --------------------------------------------------------------------


@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_compiled_function_in_another_is_traced_through(requires_grad: bool) -> None:
    x = torch.ones(2, requires_grad=requires_grad)
    compiled = aotviz.compile(lambda x: SCALE(x) + 1, backend="eager")
    torch.testing.assert_close(compiled(x), x.sin() + 1)
    assert "aten.sin" in str(compiled.recording[0].graph("joint" if requires_grad else "inference").code)


def test_a_compiled_function_in_torch_compile_is_compiled_with_its_caller() -> None:
    torch._dynamo.reset()
    module = aotviz.compile(Scaled(), backend="eager")
    x = torch.ones(1, 2)
    found = torch.compile(lambda x: SCALE(module(x)), backend="eager", fullgraph=True)(x)
    torch.testing.assert_close(found, module(x).sin())


def test_what_cannot_be_made_again_says_so() -> None:
    made = aotviz.aot_function(lambda x: x, run_graph)
    with pytest.raises(TypeError, match="compile it again instead"):
        pickle.dumps(made)


def test_an_attribute_that_follows_the_parameters_is_put_back() -> None:
    module = nn.GRU(3, 2)
    x = torch.randn(4, 1, 3)
    compiled = aotviz.compile(module, backend="eager")
    torch.testing.assert_close(compiled(x), module(x))
    assert [id(weight) for weight in module._flat_weights] == [id(p) for p in module.parameters()]
