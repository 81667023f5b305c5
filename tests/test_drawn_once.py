"""Whatever a partitioner recomputes draws the numbers that the forward drew, or is not recomputed.

Each program multiplies by random numbers between operators that a backward can recompute. Eager's gradient, from the
same seed, has the numbers of its forward, so it tells whether ours had others.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import aotviz

aten = torch.ops.aten
PARTITIONERS = ["min_cut_rematerialization_partition", "default_partition"]
BUDGETS = [0.0, 0.1, 0.5, 1.0]


GENERATOR = torch.Generator()
DRAWS = {
    "dropout": lambda x: F.dropout(x, 0.4),
    "dropout in place": lambda x: F.dropout(x.clone(), 0.4, inplace=True),
    "dropout1d": lambda x: F.dropout1d(x, 0.4),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.4),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.4),
    "native_dropout": lambda x: aten.native_dropout(x, 0.4, True)[0],
    "bernoulli": lambda x: x * torch.bernoulli(x.detach().sigmoid()),
    "bernoulli_": lambda x: x * torch.empty_like(x).bernoulli_(0.3),
    "rand": lambda x: x * torch.rand(8, 8),
    "rand, rounded": lambda x: x * (torch.rand(8, 8) > 0.5),
    "rand_like": lambda x: x * torch.rand_like(x),
    "randn": lambda x: x * torch.randn(8, 8),
    "randn_like": lambda x: x * torch.randn_like(x),
    "randint": lambda x: x * torch.randint(1, 9, (8, 8)),
    "randint_like": lambda x: x * torch.randint_like(x, 1, 9),
    "random_": lambda x: x * torch.empty_like(x).random_(1, 9),
    "randperm": lambda x: x[torch.randperm(8)],
    "normal": lambda x: x * torch.normal(x.detach(), 1.0),
    "normal_": lambda x: x * torch.empty_like(x).normal_(),
    "uniform_": lambda x: x * torch.empty_like(x).uniform_(),
    "exponential_": lambda x: x * torch.empty_like(x).exponential_(),
    "geometric_": lambda x: x * torch.empty_like(x).geometric_(0.3),
    "log_normal_": lambda x: x * torch.empty_like(x).log_normal_(),
    "cauchy_": lambda x: x * torch.empty_like(x).cauchy_(),
    "multinomial": lambda x: x[:, torch.multinomial(x.detach().exp()[0], 5)],
    "poisson": lambda x: x * torch.poisson(x.detach().exp()),
    "binomial": lambda x: x * torch.binomial(torch.full_like(x, 9).detach(), x.detach().sigmoid()),
    "gamma": lambda x: x * torch._standard_gamma(x.detach().exp()),
    "dirichlet": lambda x: x * torch._sample_dirichlet(x.detach().exp()),
    "rrelu": lambda x: F.rrelu(x - 0.5, training=True),
    "rrelu_": lambda x: F.rrelu_(x - 0.5, training=True),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x),
    "sdpa": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.4)[0],
    "multi_head_attention": lambda x: F.dropout(F.softmax(x @ x.t(), -1), 0.4) @ x,
    "fractional_max_pool": lambda x: F.fractional_max_pool2d(x[None, None], 2, output_size=4)[0, 0] * x[:4, :4],
    "a generator": lambda x: x * torch.rand(8, 8, generator=GENERATOR),
    "two": lambda x: F.dropout(F.dropout(x, 0.4).cos(), 0.4) * torch.rand(8, 8),
}


def program(draw):
    def function(x):
        return draw(x.sin().exp()).cos().sin()

    return function


def run(function):
    x = torch.linspace(-1, 1, 64).reshape(8, 8).requires_grad_()
    torch.manual_seed(5)
    GENERATOR.manual_seed(6)
    result = function(x)
    result.sum().backward()
    return result.detach(), x.grad, torch.get_rng_state(), GENERATOR.get_state()


def assert_as_eager(function, compiled):
    expected, got = run(function), run(compiled)
    torch.testing.assert_close(got[:2], expected[:2], equal_nan=True)
    assert torch.equal(got[2], expected[2])
    assert torch.equal(got[3], expected[3])


QUICK = ["dropout", "bernoulli_", "rand, rounded", "randperm", "rrelu", "a generator", "sdpa", "two"]
EACH = [pytest.param(draw, marks=[] if draw in QUICK else pytest.mark.slow) for draw in DRAWS]


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("draw", EACH)
def test_a_gradient_has_the_numbers_of_its_forward_for_any_memory_budget(draw, partitioner):
    function = program(DRAWS[draw])
    between = BUDGETS[1 + [*DRAWS].index(draw) % 3]  # each draw with the lowest and, in turns, one other
    for budget in (BUDGETS[0], between) if partitioner == PARTITIONERS[0] else BUDGETS[:1]:
        with config.patch(activation_memory_budget=budget):
            compiled = aotviz.compile(function, backend="eager", partition_fn=partitioner, debug=True, cache=False)
            assert_as_eager(function, compiled)


@pytest.mark.every(6)
@pytest.mark.parametrize("draw", ["dropout", "rand, rounded", "randn", "randint", "sdpa", "two"])
def test_inductors_seeds_are_saved_and_not_drawn_again(draw):
    """Inductor draws its own numbers, for any budget the same; torch's gradient has other numbers than its forward."""

    def ran(budget):
        with config.patch(activation_memory_budget=budget):
            return run(aotviz.compile(program(DRAWS[draw]), backend="inductor", cache=False))

    expected = ran(1.0)
    for budget in BUDGETS[:-1]:
        torch.testing.assert_close(ran(budget), expected)


