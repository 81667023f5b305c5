"""Operators that take functions, checkpointed regions and nested regions: equal to eager, and cut as they ask."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch._higher_order_ops.invoke_subgraph import NestedCompileRegionOptions
from torch.utils._pytree import tree_flatten

import aotviz
from tests.oracle.higher_order import REGIONS
from tests.tiers import slow

TRACED_BELOW = {  # and the same graph for Dynamo
    "associative_scan_of_sums",
    "custom_function_with_its_own_gradient",
    "custom_function_with_several_outputs",
    "dropout_twice",
    "gradient_inside",
    "map_over_rows",
    "nested_cond",
    "scan_of_a_recurrence",
    "vectorised_inside",
    "while_loop_with_a_gradient",
}
NEEDS_DYNAMO = {"cond_with_captured_parameters"}  # a branch that closes over tensors is captured by Dynamo alone


def run(fn: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Outputs, gradients of arguments and parameters, and the random state that is left behind."""
    torch.manual_seed(7)
    outputs = [value for value in tree_flatten(fn(*args))[0] if isinstance(value, torch.Tensor)]
    differentiable = [value for value in outputs if value.requires_grad]
    if differentiable:
        sum(value.sum() for value in differentiable).backward()
    parameters = list(fn.parameters()) if isinstance(fn, torch.nn.Module) else []
    gradients = [t.grad for t in (*args, *parameters) if isinstance(t, torch.Tensor)]
    return outputs, gradients, torch.get_rng_state()


def assert_as_in_eager(name, compiler):
    torch._dynamo.reset()
    expected = run(*REGIONS[name].make())
    fn, args = REGIONS[name].make()
    outputs, gradients, state = run(compiler(fn), args)
    torch.testing.assert_close(outputs, expected[0])
    assert [g is None for g in gradients] == [g is None for g in expected[1]]
    for mine, eagers in zip(gradients, expected[1], strict=True):
        if mine is not None:
            torch.testing.assert_close(mine, eagers)
    assert torch.equal(state, expected[2])


@pytest.mark.filterwarnings("error::aotviz.ir.refusals.RanInEager")
@pytest.mark.parametrize("name", [name for name in REGIONS if name not in TRACED_BELOW])
def test_captured_by_dynamo_each_region_gives_eagers_results_and_gradients(name):
    assert_as_in_eager(name, lambda fn: torch.compile(fn, backend="aotviz_eager", options={"debug": True}))


@pytest.mark.every(2)
@pytest.mark.parametrize(
    "name",
    [slow(name) if name == "while_loop_with_a_gradient" else name for name in REGIONS if name not in NEEDS_DYNAMO],
)
def test_traced_as_it_is_each_region_gives_eagers_results_and_gradients(name):
    assert_as_in_eager(name, lambda fn: aotviz.compile(fn, backend="eager", debug=True))


@pytest.mark.parametrize("name", ["nested_compile_region_twice", slow("selective_checkpoint")])
def test_on_inductor_regions_give_eagers_results_and_gradients(name):
    assert_as_in_eager(name, lambda fn: torch.compile(fn, backend="aotviz"))


# --- checkpoints --------------------------------------------------------------------------------------------------


def cut(name):
    fn, args = REGIONS[name].make()
    compiled = aotviz.compile(fn, backend="eager")
    compiled(*args)
    lowered = compiled.program.call
    computed = [str(node.target) for node in lowered.backward_module.graph.nodes]
    return {value.name: value for value in lowered.saved}, computed


def test_a_checkpointed_region_is_computed_again_in_the_backward():
    saved, computed = cut("checkpoint_not_reentrant")
    assert "aten.gelu.default" in computed
    assert not any(name.startswith(("gelu", "sin", "mm")) for name in saved if name not in ("sin_1",))


def test_without_a_checkpoint_the_same_region_is_kept():
    def f(x, w):
        return torch.nn.functional.gelu(x @ w).sin().sum()

    compiled = aotviz.compile(f, backend="eager", partition_fn=torch._functorch.partitioners.default_partition)
    compiled(*REGIONS["checkpoint_not_reentrant"].make()[1])
    computed = [str(node.target) for node in compiled.program.lowered.call.backward_module.graph.nodes]
    assert "aten.gelu.default" not in computed


