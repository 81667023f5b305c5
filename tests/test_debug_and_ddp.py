"""The first call with fakes, for DDPOptimizer, and what debug mode asserts on each call (docs/design/system.md E4)."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
import torch.distributed as dist
from torch._dynamo.backends import distributed
from torch.nn.parallel import DistributedDataParallel

import aotviz
import aotviz.frontends.backend
from aotviz.runtime.aliases import Epilogue
from aotviz.runtime.debug_checks import MemoryDiffers
from aotviz.stages import synthetic_bases
from tests.doors import alone
from tests.tiers import slow


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


@pytest.mark.parametrize("backend", ["aotviz_eager", slow("aotviz")])
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
        alone(DistributedDataParallel(model))(x)
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
    f = aotviz.trace_stages(lambda x, weight: x * weight, torch.ones(3), torch.ones(3), debug=True).resume()
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
    ],
)
def test_debug_names_the_input_and_the_fact_that_differ(other, said):
    f = compiled(lambda x: x + 1)
    f(torch.ones(3))
    with pytest.raises(AssertionError, match=said):
        f(other)


def test_debug_names_what_is_no_tensor():
    f = aotviz.trace_stages(lambda x: x + 1, torch.ones(3), debug=True).resume()
    with pytest.raises(AssertionError, match=r"x was a tensor when compiled; this call has float"):
        f(2.0)


def test_debug_looks_past_strides_that_say_nothing():
    f = compiled(lambda x: x + 1)
    f(torch.ones(1, 3))
    assert f(torch.ones(3, 1).t()).shape == (1, 3)


def test_without_debug_nothing_is_compared():
    f = aotviz.compile(lambda x: x + 1, backend="eager")
    f(torch.ones(3))
    assert "expect" not in f.source


def lies_beside(q, k, kv, c):
    q.mul_(c)
    k.mul_(c)
    return q @ kv[:, 0].T


def packed(grad):
    qkv = torch.arange(1.0, 25).reshape(2, 3, 4).requires_grad_(grad)
    qkv = qkv * 1.0
    return qkv[:, 0], qkv[:, 1], qkv[:, 1:], torch.full((2, 4), 2.0)


DOORS = {
    "aot_function": lambda fn: aotviz.aot_function(fn, lambda module, inputs: module, debug=True),
    "compile": lambda fn: aotviz.compile(fn, backend="eager", debug=True),
    "torch.compile": lambda fn: torch.compile(fn, backend="aotviz_eager", options={"debug": True}),
    "inductor": lambda fn: torch.compile(fn, backend="aotviz", options={"debug": True}),
}


@pytest.mark.parametrize(
    ("door", "grad"),
    [
        ("aot_function", False),
        ("aot_function", True),
        ("compile", False),
        ("torch.compile", True),
        ("inductor", True),  # without gradients, Inductor writes the inputs in its own graph
    ],
)
def test_debug_notices_a_write_that_the_wrapper_loses(door, grad, monkeypatch):
    torch._dynamo.reset()
    compiled = DOORS[door](lies_beside)
    compiled(*packed(grad))  # no error: the write is kept
    torch._dynamo.reset()
    monkeypatch.setattr(synthetic_bases, "_overwrites", lambda *_: False)
    with pytest.raises(MemoryDiffers, match=r"q differs from eager after the call: element 0 .* 1\.0"):
        DOORS[door](lies_beside)(*packed(grad))


def test_debug_compares_memory_that_is_no_inputs(monkeypatch):
    """The base of two views is written as a whole; what lies between them must stay."""
    loses = Epilogue._copy
    monkeypatch.setattr(
        Epilogue,
        "_copy",
        lambda self, *args, **kwargs: (
            loses(self, *args, **kwargs) + bool(self.source.line("base[7] = 5.0", "a fault for this test"))
        ),
    )
    base = torch.zeros(8)
    with pytest.raises(MemoryDiffers, match=r"memory next to a and b, in the same storage, differs.*element 7"):
        DOORS["aot_function"](lambda a, b: a.add_(b.sum()))(base[:2], base[1:3])


def test_debug_runs_the_function_from_the_same_random_state_and_leaves_that_of_the_call():
    def noisy(x):
        return x.add_(torch.rand(3)) * 2

    for door in DOORS.values():
        torch._dynamo.reset()
        torch.manual_seed(3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            door(noisy)(torch.zeros(3))
        drawn = torch.rand(1)
        torch.manual_seed(3)
        noisy(torch.zeros(3))
        if door is not DOORS["inductor"]:
            assert torch.equal(torch.rand(1), drawn)


def test_debug_says_what_it_could_not_compare():
    calls = []

    def twice(x):
        calls.append(len(calls))
        if len(calls) == 3:
            raise ValueError("not again")
        return x.add_(1)

    x = torch.zeros(2)
    compiled = DOORS["aot_function"](twice)
    compiled(x)
    calls[:] = [0, 1]
    with pytest.warns(UserWarning, match="what twice writes could not be compared.*ValueError: not again"):
        compiled(x)
    assert x.tolist() == [2, 2]
