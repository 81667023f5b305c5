"""torch's settings: each is honoured, warned of, or in the list of those that mean nothing here."""

from __future__ import annotations

import ast
import inspect
import warnings
from pathlib import Path

import pytest
import torch
from torch._functorch import config
from torch._functorch._aot_autograd import graph_capture_wrappers

import aotviz
import aotviz.frontends.backend
from aotviz.ir import torchs_settings as settings
from aotviz.lowerings import EAGER, run_graph
from aotviz.torch_private import configs

LISTS = (settings.HONOURED, settings.WARNED, settings.MEANS_NOTHING)
AOT = Path(inspect.getfile(graph_capture_wrappers)).parent


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    settings._told.clear()
    yield
    settings._told.clear()
    torch._dynamo.reset()


def leaf():
    return torch.linspace(0.1, 1, 3).requires_grad_()


def test_every_setting_of_functorch_is_in_one_list():
    known = [name for one in LISTS for name in one["torch._functorch.config"]]
    assert sorted(known) == sorted(set(known))
    assert set(config._config) <= set(known)


def read_by_aot_autograd(module):
    """The settings of a module of torch's that AOTAutograd reads by its full name, or by the name it imports it as."""
    spoken = {module, f"_{module.split('.')[1].strip('_')}_config", f"{module.split('.')[1].strip('_')}_config"}
    found = set()
    for path in AOT.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            text = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            found |= {text.removeprefix(f"{name}.") for name in spoken if text.startswith(f"{name}.")}
    return found


@pytest.mark.parametrize("module", ["torch._inductor.config", "torch._dynamo.config"])
def test_every_setting_of_inductor_and_dynamo_that_aot_autograd_reads_is_in_a_list(module):
    known = {name for one in LISTS for name in one[module]}
    read = {name for name in read_by_aot_autograd(module) if not callable(getattr(configs.MODULES[module], name, None))}
    assert read
    assert read - {"triton"} <= known


def test_a_setting_that_does_nothing_here_is_warned_of_once_by_name():
    changed = not config.error_on_custom_op_aliasing
    with config.patch(error_on_custom_op_aliasing=changed), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        EAGER.options()
        EAGER.options()
    (warning,) = told
    assert "torch._functorch.config.error_on_custom_op_aliasing" in str(warning.message)


def test_torchs_defaults_are_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        EAGER.options()


@pytest.mark.parametrize("door", ["torch.compile", "aot_function"])
def test_the_joint_graph_passes_the_users_pass(door):
    seen = []

    def cosine_for_sine(module, joint_inputs):
        seen.append(len(joint_inputs))
        for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default):
            node.target = torch.ops.aten.cos.default
        return module

    def function(x):
        return x.sin()

    with config.patch(joint_custom_pass=cosine_for_sine):
        if door == "torch.compile":
            compiled = torch.compile(function, backend="aotviz_eager")
        else:
            compiled = aotviz.aot_function(function, run_graph)
        result = compiled(leaf())
    assert seen == [2]
    torch.testing.assert_close(result, leaf().cos())


def test_nothing_is_donated_where_the_setting_says_so():
    def donated(value):
        with config.patch(donated_buffer=value):
            compiled = aotviz.aot_function(lambda x: (x * 2).sin(), run_graph, partition_fn="default_partition")
            compiled(leaf())
        return compiled.recording[0].saved_tensors.donated.any()

    assert donated(True)
    assert not donated(False)


def test_a_backward_that_is_wanted_with_the_forward_is_compiled_there():
    def fails(*_):
        raise RuntimeError("no code for this")

    with config.patch(force_non_lazy_backward_lowering=True):
        compiled = aotviz.aot_function(lambda x: x.sin(), run_graph, fails)
    with pytest.raises(RuntimeError, match="no code for this"):
        compiled(leaf())


def test_the_backward_runs_under_the_autocast_that_the_setting_names():
    def dtypes(value):
        with config.patch(backward_pass_autocast=value):
            compiled = aotviz.aot_function(lambda x: x @ x, run_graph)
            compiled(torch.eye(2, requires_grad=True))
        nodes = compiled.recording[0].graph("joint").nodes
        return set(nodes.dtype[nodes.is_backward & (nodes.target == "aten.mm.default")])

    assert dtypes("off") == {"torch.float32"}
    assert dtypes([{"device_type": "cpu", "dtype": torch.bfloat16}]) == {"torch.bfloat16"}


def test_torchs_assertions_turn_on_ours():
    assert not EAGER.options().debug
    with config.patch(debug_assert=True):
        assert EAGER.options().debug
