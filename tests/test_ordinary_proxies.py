"""Operators that are recorded by a short way: their nodes are those that torch's `proxy_call` makes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx
from torch.testing._internal.common_methods_invocations import op_db

import aotviz
from aotviz.lowerings import run_graph
from aotviz.torch_private import ordinary_proxies
from tests.oracle.models import FAMILIES
from tests.oracle.samples import samples_of

OF_THIS_RUN = re.compile(r"graph_id=\d+|0x[0-9a-f]+")
OPERATORS = [op for op in op_db if torch.float32 in op.dtypes and not op.variant_test_name]


def described(value: Any) -> Any:
    """A value of a node's meta, as far as it can be compared."""
    if isinstance(value, torch.Tensor):
        return (
            tuple(value.shape),
            value.stride(),
            value.storage_offset(),
            value.dtype,
            value.device,
            value.requires_grad,
        )
    if isinstance(value, list | tuple):
        return type(value), [described(part) for part in value]
    if isinstance(value, dict):
        return {key: described(part) for key, part in value.items()}
    return OF_THIS_RUN.sub("", repr(value))


def nodes_of(graph: fx.Graph) -> list[Any]:
    """Numbers that count in the whole process are told from the graph's first one."""
    nodes = []
    for one in graph.nodes:
        meta = dict(one.meta)
        for key in ("seq_nr", "autograd_number"):
            if key in meta:
                meta[key] -= min(other.meta[key] for other in graph.nodes if key in other.meta)
        nodes.append((one.name, one.op, str(one.target), repr(one.args), repr(one.kwargs), described(meta)))
    return nodes


def traced(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], dynamic: bool = False) -> list[Any]:
    """The nodes of all graphs that are compiled for a call, and for its backward; or the error."""
    graphs: list[Any] = []

    def compiler(graph_module: fx.GraphModule, examples: Any) -> Any:
        graphs.append(nodes_of(graph_module.graph))
        return run_graph(graph_module, examples)

    compiled = aotviz.compile(fn, backend=compiler, dynamic=True) if dynamic else aotviz.aot_function(fn, compiler)
    try:
        results = compiled(*args, **kwargs)
        leaves = [one for one in torch.utils._pytree.tree_leaves(results) if isinstance(one, torch.Tensor)]
        wanted = [one for one in leaves if one.requires_grad]
        if wanted:
            torch.autograd.backward(wanted, [torch.ones_like(one) for one in wanted])
    except Exception as error:  # the same one then
        graphs.append((type(error), str(error)))
    return graphs


def both(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], tuple[Any, Any, Any]], dynamic: bool = False
) -> tuple[list[Any], list[Any], int]:
    """The nodes by the short way and by torch's, and how many operators went the short way."""
    count, name = 0, ordinary_proxies._metadata

    def counted(result: torch.Tensor) -> Any:
        nonlocal count
        count += 1
        return name(result)

    with monkeypatch.context() as patched:
        patched.setattr(ordinary_proxies, "_metadata", counted)
        short = traced(*make(), dynamic)
    with monkeypatch.context() as patched:
        patched.setattr(ordinary_proxies, "record_ordinary", lambda mode: mode.__torch_dispatch__)
        by_torch = traced(*make(), dynamic)
    return short, by_torch, count


def checked(monkeypatch: pytest.MonkeyPatch, operator: Any) -> None:
    for number in range(2):

        def make(number: int = number) -> tuple[Any, Any, Any]:
            torch.manual_seed(0)
            samples = list(samples_of(operator, torch.float32, requires_grad=operator.supports_autograd))
            sample = samples[min(number * 3, len(samples) - 1)]
            return operator.op, (sample.input, *sample.args), sample.kwargs

        short, by_torch, _ = both(monkeypatch, make)
        if short != by_torch:  # a fake tensor from torch's cache may have another offset than the first one
            short, by_torch, _ = both(monkeypatch, make)
        assert short == by_torch


@pytest.mark.parametrize("operator", OPERATORS[::40], ids=lambda operator: operator.name)
def test_an_operators_nodes_are_those_of_torch(monkeypatch, operator):
    checked(monkeypatch, operator)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_the_nodes_of_all_operators_are_those_of_torch(monkeypatch, part):
    for operator in OPERATORS[part::8]:
        checked(monkeypatch, operator)


def test_nearly_all_operators_of_a_model_go_the_short_way(monkeypatch):
    def make() -> tuple[Any, Any, Any]:
        torch.manual_seed(0)
        model, inputs = FAMILIES["gpt2"](2)
        model.eval()
        return model, (), inputs

    short, by_torch, count = both(monkeypatch, make)
    assert short == by_torch
    operators = sum(node[1] == "call_function" for graph in short for node in graph)
    assert count > 0.7 * operators


def data_dependent(x):
    return x[x > 0] * 2, x.nonzero().sum()


def constants(x):
    return x * torch.tensor(2.0) + torch.arange(3), torch.tensor([1, 2, 3]).sum() * x


def several(x):
    values, indices = x.sort()
    return torch.stack(torch.unbind(values * 2)), torch.cat([values, indices]), x.split([1, 2])[1].exp()


def writes(x):
    y = x * 2
    y[0].mul_(3)
    return y.t_().sum() if y.dim() > 1 else y


def under_autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        return x.view(3, 1) @ x.view(1, 3)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("fn", [data_dependent, constants, several, writes, under_autocast])
def test_what_does_not_go_that_way_is_as_torch_has_it(monkeypatch, fn, dynamic):
    def make() -> tuple[Any, Any, Any]:
        if dynamic:
            torch._dynamo.reset()
        return fn, (torch.tensor([1.0, -2.0, 3.0], requires_grad=True),), {}

    short, by_torch, _ = both(monkeypatch, make, dynamic=dynamic)
    assert short == by_torch != []
