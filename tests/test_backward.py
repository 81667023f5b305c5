"""What follows a backward: gradients of gradients, graphs that are kept, gradients that are None; all as in eager."""

from __future__ import annotations

import weakref

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

import aotviz
from aotviz.frontends.backend import aotviz_eager
from aotviz.torch_private.partitioners import default_partition
from tests.doors import alone
from tests.tiers import in_turns, slow

torch.set_num_threads(1)


def compiled(fn, **options):
    return aotviz.compile(fn, backend="eager", debug=True, **options)


def leaves_of(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.rand(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]


def orders(fn, shapes, order, prepare=lambda x: x):
    """The loss and its gradients up to an order, each time of a sum of squares of the last ones."""
    torch.manual_seed(0)
    leaves = leaves_of(*shapes)
    loss = fn(*map(prepare, leaves)).sum()
    found = [loss]
    for _ in range(order):
        gradients = torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
        found += gradients
        loss = sum((g * g).sum() * k for k, g in enumerate(gradients, 1) if g is not None)
        if not loss.requires_grad:
            break
    return found


def assert_same(ours, eagers):
    assert len(ours) == len(eagers)
    for one, other in zip(ours, eagers, strict=True):
        assert (one is None) == (other is None)
        if other is not None:
            assert one.requires_grad == other.requires_grad
            torch.testing.assert_close(one, other)


class Straight(torch.autograd.Function):
    """Rounds; its gradient is told another story, whose second derivative is not that of rounding."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.sin()


def mutating(x, w):
    x.mul_(w)
    return x.sin() * w


def aliasing(x, w):
    y = x * w
    return y.view(-1).sum() + (y.t() ** 3).sum() + w.view(-1)[0]


def ema(x, buffer, w):
    y = (x - buffer) * w
    with torch.no_grad():
        buffer.mul_(0.5).add_(x)
    return y.exp()


def inner(x):
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return g * x


def checkpointed(x, w):
    return torch.utils.checkpoint.checkpoint(lambda a, b: (a @ b).tanh(), x, w, use_reentrant=False) ** 2


PROGRAMS = {
    "elementwise": (lambda x: x.sin().exp(), [(3,)]),
    "matrices": (lambda x, w: (x @ w).tanh(), [(3, 4), (4, 2)]),
    "linear in one": (lambda x, w: x * 2 + w**3, [(3,), (3,)]),
    "linear": (lambda x, w: x * 2 + w, [(3,), (3,)]),
    "mutation": (lambda x, w: mutating(x * 1, w), [(3,), (3,)]),
    "aliases": (aliasing, [(2, 2), (2, 2)]),
    "norm and softmax": (lambda x, w: torch.layer_norm(x @ w, (4,)).softmax(-1) ** 2, [(3, 4), (4, 4)]),
    "convolution": (lambda x, w: torch.conv2d(x, w).relu() ** 2, [(1, 2, 4, 4), (2, 2, 3, 3)]),
    "custom function": (lambda x: Straight.apply(x * 3) * x, [(3,)]),
    "gradient inside": (inner, [(3,)]),
    "unused input": (lambda x, w: x**3, [(3,), (3,)]),
}


@pytest.mark.every(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_two_orders_are_eagers(name):
    fn, shapes = PROGRAMS[name]
    assert_same(orders(compiled(fn), shapes, 2), orders(fn, shapes, 2))


@pytest.mark.parametrize("count", [2, 3])
def test_orders_through_a_checkpoint_are_eagers(count):
    shapes = [(2, 2), (2, 2)]
    assert_same(orders(compiled(checkpointed), shapes, count), orders(checkpointed, shapes, count))


def test_a_second_derivative_through_a_checkpointed_dropout_has_its_mask():
    def dropped(x, w):
        return torch.utils.checkpoint.checkpoint(lambda a: F.dropout(a @ w).sin(), x, use_reentrant=False).exp()

    def twice(fn):
        x, w = (torch.ones(2, 2, requires_grad=True) for _ in range(2))
        torch.manual_seed(3)
        (gradient,) = torch.autograd.grad(fn(x, w).sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.sum(), (x, w))

    torch.testing.assert_close(twice(alone(dropped)), twice(dropped))


@pytest.mark.parametrize("name", ["elementwise", "matrices", "custom function", "gradient inside"])
def test_three_orders_by_the_inputs_of_inputs_are_eagers(name):
    fn, shapes = PROGRAMS[name]
    assert_same(orders(compiled(fn), shapes, 3, lambda x: x * 1.5), orders(fn, shapes, 3, lambda x: x * 1.5))


@pytest.mark.parametrize(
    ("name", "options"),
    in_turns(
        ["norm and softmax", "aliases", "elementwise"],
        [{"donate_buffers": False}, {"partition_fn": default_partition}, {"dynamic": True}],
    ),
)
def test_two_orders_are_eagers_with_other_options(name, options):
    fn, shapes = PROGRAMS[name]
    assert_same(orders(compiled(fn, **options), shapes, 2), orders(fn, shapes, 2))


def test_a_program_that_overwrites_an_input_is_differentiated_where_it_was_before():
    assert_same(
        orders(compiled(mutating), [(3,), (3,)], 3, lambda x: x * 1.5),
        orders(mutating, [(3,), (3,)], 3, lambda x: x * 1.5),
    )


def overwritten_by_its_sigmoid(x):
    x[1:].sigmoid_()
    return x * 2


def clamped_and_moved_on(x):
    x.clamp_(min=-0.5)
    x.add_(1.5)
    return x.sin()


def read_and_then_written_unseen(x):
    y = torch.relu(x)
    with torch.no_grad():
        x.add_(1.5)
    return y * y


def moved_after_it_was_read(x):
    y = x.view(1, -1).exp()
    x.unsqueeze_(0)
    return y


def written_through_as_strided(x):
    y = x[0:]
    y.as_strided((2,), (1,), 1).sin_()
    return x * 3


@pytest.mark.parametrize(
    ("fn", "backend"),
    [
        (overwritten_by_its_sigmoid, "eager"),
        slow(overwritten_by_its_sigmoid, "inductor"),
        (clamped_and_moved_on, "eager"),
        slow(clamped_and_moved_on, "inductor"),
        (read_and_then_written_unseen, "eager"),
        slow(read_and_then_written_unseen, "inductor"),
        (moved_after_it_was_read, "eager"),
        (written_through_as_strided, "eager"),
    ],
)
def test_what_the_call_overwrites_is_there_for_the_second_derivative(fn, backend):
    def run(function):
        (x,) = leaves_of((3,))
        y = function(x * 1.5)
        (first,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
        return [first, *torch.autograd.grad((first * first).sum(), x)]

    if fn is moved_after_it_was_read:  # Dynamo leaves the move to Python
        assert_same(run(alone(fn, debug=True)), run(fn))
    else:
        assert_same(run(aotviz.compile(fn, backend=backend, debug=True)), run(fn))


def test_the_ledger_says_what_is_kept_for_a_second_derivative_alone():
    f = compiled(overwritten_by_its_sigmoid)
    f(leaves_of((3,))[0] * 1.5)
    why = f.recording.compilations[0].saved_tensors.why
    assert sum("a second derivative would read it" in reason for reason in why) == 1


BY_EACH_DOOR = {
    "aot_function": lambda fn: aotviz.aot_function(fn, aotviz.lowerings.run_graph),
    "compile": compiled,
    "captured": lambda fn: aotviz.compile(fn, backend="eager", compiled_autograd=True),
}


@pytest.mark.parametrize("door", BY_EACH_DOOR)
@pytest.mark.parametrize("order", ["leaf first", "leaf last"])
def test_a_second_derivative_flows_on_whether_or_not_the_input_was_a_leaf_when_it_was_compiled(door, order):
    def powers(x, w):
        return x.tanh() * x * w

    def run(fn):
        x, w = leaves_of((3,), (3,))
        found = []
        for given in ((x, w), (x * 2, w), (x, w * x))[:: 1 if order == "leaf first" else -1]:
            (gradient,) = torch.autograd.grad(fn(*given).sum(), given[0], create_graph=True)
            found += torch.autograd.grad((gradient * gradient).sum(), (x, w))
        return found

    assert_same(run(BY_EACH_DOOR[door](powers)), run(powers))


def test_the_hessian_of_a_function_after_its_jacobian_is_eagers():
    def powers(x):
        return (x.tanh() * x).sum()

    def run(fn):
        x = torch.linspace(0, 1, 3)
        return [torch.autograd.functional.jacobian(fn, x), torch.autograd.functional.hessian(fn, x)]

    assert_same(run(compiled(powers)), run(powers))


def test_dropout_keeps_its_mask_through_all_orders():
    def fn(x):
        return torch.dropout(x**3, 0.5, True) * x

    assert_same(orders(compiled(fn), [(20,)], 3), orders(fn, [(20,)], 3))


def test_a_buffer_that_is_updated_after_it_was_read_does_not_change_the_second_derivative():
    def run(fn):
        x, w = leaves_of((3,), (3,))
        buffer = torch.full((3,), 0.25, dtype=torch.float64)
        (g,) = torch.autograd.grad(fn(x, buffer, w).sum(), x, create_graph=True)
        return [*torch.autograd.grad(g.sum(), [x, w]), buffer]

    assert_same(run(compiled(ema)), run(ema))


def test_hessian_of_the_functional_api():
    def fn(x):
        return (x.sin() * x).sum() ** 2

    (x,) = leaves_of((4,))
    hessian = torch.autograd.functional.hessian
    torch.testing.assert_close(hessian(compiled(fn), x), hessian(fn, x))


def test_gradient_penalty_reaches_the_parameters_of_a_module():
    def step(wrap):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
        (x,) = leaves_of((5, 3))
        f = wrap(net)
        score = f(x)
        (g,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        (score.mean() + ((g.norm(dim=1) - 1) ** 2).mean()).backward()
        return [p.grad for p in net.parameters()] + [x.grad]

    assert_same(step(compiled), step(lambda net: net))


def test_tangents_with_a_history_get_their_gradient():
    def run(fn):
        x, v = leaves_of((3,), (3,))
        (g,) = torch.autograd.grad(fn(x), x, v * 2, create_graph=True)
        return [g, *torch.autograd.grad(g.exp().sum(), [x, v])]

    f = compiled(lambda x: x.sin() * x)
    assert_same(run(f), run(lambda x: x.sin() * x))


def test_of_two_outputs_one_can_be_differentiated_twice():
    def fn(x, w):
        return x.exp() * w, w**3

    def run(function):
        x, w = leaves_of((3,), (3,))
        first, second = function(x, w)
        (g,) = torch.autograd.grad(second.sum(), w, create_graph=True)
        more = torch.autograd.grad(g.sum(), [x, w], allow_unused=True, retain_graph=True)
        (h,) = torch.autograd.grad(first.sum(), x, create_graph=True)
        return [g, *more, h, *torch.autograd.grad(h.sum(), [x, w])]

    assert_same(run(compiled(fn)), run(fn))


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return grad * 3 * ctx.saved_tensors[0] ** 2


@pytest.mark.parametrize("after", [lambda y: y, lambda y: y**2], ids=["last", "not last"])
def test_once_differentiable_is_as_in_eager(after):
    def run(fn):
        (x,) = leaves_of((3,))
        (g,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError) as caught:
            torch.autograd.grad(g.sum(), x)
        return g.detach(), str(caught.value)

    def fn(x):
        return after(Once.apply(x))

    (ours, message), (eagers, expected) = run(compiled(fn)), run(fn)
    torch.testing.assert_close(ours, eagers)
    assert expected in message


def test_an_operator_without_a_second_derivative_is_named_when_it_is_asked_for():
    def fn(q):
        return torch.nn.functional.embedding_bag(torch.tensor([[0, 1]]), q, mode="max")

    def run(function):
        (q,) = leaves_of((4, 3))
        (g,) = torch.autograd.grad((function(q) ** 2).sum(), q, create_graph=True)
        with pytest.raises(RuntimeError) as caught:
            torch.autograd.grad(g.sum(), q)
        return g.detach(), str(caught.value)

    (ours, message), (eagers, expected) = run(compiled(fn)), run(fn)
    torch.testing.assert_close(ours, eagers)
    assert expected.splitlines()[0] in message


def test_without_create_graph_nothing_is_traced_twice():
    f = alone(lambda x: x.sin().exp())
    (x,) = leaves_of((3,))
    out = f(x).sum()
    out.backward(retain_graph=True)
    out.backward()
    assert [c.name for c in f.recording.compilations] == ["<lambda>"]


def test_each_order_is_a_compilation_of_the_same_recording_and_compiled_once():
    f = alone(lambda x: x.sin().exp())
    for _ in range(2):
        (x,) = leaves_of((3,))
        loss = f(x).sum()
        for _ in range(2):
            (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
            loss = gradient.sum()
    names = [c.name for c in f.recording.compilations]
    assert names == ["<lambda>", "gradient of <lambda>", "gradient of gradient of <lambda>"]
    stages = list(f.recording[1].stages["stage"])
    assert "differentiate" in stages
    assert "partition" in stages


def test_the_second_derivative_saves_what_the_first_backward_saved_and_recomputes_none_of_the_forward():
    f = compiled(lambda x: x.sin().exp(), partition_fn=default_partition)
    (x,) = leaves_of((3,))
    torch.autograd.grad(f(x).sum(), x, create_graph=True)
    graph = f.recording[1].graph("forward", "partition")
    text = str(graph)
    assert "exp" not in text.replace("saved exp", ""), text


def test_an_input_that_is_not_saved_is_not_kept_alive():
    f = compiled(lambda x: x.exp(), partition_fn=default_partition)
    (leaf,) = leaves_of((1000,))
    f(leaf * 2)  # compiling looks at its arguments longer
    x = leaf * 2
    out = f(x)
    alive = weakref.ref(x)
    del x
    assert alive() is None
    (g,) = torch.autograd.grad(out.sum(), leaf, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), leaf)
    torch.testing.assert_close(h, 4 * (leaf * 2).exp())


def forward_mode(f, x):
    with forward_ad.dual_level():
        return list(forward_ad.unpack_dual(f(forward_ad.make_dual(x, torch.ones_like(x)))))


TRANSFORMS = {
    "vmap": lambda f, x: [torch.func.vmap(f)(x)],
    "grad": lambda f, x: [torch.func.grad(lambda v: f(v).sum())(x)],
    "jvp": lambda f, x: [*torch.func.jvp(f, (x,), (torch.ones_like(x),))],
    "jacrev": lambda f, x: [torch.func.jacrev(f)(x)],
    "hessian": lambda f, x: [torch.func.hessian(lambda v: f(v).sum())(x)],
    "forward mode": forward_mode,
}
DOORS = {
    "compile": lambda fn: aotviz.compile(fn, backend=opaque),
    "aot_function": lambda fn: aotviz.aot_function(fn, opaque),
    "torch.compile": lambda fn: backend_of(fn),
}


def opaque(graph_module, example_inputs):
    """A compiler whose result no transform can see into."""

    def run(*args):
        arrays = [a.detach().numpy() for a in args]
        return graph_module(*map(torch.from_numpy, arrays))

    return run


def backend_of(fn):
    graph_module = torch.fx.symbolic_trace(lambda x: (fn(x),))
    kept = {}

    def call(x):
        if "run" not in kept:
            kept["run"] = aotviz_eager(graph_module, [torch.ones(2, 2, dtype=torch.float64)])
        return kept["run"](x)[0]

    return call


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_transform_over_a_compiled_function_is_eagers(transform, requires_grad, door):
    def fn(x):
        return x.sin() * x

    (x,) = leaves_of((2, 2))
    f = DOORS[door](fn)
    f(x.detach().requires_grad_(requires_grad))  # a program is there already
    x = x.detach().requires_grad_(requires_grad)
    assert_same(TRANSFORMS[transform](f, x), TRANSFORMS[transform](fn, x))


def test_a_program_by_itself_refuses_a_transform_before_it_runs_anything():
    f = alone(lambda x: x.mul_(2))
    x = torch.ones(3)
    f(x)
    with pytest.raises(RuntimeError, match="<lambda> is compiled and is called inside a transform"):
        torch.func.vmap(f.program.function)(x)
    assert x.tolist() == [2, 2, 2]


def test_batched_gradients_go_through_the_backward_graph():
    (x,) = leaves_of((3,))
    f = aotviz.compile(lambda x: x.sin(), backend=opaque)
    (rows,) = torch.autograd.grad(f(x), x, torch.eye(3, dtype=torch.float64), is_grads_batched=True)
    torch.testing.assert_close(rows, torch.diag(x.detach().cos()))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_gradients_that_are_none_in_eager_are_none(used, dynamic):
    def run(fn):
        x, w = leaves_of((3,), (3,))
        results = fn(x, w)
        return torch.autograd.grad(sum(results[i].sum() for i in used), [x, w], allow_unused=True)

    def fn(x, w):
        return x.sin() * 2, (w * x).exp()

    def apart(x, w):
        return x.sin(), w.exp()

    assert_same(run(compiled(fn, dynamic=dynamic)), run(fn))
    assert_same(run(compiled(apart, dynamic=dynamic)), run(apart))


def test_an_embedding_with_sparse_gradients_gets_them():
    def run(function):
        (w,) = leaves_of((5, 3))
        function(w, torch.tensor([1, 3, 1])).sum().backward()
        return w.grad

    def fn(w, i):
        return torch.nn.functional.embedding(i, w, sparse=True).sin()

    ours, eagers = run(compiled(fn)), run(fn)
    assert ours.layout is torch.sparse_coo
    torch.testing.assert_close(ours, eagers)
    assert ours._nnz() == eagers._nnz()


@pytest.mark.parametrize("kind", ["expanded", "transposed", "broadcast"])
def test_gradients_of_any_layout_come_in(kind):
    incoming = {
        "expanded": torch.ones(1, 1, dtype=torch.float64).expand(3, 2),
        "transposed": torch.arange(6.0, dtype=torch.float64).view(2, 3).t(),
        "broadcast": torch.arange(2.0, dtype=torch.float64).expand(3, 2),
    }[kind]
    (x,) = leaves_of((3, 2))
    f = compiled(lambda x: x.sin())
    assert_same(torch.autograd.grad(f(x), x, incoming), torch.autograd.grad(x.sin(), x, incoming))


def test_hooks_see_what_they_see_in_eager():
    def run(fn):
        log = []
        x, w = leaves_of((3,), (3,))
        x.register_hook(lambda g: log.append(("x", g.clone())) or g * 2)
        w.register_post_accumulate_grad_hook(lambda p: log.append(("w", p.grad.clone())))
        y = fn(x, w)
        y.register_hook(lambda g: log.append(("y", g.clone())) or g * 5)
        y.retain_grad()
        y.sum().backward(inputs=[x, w])
        return [name for name, _ in log], [value for _, value in log] + [x.grad, w.grad, y.grad]

    (ours, values), (eagers, expected) = run(compiled(lambda x, w: (x * w).sin())), run(lambda x, w: (x * w).sin())
    assert ours == eagers
    assert_same(values, expected)
