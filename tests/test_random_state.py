"""Random numbers as a function of a seed and an offset, and generators that two graphs share.

Both are a GPU's. On a CPU they are tried with a stand-in: a device kind that counts, and generators that point.
"""

from __future__ import annotations

import gc

import pytest
import torch
import torch.nn.functional as F
from torch._functorch import config
from torch._library.custom_ops import OPDEFS
from torch.utils.checkpoint import checkpoint

import aotviz
from aotviz.runtime.generators import Generators
from aotviz.stages import random_state
from aotviz.torch_private import random_numbers
from tests.releases import takes_generators

SEED = 7


def drawn(size, offset):
    return torch.rand(size, generator=torch.Generator().manual_seed(1000 * SEED + offset))


@pytest.fixture
def counting(monkeypatch):
    """The CPU as a device whose generator counts; the value is its offset."""
    offset = [0]
    library = torch.library.Library("rngprims", "FRAGMENT")

    def kernel(size, seed, offset, stride, device=None, dtype=None):
        if device.type != "cpu":  # a later test's, on a GPU: the operator keeps this kernel
            return OPDEFS["rngprims::philox_rand"]._init_fn(size, seed, offset, stride, device, dtype)
        assert int(seed) == SEED
        return drawn(size, int(offset)).to(device=device, dtype=dtype), torch.tensor(4)

    torch.library.register_kernel("rngprims::philox_rand", "cpu", kernel, lib=library)
    monkeypatch.setattr("torch._decomp.decompositions_for_rng.throw_on_non_cuda", lambda device: None)
    monkeypatch.setattr(random_state, "KINDS", {"cpu"})
    monkeypatch.setattr(random_numbers, "state", lambda: (torch.tensor(SEED), torch.tensor(offset[0])))
    monkeypatch.setattr(random_numbers, "set_offset", lambda value: offset.__setitem__(0, int(value)))
    with config.patch(functionalize_rng_ops=True):
        yield offset
    library._destroy()


def two_draws(x, w):
    return torch.rand_like(x) * w + torch.rand(4) * x


def inputs():
    return torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)


@pytest.mark.parametrize("debug", [False, True])
def test_each_call_draws_behind_the_last_one_and_the_offset_goes_on(counting, debug):
    compiled = aotviz.compile(two_draws, backend="eager", debug=debug)
    for start in (0, 8):
        x, w = inputs()
        compiled(x, w).sum().backward()
        assert torch.equal(w.grad, drawn(4, start))
        assert torch.equal(x.grad, drawn(4, start + 4))
        assert counting == [start + 8]
    with torch.no_grad():
        compiled(*inputs())
    assert counting == [24]


def test_the_seed_and_the_offset_are_inputs_of_the_graph_and_the_offset_comes_out(counting):
    form = aotviz.trace_stages(two_draws, *inputs(), until="trace", backend="eager").form
    assert [str(d) for d in form.graph_inputs] == ["x", "w", "random seed", "random offset"]
    assert str(form.slots[0].descriptor) == "random offset after mutation"
    targets = [str(node.target) for node in form.graph_module.graph.nodes]
    assert targets.count("rngprims.philox_rand.default") == 2
    assert not any("aten.rand" in t for t in targets)


def test_what_the_backward_computes_again_it_draws_from_the_same_place(counting):
    def f(x, w):
        return checkpoint(lambda a: torch.rand_like(a) * a.sin(), x * w, use_reentrant=False)

    compiled = aotviz.compile(f, backend="eager")
    x, w = inputs()
    out = compiled(x, w)
    compiled(x, w)  # the state has moved on when the first call's backward runs
    out.sum().backward()
    torch.testing.assert_close(x.grad, drawn(4, 0) * torch.ones(4).cos())


def test_together_with_inputs_that_share_memory_and_are_written(counting):
    def f(a, b):
        a.mul_(torch.rand(4))
        return b + torch.rand(4)

    base = torch.ones(4)
    out = aotviz.compile(f, backend="eager", debug=True)(base[:], base[:])
    assert torch.equal(base, drawn(4, 0))
    assert torch.equal(out, drawn(4, 0) + drawn(4, 4))


@takes_generators
def test_a_generator_of_the_users_own_stays_what_it_is(counting):
    generator = torch.Generator().manual_seed(3)
    out = aotviz.compile(lambda x: x + torch.rand(4, generator=generator), backend="eager")(torch.zeros(4))
    assert torch.equal(out, torch.rand(4, generator=torch.Generator().manual_seed(3)))
    assert counting == [0]


def test_on_a_cpu_the_setting_changes_nothing():
    compiled = aotviz.compile(two_draws, backend="eager")
    results = []
    for fn in (compiled, two_draws):
        torch.manual_seed(0)
        with config.patch(functionalize_rng_ops=True):
            results.append((fn(*inputs()), torch.get_rng_state()))
    torch.testing.assert_close(*results, rtol=0, atol=0)
    assert "philox" not in compiled.source


class Pointing(torch.Generator):
    """A generator as a GPU has them: the default one can be pointed at another's state."""

    device = torch.device("cpu", 0)
    pointed = None

    def clone_state(self):
        made = Pointing()
        made.set_state(self.get_state())
        return made

    def graphsafe_get_state(self):
        return self.pointed or self.default

    def graphsafe_set_state(self, other):
        (self.pointed or self.default).set_state(torch.get_rng_state())
        self.pointed = other
        torch.set_rng_state(other.get_state())