def test_a_policy_decides_what_a_checkpointed_region_keeps():
    saved, computed = cut("selective_checkpoint")
    forward_products = [name for name in saved if name in ("mm", "mm_1")]
    assert forward_products == ["mm", "mm_1"]
    assert "aten.gelu.default" in computed
    assert saved["mm"].why == "tagged MUST_SAVE by checkpointing"


def test_a_random_node_of_a_checkpoint_runs_again_under_its_random_state():
    saved, computed = cut("checkpoint_with_dropout")
    states = [value for value in saved.values() if value.why.startswith("the random state")]
    assert len(states) == 2
    assert computed.count("run_with_rng_state") == 2


# --- regions ------------------------------------------------------------------------------------------------------


def compiled_regions(name, **options):
    """The recorded compilation of a program with regions."""
    torch._dynamo.reset()
    fn, args = REGIONS[name].make()
    with aotviz.record() as recording:
        torch.compile(fn, backend="aotviz_eager", options=options)(*args)
    return recording.compilations[0]


def test_all_calls_of_a_region_share_one_forward_and_one_backward():
    reasons = compiled_regions("nested_compile_region_twice").evidence
    assert list(reasons[reasons["stage"] == "regions"]["subject"]) == ["region subgraph_0_0"]


def test_a_region_is_not_computed_twice():
    programs = []

    def watching(module, joint_inputs, **arguments):
        halves = torch._functorch.partitioners.min_cut_rematerialization_partition(module, joint_inputs, **arguments)
        programs.append(halves)
        return halves

    compiled_regions("nested_compile_region_twice", partition_fn=watching)
    (_, region_backward), (_, backward) = programs  # the region is cut once, then the graph that calls it twice
    products = [node for node in region_backward.graph.nodes if node.target is torch.ops.aten.mm.default]
    assert len(products) == 2  # the two gradients, and no forward
    calls = [node for node in backward.graph.nodes if node.target is torch.ops.higher_order.invoke_subgraph]
    assert len(calls) == 2


def test_a_region_returns_no_view_of_what_it_was_given():
    fn, args = REGIONS["nested_compile_region_twice"].make()
    halves = []

    def watching(module, joint_inputs, **arguments):
        halves.append(torch._functorch.partitioners.default_partition(module, joint_inputs, **arguments))
        return halves[-1]

    torch._dynamo.reset()
    torch.compile(fn, backend="aotviz_eager", options={"partition_fn": watching})(*args)
    forward, _ = halves[0]
    returned = forward.graph.find_nodes(op="output")[0].args[0]
    assert returned
    assert not any(node.op == "placeholder" or node.target is torch.ops.aten.t.default for node in returned)


def test_an_error_of_a_regions_own_partitioner_names_the_region():
    def stops(*given, **named):
        raise ValueError("no cut")

    options = NestedCompileRegionOptions(partitioner=stops)
    with torch._dynamo.config.patch(enable_invoke_subgraph_regional_compile=True):
        region = torch.compiler.nested_compile_region(lambda x: x.sin().exp(), options=options)
    compiled = aotviz.compile(lambda x: region(x).sum(), backend="eager", cache=False)
    with pytest.raises(
        RuntimeError, match=r"region subgraph_0_0 \(.*test_higher_order.py:\d+\) raised ValueError: no cut"
    ):
        compiled(torch.ones(3, requires_grad=True))


def test_an_error_of_the_programs_partitioner_in_a_region_has_a_note_with_the_region():
    def stops(module, joint_inputs, **arguments):
        assert any("invoke_subgraph" in node.name for node in module.graph.nodes), "no call here"
        return torch._functorch.partitioners.default_partition(module, joint_inputs, **arguments)

    region = torch.compiler.nested_compile_region(lambda x: x.sin().exp())
    compiled = aotviz.compile(lambda x: region(region(x)).sum(), backend="eager", partition_fn=stops, cache=False)
    with pytest.raises(AssertionError, match="no call here") as caught:
        compiled(torch.ones(3, requires_grad=True))
    assert re.fullmatch(
        r"aotviz: it was partitioning region subgraph_0_0 \(.*test_higher_order.py:\d+\)", caught.value.__notes__[0]
    )
