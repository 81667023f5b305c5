"""The first call with fakes that DDPOptimizer wants, and what debug mode asserts on each call (SYSTEM.md E4)."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as dist
from torch._dynamo.backends import distributed
from torch.nn.parallel import DistributedDataParallel

import aotviz
import aotviz.backend


@pytest.fixture
def one_rank(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Stack(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(9))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x


@pytest.mark.parametrize("backend", ["aotviz_eager", "aotviz"])
def test_buckets_of_a_distributed_model_are_laid_out_by_a_first_call_with_fakes(one_rank, backend, monkeypatch):
    """DDPOptimizer cuts the model into buckets, and runs each once with fakes for the layout of the next."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = Stack()
    parallel = DistributedDataParallel(model, bucket_cap_mb=1)
    x = torch.randn(4, 256)
    expected = parallel(x)
    expected.sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()

    contexts = []
    add = distributed.DDPOptimizerContext.__init__

    def spied(self):
        add(self)
        contexts.append(self)

    monkeypatch.setattr(distributed.DDPOptimizerContext, "__init__", spied)
    with aotviz.record() as recording:
        result = torch.compile(parallel, backend=backend)(x)
        result.sum().backward()
    torch.testing.assert_close(result, expected)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    assert len(recording) > 1, "the model was cut into buckets"
    (context,) = contexts
    assert len(context.metadata_per_bucket) == len(recording), "each bucket was asked for fakes once"
    assert len({id(facts) for facts in context.metadata_per_bucket}) == len(recording), "each with facts of its own"


def test_a_distributed_module_is_refused_and_one_around_a_compiled_module_is_not(one_rank):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8))
    x = torch.randn(3, 4)
    with pytest.raises(NotImplementedError, match=r"the module is a DistributedDataParallel.*aotviz.compile\(module\)"):
        aotviz.compile(DistributedDataParallel(model), backend="eager")(x)
    expected = DistributedDataParallel(copy.deepcopy(model))
    around = DistributedDataParallel(aotviz.compile(model, backend="eager"))
    for _ in range(2):
        results = [parallel(x).square() for parallel in (expected, around)]
        torch.testing.assert_close(results[1], results[0])
        for result in results:
            result.sum().backward()
    for one, other in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def compiled(fn):
    return aotviz.aot_function(fn, lambda module, inputs: module, debug=True)


def test_debug_names_the_input_that_requires_grad_unlike_the_traced_one():
    f = compiled(lambda x, weight: x * weight)
    f(torch.ones(3), torch.ones(3))
    f(torch.zeros(3), torch.ones(3))
    with pytest.raises(AssertionError, match=r"weight was compiled with requires_grad False; this call has True"):
        f(torch.ones(3), torch.ones(3, requires_grad=True))
    with torch.no_grad():  # nothing is recorded, so nothing differs
        f(torch.ones(3), torch.ones(3, requires_grad=True))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (torch.ones(3, dtype=torch.float64), r"x was compiled with dtype torch.float32; this call has torch.float64"),
        (torch.ones(4), r"x was compiled with size \(3,\); this call has \(4,\)"),
        (torch.ones(3, 1), r"x was compiled with rank 1; this call has 2"),
        (torch.ones(6)[::2], r"x was compiled with stride \(1,\); this call has \(2,\)"),
        (2.0, r"x was a tensor when compiled; this call has float"),
    ],
)
def test_debug_names_the_input_and_the_fact_that_differ(other, said):
    f = compiled(lambda x: x + 1)
    f(torch.ones(3))
    with pytest.raises(AssertionError, match=said):
        f(other)


def test_debug_looks_past_strides_that_say_nothing():
    f = compiled(lambda x: x + 1)
    f(torch.ones(1, 3))
    assert f(torch.ones(3, 1).t()).shape == (1, 3)


def test_without_debug_nothing_is_compared():
    f = aotviz.compile(lambda x: x + 1, backend="eager")
    f(torch.ones(3))
    assert "expect" not in f.source