@pytest.fixture
def pointing(monkeypatch):
    """The CPU as a device whose generators forward and backward can share."""
    from torch._functorch import partitioners
    from torch._functorch._aot_autograd import utils
    from torch._prims import rng_prims

    if not hasattr(utils, "_GRAPHSAFE_RNG_DEVICE_TYPES"):
        pytest.skip("in this release of torch, only CUDA devices can share generators")
    default = Pointing()
    default.default = Pointing()
    monkeypatch.setattr(utils, "_GRAPHSAFE_RNG_DEVICE_TYPES", {"cpu"})
    monkeypatch.setattr(torch.cpu, "default_generators", [default], raising=False)
    monkeypatch.setattr(torch.cpu, "_get_generator", lambda device: default, raising=False)
    made = partitioners.apply_graphsafe_rng_functionalization
    with_index = lambda *a: made(*a[:4], torch.device("cpu", 0), *a[5:])  # noqa: E731
    monkeypatch.setattr(partitioners, "apply_graphsafe_rng_functionalization", with_index)
    monkeypatch.setattr(partitioners, "get_device_rng_state", lambda device: torch.get_rng_state(), raising=False)
    if torch._C.DispatchKey.CPU not in rng_prims.graphsafe_run_with_rng_state.py_kernels:
        rng_prims.register_graphsafe_rng_dispatch(torch._C.DispatchKey.CPU)


def dropped(x):  # at ones, its gradient is its own value
    return checkpoint(lambda a: F.dropout(a, 0.5) * 2, x, use_reentrant=False)


def shared():
    x = torch.ones(50, requires_grad=True)
    options = {"graphsafe_rng": True, "debug": True, "backend": "eager"}
    form = aotviz.trace_stages(dropped, x, until="link", **options).form
    return form.function, form


def test_forward_and_backward_share_generators_and_drop_the_same_elements(pointing):
    fn, form = shared()
    for graph in (form.lowered.call.forward_module.graph, form.lowered.call.backward_module.graph):
        assert "graphsafe_run_with_rng_state" in str(graph)
        assert "rng_state_0" in str(graph)
    outs = []
    for _ in range(3):
        x = torch.ones(50, requires_grad=True)
        out = fn(x)
        out.sum().backward()
        assert torch.equal(x.grad, out.detach())
        outs.append(out.detach())
    assert not torch.equal(outs[0], outs[1])


def test_shared_generators_are_put_back_for_backwards_out_of_order_and_again(pointing):
    fn, _ = shared()
    xs = [torch.ones(50, requires_grad=True) for _ in range(3)]
    outs = [fn(x) for x in xs]
    with torch.no_grad():
        fn(xs[0])
    for k in (1, 0, 2, 0, 1):
        (gradient,) = torch.autograd.grad(outs[k].sum(), xs[k], retain_graph=True)
        assert torch.equal(gradient, outs[k].detach())


def test_the_default_generator_is_not_drawn_from_by_shared_ones(pointing):
    fn, _ = shared()
    fn(torch.ones(50, requires_grad=True)).sum().backward()
    before = torch.get_rng_state()
    fn(torch.ones(50, requires_grad=True)).sum().backward()
    assert torch.equal(before, torch.get_rng_state())


def generators():
    return Generators([lambda seed: torch.Generator().manual_seed(seed)] * 2)


def draw(made):
    return [torch.rand(3, generator=generator) for generator in made]


def test_in_step_nothing_is_copied():
    two = generators()
    for _ in range(3):
        call, forward = two.forward()
        assert call.states is None
        first = draw(forward)
        torch.testing.assert_close(draw(two.backward(call, False)), first, rtol=0, atol=0)


def test_a_forward_without_a_backward_costs_the_next_one_a_copy_and_no_more():
    two = generators()
    draw(two.forward()[1])
    gc.collect()
    call, forward = two.forward()
    assert call.states is not None
    first = draw(forward)
    torch.testing.assert_close(draw(two.backward(call, False)), first, rtol=0, atol=0)
    assert two.forward()[0].states is None


def test_the_first_numbers_follow_from_the_seed():
    seen = []
    for _ in range(2):
        torch.manual_seed(5)
        seen.append(draw(generators().forward()[1]))
    torch.testing.assert_close(*seen, rtol=0, atol=0)


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@cuda
@config.patch(functionalize_rng_ops=True)
def test_on_a_gpu_the_numbers_and_the_offset_are_eagers_for_rand():
    def f(x):
        return x + torch.rand(100, device="cuda") * torch.rand_like(x)

    results = []
    for fn in (f, aotviz.compile(f, backend="eager")):
        torch.manual_seed(1)
        results.append((fn(torch.ones(100, device="cuda")), torch.cuda.get_rng_state()))
    torch.testing.assert_close(*results, rtol=0, atol=0)


@cuda
def test_on_a_gpu_cuda_graphs_replay_a_recomputed_dropout_with_torchs_numbers():
    results = []
    for backend in ("inductor", "aotviz"):
        torch._dynamo.reset()
        torch.manual_seed(1)
        fn = torch.compile(dropped, backend=backend, options={"triton.cudagraphs": True})
        for _ in range(4):
            x = torch.ones(1000, device="cuda", requires_grad=True)
            out = fn(x).clone()
            out.sum().backward()
            assert torch.equal(x.grad, out.detach())
            results.append(out.detach())
    torch.testing.assert_close(results[:4], results[4:], rtol=0, atol=0)
