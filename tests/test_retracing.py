"""torch's passes over a traced graph: decompositions in annotated regions, checkpoints around a backward inside."""

from __future__ import annotations

import pytest
import torch
import torch.fx.traceback as fx_traceback
import torch.nn.functional as F
from torch._functorch import config
from torch._inductor.decomposition import select_decomp_table
from torch.utils.checkpoint import checkpoint

import aotviz
from aotviz.torch_private import versions
from aotviz.torch_private.partitioners import default_partition
from tests.stages.support import evidence, stage_alone, targets
from tests.tiers import slow


def block(a, w):
    return (a @ w).sin().cos()


def step(x, w):
    """Forward, loss and backward in one function."""
    for _ in range(2):
        x = checkpoint(block, x, w, use_reentrant=False)
    loss = x.exp().sum()
    (gradient,) = torch.autograd.grad(loss, w)
    return loss.detach(), gradient


def inputs():
    generator = torch.Generator().manual_seed(0)
    return torch.rand(4, 4, generator=generator), torch.rand(4, 4, generator=generator).requires_grad_()


@pytest.mark.skipif(not versions.has("a backward inside is found by itself"), reason="torch wants it annotated")
def test_a_checkpointed_region_is_computed_again_for_a_backward_inside_the_function():
    before, after = stage_alone("trace", step, *inputs(), backend="eager")
    names = [node.name for node in after.graph_module.graph.nodes]
    assert [name for name in names if name.startswith("mm") and name.endswith("recomputed")]
    assert not any(name.endswith("recomputed") for name in (node.name for node in before.graph_module.graph.nodes))
    assert "nodes are recomputed where the inner backward reads them" in evidence(after)["checkpoints"]
    last_forward = max(i for i, name in enumerate(names) if name in ("sum_1", "exp"))
    assert all(names.index(name) > last_forward for name in names if name.endswith("recomputed"))


@pytest.mark.parametrize("backend", ["eager", slow("inductor")])
def test_the_result_is_eagers(backend):
    torch.testing.assert_close(aotviz.compile(step, backend=backend)(*inputs()), step(*inputs()))


def test_dynamos_graph_of_such_a_step_is_treated_alike():
    torch._dynamo.reset()
    compiled = torch.compile(step, backend="aotviz_eager")
    torch.testing.assert_close(compiled(*inputs()), step(*inputs()))


def test_torchs_setting_switches_it_off():
    with config.patch(remat_using_tags_for_fwd_loss_bwd_graph=False):
        _, after = stage_alone("trace", step, *inputs(), backend="eager")
    assert "checkpoints" not in evidence(after)


def test_random_numbers_in_a_region_keep_it_and_the_result_is_eagers():
    def noisy(x, w):
        y = checkpoint(lambda a: F.dropout(a @ w).sin(), x, use_reentrant=False)
        (gradient,) = torch.autograd.grad(y.sum(), w)
        return gradient

    _, after = stage_alone("trace", noisy, *inputs(), backend="eager")
    assert evidence(after)["checkpoints"].startswith("a region draws random numbers")
    results = []
    for fn in (noisy, aotviz.compile(noisy, backend="eager")):
        torch.manual_seed(0)
        results.append(fn(*inputs()))
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_two_backwards_inside_keep_what_both_read():
    def twice(x, w):
        gradients = []
        for _ in range(2):
            y = checkpoint(block, x, w, use_reentrant=False)
            gradients += torch.autograd.grad(y.exp().sum(), w)
        return gradients

    torch.testing.assert_close(aotviz.compile(twice, backend="eager")(*inputs()), twice(*inputs()))


@pytest.mark.parametrize("partition_fn", [None, default_partition])
def test_nodes_behind_a_checkpointed_region_are_not_tagged_with_it(partition_fn):
    def f(x, w):
        return checkpoint(block, x, w, use_reentrant=False).exp().tanh()

    _, split = stage_alone("partition", f, *inputs(), backend="eager", partition_fn=partition_fn)
    again = targets(split.backward_module.graph)
    assert "exp" not in again
    assert "tanh" not in again
    assert "sin" in again


def annotated(x, w):
    y = F.gelu(x @ w)
    with fx_traceback.annotate({"compile_with_inductor": {"inductor_configs": {}}}):
        z = F.gelu(y)
    return z.sum()


@config.patch(selective_decompose=True)
def test_operators_are_decomposed_only_where_the_user_asked_for_inductor():
    _, traced = stage_alone("trace", annotated, *inputs(), backend="eager", decompositions=select_decomp_table())
    operators = targets(traced.graph_module.graph)
    assert operators.count("gelu") == operators.count("gelu_backward") == 1
    assert operators.count("erf") > 0
    assert "are in regions that the user marked for Inductor" in evidence(traced)["decompositions"]
    inputs_of = [str(node.meta["desc"]) for node in traced.graph_module.graph.find_nodes(op="placeholder")]
    assert inputs_of == ["x", "w", "tangent of output"]


@config.patch(selective_decompose=True)
def test_a_selectively_decomposed_program_is_eagers():
    compiled = aotviz.compile(annotated, backend="eager", decompositions=select_decomp_table(), debug=True)
    seen = []
    for fn in (compiled, annotated):
        x, w = inputs()
        out = fn(x, w)
        out.backward()
        seen.append((out.detach(), w.grad))
    torch.testing.assert_close(*seen)


@config.patch(selective_decompose=True)
def test_without_an_annotation_nothing_is_decomposed():
    _, traced = stage_alone("trace", lambda x: F.gelu(x), inputs()[0], decompositions=select_decomp_table())
    assert targets(traced.graph_module.graph) == ["gelu"]


def test_inductors_lite_mode_compiles_what_is_annotated():
    torch._dynamo.reset()
    x, w = inputs()
    out = torch.compile(annotated, backend="aotviz", mode="lite")(x, w)
    torch.testing.assert_close(out, annotated(x, w))