def policy(wanted, ctx, op, *args, **kwargs):
    return wanted


def checkpointed(draw, wanted):
    contexts = partial(create_selective_checkpoint_contexts, partial(policy, wanted)) if wanted else None
    how = {"context_fn": contexts} if contexts else {}

    def function(x):
        return draw(checkpoint(lambda t: draw(t.sin().exp()).cos(), x, use_reentrant=False, **how)).sin()

    return function


IN_PLACE = ["dropout", "bernoulli_", "rrelu_", "sdpa"]  # with these inside, eager refuses a region whose policy saves
CHECKPOINTS = [
    (None, [*IN_PLACE, "native_dropout", "rand_like", "rrelu", "multinomial"]),
    (CheckpointPolicy.PREFER_RECOMPUTE, [*IN_PLACE, "native_dropout", "rand_like", "rrelu", "multinomial"]),
    (CheckpointPolicy.MUST_SAVE, ["native_dropout", "rand_like", "rrelu", "multinomial"]),
]


def penalized(function):
    """The second derivative of a gradient penalty, and the random state after it."""
    x = torch.linspace(-1, 1, 64).reshape(8, 8).requires_grad_()
    torch.manual_seed(5)
    GENERATOR.manual_seed(6)
    (gradient,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
    gradient.pow(2).sum().backward()
    return gradient.detach(), x.grad, torch.get_rng_state(), GENERATOR.get_state()


@pytest.mark.every(4)
@pytest.mark.parametrize("draw", DRAWS)
def test_a_second_derivative_has_them_too(draw):
    """The first backward draws them again from a saved state, and so does what differentiates it."""
    function = program(DRAWS[draw])
    with config.patch(activation_memory_budget=0.0):
        torch.testing.assert_close(
            penalized(aotviz.compile(function, backend="eager", cache=False)), penalized(function)
        )


@pytest.mark.every(4)
@pytest.mark.parametrize(("wanted", "names"), CHECKPOINTS, ids=str)
@pytest.mark.parametrize(  # the default partitioner has no budget
    ("budget", "partitioner"), [*((budget, PARTITIONERS[0]) for budget in (0.0, 0.5, 1.0)), (0.0, PARTITIONERS[1])]
)
def test_a_checkpoint_inside_a_memory_budget_draws_the_same_numbers(budget, partitioner, wanted, names):
    for name in names if budget == 0.0 else names[budget == 1.0 :: 2]:
        function = checkpointed(DRAWS[name], wanted)
        with config.patch(activation_memory_budget=budget):
            compiled = aotviz.compile(function, backend="eager", partition_fn=partitioner, debug=True, cache=False)
            assert_as_eager(function, compiled)


def redrawing(joint, inputs, **facts):
    """A partitioner that saves inputs only, and recomputes all else."""
    with config.patch(activation_memory_budget=0.0):
        return min_cut_rematerialization_partition(joint, inputs, **facts)


@pytest.mark.parametrize("name", ["dropout", "two", "a generator", "sdpa", "rrelu", "fractional_max_pool"])
def test_a_partitioner_of_the_users_may_recompute_random_numbers(name):
    function = program(DRAWS[name])
    compiled = aotviz.compile(function, backend="eager", partition_fn=redrawing, debug=True, cache=False)
    assert_as_eager(function, compiled)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("name", ["dropout", "native_dropout", "rand_like", "rand", "bernoulli_", "two"])
def test_a_draw_that_nobody_reads_is_drawn(name, partitioner):
    def function(x):
        DRAWS[name](x.detach())
        return x.sin() * torch.rand(())

    def graph(module, _inputs):
        return module

    assert_as_eager(function, aotviz.aot_function(function, graph, graph, partition_fn=partitioner))
    for compiled in (aotviz.compile(function, backend=how, partition_fn=partitioner) for how in ("eager", graph)):
        assert_as_eager(function, compiled)
        with torch.no_grad():
            torch.manual_seed(5)
            expected = function(torch.ones(8, 8))
            torch.manual_seed(5)
            assert torch.equal(compiled(torch.ones(8, 8)), expected)


@pytest.mark.parametrize("draw", ["dropout", "rrelu"])
@pytest.mark.parametrize("budget", BUDGETS)
def test_a_region_with_its_own_halves_draws_the_same_numbers(budget, draw):
    region = torch.compiler.nested_compile_region(lambda t: DRAWS[draw](t.sin().exp()).cos())
    with config.patch(activation_memory_budget=budget):
        compiled = aotviz.compile(lambda x: region(region(x)), backend="eager", debug=True, cache=False)
        assert_as_eager(lambda x: region(region(x)), compiled)


def test_what_reads_an_input_and_a_view_of_it_is_saved_once():
    def function(x):
        return torch.sub(x, x.view(64), alpha=0.5).sin().cos()

    with config.patch(activation_memory_budget=0.0):
        compiled = aotviz.compile(function, backend="eager", cache=False)
        outcomes = []
        for run in (compiled, function):
            x = torch.linspace(0.1, 1, 64, requires_grad=True)
            outcomes.append(torch.autograd.grad(run(x * 1).sum(), x))
    torch.testing.assert_close(*outcomes)


def test_a_memory_budget_keeps_fewer_bytes_and_says_why():
    """The random state of a CPU has 5,056 bytes."""
    function, kept = (lambda x: F.dropout(F.dropout(x.sin(), 0.5).cos(), 0.5).sin()), []
    for budget in (1.0, 0.0):
        with config.patch(activation_memory_budget=budget):
            compiled = aotviz.compile(function, backend="eager", cache=False)
            compiled(torch.ones(128, 128, requires_grad=True))
            saved = compiled.recording[0].saved_tensors
            kept.append(saved["saved_bytes"].sum())
    assert kept[1] < kept[0]
    assert saved["why"].str.contains("the random state before a node that the backward recomputes").sum() == 2


def test_an_input_that_only_an_unread_draw_needs_may_be_written_before_the_backward():
    def function(x, p):
        F.dropout(p, 0.5)
        return x * torch.rand(())

    with config.patch(activation_memory_budget=0.0):
        compiled = aotviz.compile(function, backend="eager", cache=False)
        x, p = torch.ones(3, requires_grad=True), torch.ones(4, requires_grad=True).clone()
        result = compiled(x, p)
    p.mul_(2)
    result.sum().backward()
    assert torch.equal(x.grad, result.detach())


def writes_its_input(x, w):
    y = F.dropout(x.exp().sin(), 0.5)
    with torch.no_grad():
        x.zero_()
    return y * w


def returns_what_is_saved(x, w):
    y = x.relu() * w
    return y, (y + 1).sigmoid().tanh()


def reads_a_view(x, w):
    part = x.view(-1)[1:]
    return (part.exp().tanh() * w).sin()


@pytest.mark.parametrize("budget", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("fn", [writes_its_input, returns_what_is_saved, reads_a_view])
def test_what_the_caller_writes_before_the_backward_is_not_what_it_recomputes_from(fn, budget):
    torch._dynamo.reset()
    found = []
    for run in (fn, torch.compile(fn, backend="aotviz_eager")):
        torch.manual_seed(0)
        leaf, w = torch.linspace(-1, 1, 6).requires_grad_(), torch.tensor(1.5, requires_grad=True)
        x = leaf * 1.0
        with config.patch(activation_memory_budget=budget):
            results = run(x, w)
        results = results if isinstance(results, tuple) else (results,)
        loss = results[-1].sum()
        with torch.no_grad():
            x.add_(1)
            results[0].mul_(3) if len(results) > 1 else None
        found.append((loss.item(), [one.tolist() for one in torch.autograd.grad(loss, (leaf, w))]))
    assert found[0] == found[1]
