"""Random numbers: the same seed gives what eager gives, or on Inductor what torch's own pipeline gives on Inductor."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import aotviz
from aotviz.torch_private import versions
from aotviz.torch_private.partitioners import default_partition, min_cut_rematerialization_partition
from tests.doors import alone
from tests.releases import takes_generators


def dropout_twice(x, w):
    y = F.dropout(x @ w, 0.3)
    return F.dropout(y.sin(), 0.5) * x


def noise(x, w):
    return x + torch.randn_like(x) * w + torch.rand(4, 4) + torch.randint(5, (4, 4)) + torch.randperm(4)


def in_place(x, w):
    y = x * w
    mask = torch.empty_like(x).bernoulli_(0.5)
    return y * mask + torch.empty(4, 4).normal_().uniform_()


def recomputed(x, w):
    def block(a):
        return F.dropout(F.gelu(a @ w), 0.5).sin()

    return checkpoint(block, checkpoint(block, x, use_reentrant=False), use_reentrant=False)


def recomputed_attention(x, w):
    def block(a):
        q = (a @ w).reshape(1, 1, 4, 4)
        return F.scaled_dot_product_attention(q, q, q, dropout_p=0.5).reshape(4, 4)

    return checkpoint(block, x, use_reentrant=True)


def random_in_the_backward(x, w):
    return Noisy.apply(x * w) * x


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + torch.rand_like(x)

    @staticmethod
    def backward(ctx, gradient):
        torch.rand(3)  # nobody reads it, and yet it moves the random state
        return gradient * torch.rand_like(gradient) + torch.rand(4, 4)


FUNCTIONS = [dropout_twice, noise, in_place, recomputed, recomputed_attention, random_in_the_backward]


def run(fn, calls=2, seed=3):
    """What some calls give, and the random state after the forward and after the backward of each."""
    torch.manual_seed(seed)
    seen = []
    for call in range(calls):
        generator = torch.Generator().manual_seed(call)
        x, w = (torch.rand(4, 4, generator=generator).requires_grad_() for _ in range(2))
        result = fn(x, w)
        seen += [result.detach(), torch.get_rng_state()]
        result.sum().backward()
        seen += [x.grad, w.grad, torch.get_rng_state()]
    return seen


def assert_same(mine, others, exact=True):
    for one, other in zip(mine, others, strict=True):
        torch.testing.assert_close(one, other, **({"rtol": 0, "atol": 0} if exact else {}))


@pytest.mark.parametrize("partition_fn", [default_partition, min_cut_rematerialization_partition])
@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_operator_by_operator_the_numbers_and_the_state_left_behind_are_eagers(fn, partition_fn):
    compiled = alone(fn, partition_fn=partition_fn, debug=True)
    assert_same(run(compiled), run(fn))


def test_dynamos_graph_draws_eagers_numbers_too():
    torch._dynamo.reset()
    assert_same(run(torch.compile(recomputed, backend="aotviz_eager")), run(recomputed))


def test_without_gradients_the_numbers_are_eagers():
    x = torch.rand(4, 4)
    outputs = []
    for fn in (noise, aotviz.compile(noise, backend="eager")):
        torch.manual_seed(0)
        outputs.append((fn(x, x), torch.get_rng_state()))
    assert_same(*outputs)


def test_on_inductor_the_numbers_are_those_of_torchs_own_pipeline():
    torch._dynamo.reset()
    theirs = run(torch.compile(recomputed, backend="inductor"))
    torch._dynamo.reset()
    assert_same(run(torch.compile(recomputed, backend="aotviz")), theirs)


def test_on_inductor_forward_and_backward_drop_the_same_elements():
    def linear(x):  # at ones, its gradient is its own value
        return checkpoint(lambda a: F.dropout(a, 0.5), x, use_reentrant=False)

    x = torch.ones(50, 2, requires_grad=True)
    out = aotviz.compile(linear)(x)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())
    assert 0 < out.count_nonzero() < out.numel()


@pytest.mark.slow
def test_inductors_fallback_random_gives_eagers_numbers():
    compiled = aotviz.compile(dropout_twice, options={"fallback_random": True})
    assert_same(run(compiled), run(dropout_twice), exact=False)


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@cuda
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_on_a_gpu_a_recomputed_dropout_drops_the_same_elements(backend):
    def f(x):
        return checkpoint(lambda a: F.dropout(a, 0.5) * 2, x, use_reentrant=False)

    compiled = aotviz.compile(f, backend=backend)
    for _ in range(2):
        x = torch.ones(1000, device="cuda", requires_grad=True)
        out = compiled(x)
        out.sum().backward()
        assert torch.equal(x.grad, out.detach())


@cuda
def test_on_a_gpu_operator_by_operator_the_numbers_are_eagers():
    def on_gpu(fn):
        return lambda x, w: fn(x.cuda(), w.cuda()).cpu()

    mine = run(on_gpu(aotviz.compile(recomputed, backend="eager")))
    assert_same(mine, run(on_gpu(recomputed)), exact=False)


@pytest.mark.parametrize(("p", "train", "size"), [(0.0, True, 3), (0.5, False, 3), (0.5, True, 0)])
def test_a_dropout_that_drops_nothing_returns_its_argument_which_a_write_to_it_changes(p, train, size):
    compiled = aotviz.compile(lambda x: F.dropout(x, p, train), backend="eager")
    x = torch.ones(size)
    assert compiled(x) is x

    def writes(x):
        F.dropout(x, p, train).add_(1)
        return x * 2

    mine, eagers = torch.ones(size), torch.ones(size)
    assert torch.equal(aotviz.compile(writes, backend="eager")(mine), writes(eagers))
    assert torch.equal(mine, eagers)


class DrawsItself(torch.nn.Module):
    def __init__(self, generator):
        super().__init__()
        self.generator, self.scale = generator, torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * self.scale * torch.rand(3, generator=self.generator)


def drawn_from(x, generator):
    return x * torch.rand(3, generator=generator)


@takes_generators
@pytest.mark.parametrize("is_module", [True, False])
def test_a_generator_may_be_an_argument_or_an_attribute(is_module):
    drawn = []
    for wrap in (lambda fn: fn, lambda fn: aotviz.compile(fn, backend="eager")):
        generator = torch.Generator().manual_seed(5)
        fn, args = (DrawsItself(generator), ()) if is_module else (drawn_from, (generator,))
        compiled, x = wrap(fn), torch.ones(3, requires_grad=True)
        outputs = [compiled(x, *args) for _ in range(2)]
        sum(outputs).sum().backward()
        drawn.append((*outputs, x.grad, generator.get_state()))
    torch.testing.assert_close(drawn[1], drawn[0], rtol=0, atol=0)


def seeds(x):
    torch.manual_seed(3)
    return x * torch.rand(4)


def forks(x):
    with torch.random.fork_rng(devices=[]):
        first = torch.rand(4)
    return x * first + torch.rand(4)


def takes_and_puts_back(x):
    state = torch.get_rng_state()
    first = torch.rand(4)
    torch.set_rng_state(state)
    return x * first + torch.rand(4)


OWN = torch.Generator()


def seeds_its_own(x):
    OWN.manual_seed(3)
    return x * torch.rand(4, generator=OWN)


@pytest.mark.parametrize("fn", [seeds, forks, takes_and_puts_back, pytest.param(seeds_its_own, marks=takes_generators)])
def test_a_function_that_sets_a_random_state_is_refused_and_the_state_is_as_it_was(fn):
    before = torch.get_rng_state(), OWN.get_state()
    with pytest.raises(aotviz.Refused) as caught:
        alone(fn)(torch.ones(4))
    assert caught.value.reason == "random state inside"
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.equal(OWN.get_state(), before[1])
    compiled = torch.compile(fn, backend="aotviz_eager")
    assert torch.equal(compiled(torch.ones(4)), drawn_again(fn, before[0]))


def makes_its_own(x):
    return x * torch.rand(4, generator=torch.Generator().manual_seed(3))


def clones_its_own(x):
    return x * torch.rand(4, generator=OWN.clone_state())


class Holder:
    def __init__(self):
        self.generator = torch.Generator().manual_seed(1)


HOLDER = Holder()


def seeds_what_an_object_holds(x):
    HOLDER.generator.manual_seed(3)
    return x * torch.rand(4, generator=HOLDER.generator)


@takes_generators
@pytest.mark.parametrize("fn", [makes_its_own, clones_its_own, seeds_what_an_object_holds])
def test_a_generator_that_is_made_or_seeded_inside_is_refused(fn):
    before = HOLDER.generator.get_state()
    with pytest.raises(aotviz.Refused) as caught:
        alone(fn)(torch.ones(4))
    assert caught.value.reason == "random state inside"
    assert torch.equal(HOLDER.generator.get_state(), before)


@takes_generators
def test_a_generator_that_an_object_holds_draws_on_as_in_eager():
    def draws(x):
        return x * torch.rand(4, generator=HOLDER.generator)

    found = []
    for fn in (draws, aotviz.compile(draws, backend="eager")):
        HOLDER.generator.manual_seed(7)
        found.append([fn(torch.ones(4)).tolist() for _ in range(2)])
    assert found[1] == found[0]


def drawn_again(fn, state):
    torch.set_rng_state(state)
    return fn(torch.ones(4))


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_a_draw_of_pythons_or_numpys_is_warned_of(draw):
    with pytest.warns(UserWarning, match="draws a random number from"):
        alone(lambda x: x * draw())(torch.ones(2))


@pytest.mark.skipif(versions.has("a trace takes generators"), reason="torch traces a generator")
def test_where_a_graph_has_no_place_for_a_generator_it_is_refused() -> None:
    generator = torch.Generator()
    with pytest.raises(NotImplementedError, match=r"torch.Generator of its own.*torch 2.13 can"):
        alone(drawn_from)(torch.ones(3), generator)
