"""Operators that torch traces as something other than what eager computes, and that are traced here as in eager."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db

import aotviz
from aotviz.tracing import corrections
from tests.oracle.samples import samples_of

MODES = {"training": torch.enable_grad, "no_grad": torch.no_grad, "inference mode": torch.inference_mode}
BYTES = torch.arange(2 * 3 * 9 * 8, dtype=torch.uint8).reshape(2, 3, 9, 8)
LABELS = torch.tensor([3, 0, -1, 1])


def both(fn, *args):
    """What eager and a compiled call give."""
    return fn(*args), aotviz.compile(fn, backend="eager", debug=True)(*args)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("samples", [(), (3,)])
def test_multilabel_margin_loss_ends_at_the_first_missing_label(mode, samples):
    x = torch.linspace(-1, 1, 4).expand(*samples, 4).clone().requires_grad_(mode == "training")
    labels = LABELS.expand(*samples, 4).clone()

    def losses(x, t):
        return [F.multilabel_margin_loss(x, t, reduction=reduction) for reduction in ("none", "mean", "sum")]

    with MODES[mode]():
        expected, found = both(losses, x, labels)
    for of_eager, ours in zip(expected, found, strict=True):
        assert ours.shape == of_eager.shape
        torch.testing.assert_close(ours, of_eager)
        if mode == "training":
            gradients = [torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for y in (of_eager, ours)]
            torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("mode", MODES)
def test_the_multi_margin_loss_of_one_sample_has_no_dimension(mode):
    with MODES[mode]():
        expected, found = both(lambda x, t: F.multi_margin_loss(x, t, reduction="none"), torch.rand(4), torch.tensor(2))
    assert found.shape == expected.shape == ()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["bilinear", "bicubic"])
def test_pictures_of_bytes_are_resized_as_bytes(mode, how):
    sizes = [{"size": (7, 5)}, {"scale_factor": 1.7}, {"size": (7, 5), "align_corners": True}]
    with MODES[mode]():
        expected, found = both(lambda x: [F.interpolate(x, mode=how, **to) for to in sizes], BYTES)
    assert [*map(torch.equal, found, expected)] == [True, True, True]


def test_inductor_resizes_bytes_as_eager_does():
    def resized(x):
        return F.interpolate(x, mode="bilinear", scale_factor=1.7) + 1

    assert torch.equal(aotviz.compile(resized)(BYTES), resized(BYTES))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("p", "training"), [(0.5, False), (0.0, True)])
def test_a_dropout_that_drops_nothing_gives_its_argument(mode, p, training):
    x = torch.ones(3)
    with MODES[mode]():
        compiled = aotviz.compile(lambda x: F.dropout(x, p, training).mul_(2), backend="eager")
        assert compiled(x) is x
    assert x.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(4, 5, 3), (4, 5, 2, 3)], ids=["1d", "2d"])
def test_what_follows_the_batch_norm_of_a_transposed_tensor_sees_eagers_layout(mode, training, shape):
    channels = shape[2]
    mean, variance, weight = torch.zeros(channels), torch.ones(channels), torch.rand(channels)

    def normalized(x):
        turned = F.batch_norm(x.transpose(1, 2), mean, variance, weight, training=training)
        return turned, turned.transpose(1, 2).reshape(4, -1) * 2

    def layouts(results):
        return [(result.shape, result.stride()) for result in results]

    x = torch.randn(shape, requires_grad=mode == "training")
    with MODES[mode]():
        expected, found = both(normalized, x)
    assert layouts(found) == layouts(expected)
    assert all(map(torch.equal, found, expected))
    if mode == "training":
        gradients = [torch.autograd.grad([y.square().mean() for y in ys], x)[0] for ys in (expected, found)]
        torch.testing.assert_close(gradients[1], gradients[0])


def test_a_gradient_behind_the_batch_norm_of_a_transposed_tensor_is_found():
    x, weight = torch.randn(4, 5, 3), torch.randn(3, 3, requires_grad=True)

    def encoded(x, weight):  # the gradient of `linear` flattens what batch norm's backward gives
        return F.batch_norm(F.linear(x, weight).transpose(1, 2), None, None, training=True).sin()

    gradients = [torch.autograd.grad(y.sum(), weight)[0] for y in both(encoded, x, weight)]
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize(
    "loss",
    [
        F.mse_loss,
        F.smooth_l1_loss,
        F.huber_loss,
        lambda x, y: F.binary_cross_entropy(x.sigmoid(), y),
        lambda x, y: (F.logsigmoid(x) * y).sum(),
        lambda x, y: (F.log_softmax(x, 1) * y).sum(),
        lambda x, y: (2**x * y).sum(),
    ],
    ids=["mse", "smooth l1", "huber", "binary cross entropy", "log sigmoid", "log softmax", "pow"],
)
def test_the_loss_of_a_transposed_tensor_has_a_gradient(loss):
    x, y, weight = torch.randn(4, 5, 3), torch.rand(4, 3, 5), torch.randn(3, 3, requires_grad=True)
    losses = both(lambda x, y, weight: loss(F.linear(x, weight).transpose(1, 2), y), x, y, weight)
    gradients = [torch.autograd.grad(found, weight)[0] for found in losses]
    torch.testing.assert_close(gradients[1], gradients[0])


LAYOUTS = {
    "contiguous": torch.clone,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.mT.contiguous().mT,
    "every second": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "expanded": lambda x: x[:, :1].expand_as(x),
}
ELEMENTWISE = {
    "dropout": lambda x, y: F.dropout(x, 0.5),
    "binary cross entropy": lambda x, y: F.binary_cross_entropy(x, y, reduction="none"),
    "log sigmoid": lambda x, y: F.logsigmoid(x),
    "mse": lambda x, y: F.mse_loss(x, y, reduction="none"),
    "smooth l1": lambda x, y: F.smooth_l1_loss(x, y, reduction="none"),
    "huber": lambda x, y: F.huber_loss(x, y, reduction="none"),
}


@pytest.mark.every(3)
@pytest.mark.parametrize("of_gradient", LAYOUTS)
@pytest.mark.parametrize("of_input", LAYOUTS)
def test_a_gradient_lies_as_in_eager_however_what_it_is_made_of_lies(of_input, of_gradient):
    x, y, weight = torch.rand(3, 2, 3, 4, 4).unbind()
    xs = [LAYOUTS[of_input](x).requires_grad_() for _ in ELEMENTWISE]  # each operator has its own, and its gradient
    weight = LAYOUTS[of_gradient](weight)

    def weighted(xs, y, weight):
        return sum((operator(x, y) * weight).sum() for operator, x in zip(ELEMENTWISE.values(), xs, strict=True))

    found = []
    for call in (weighted, aotviz.compile(weighted, backend="eager", debug=True)):
        torch.manual_seed(0)
        found.append(torch.autograd.grad(call(xs, y, weight), xs))
    for name, expected, ours in zip(ELEMENTWISE, *found, strict=True):
        assert torch.equal(ours, expected), name
        assert ours.stride() == expected.stride(), name


def test_torch_itself_is_left_as_it_was():
    before = {op: dict(op.py_kernels) for op in corrections._TRACED_AS}
    both(lambda x: F.dropout(x, 0.5, False), torch.ones(3))
    assert before == {op: op.py_kernels for op in corrections._TRACED_AS}


def test_a_decomposition_of_the_users_is_not_replaced():
    op = torch.ops.aten.multi_margin_loss.default
    assert corrections.corrected({op: both})[op] is both


def own(x, write):
    made = x.mT.contiguous().mT.clone()
    write(made)
    return made


def a_view(x, write):
    made = x.mT.contiguous()
    write(made.mT)
    return made


def a_view_of_an_input(x, write):
    write(x.mT)
    return x * 2


WRITTEN = {"a tensor": (own, lambda x: x), "a view": (a_view, lambda x: x),
           "a view of an input": (a_view_of_an_input, lambda x: x.mT.contiguous())}  # fmt: skip


def in_place(operator, how):
    """The operator's first sample that eager can write into a tensor that is not contiguous, and the function."""
    program, given = WRITTEN[how]
    for sample in samples_of(operator, torch.float32):
        x = sample.input
        if not isinstance(x, torch.Tensor) or x.dim() < 2 or min(x.shape[-2:]) < 2:
            continue

        def written(x, *args, kwargs=sample.kwargs):
            return program(x, lambda one: operator.inplace_variant(one, *args, **kwargs))

        with contextlib.suppress(RuntimeError):
            torch.manual_seed(0)
            return written, (given(x), *sample.args), written(given(x).clone(), *sample.args)
    return None


@pytest.mark.parametrize("how", WRITTEN)
def test_what_is_written_in_place_keeps_its_strides(how):
    """torch's functionalization gives it those of a new result: row-major for `tril_`, `scatter_`, `index_add_`, ..."""
    differ, ran = [], 0
    for operator in op_db:
        found = in_place(operator, how) if operator.inplace_variant is not None else None
        if found is None or operator.name == "polygamma":  # which torch cannot make functional
            continue
        written, (x, *args), expected = found
        torch.manual_seed(0)
        value = aotviz.aot_function(written, lambda graph, _: graph)(x.clone(), *args)
        ran += 1
        if value.stride() != expected.stride() or not torch.allclose(value, expected, equal_nan=True):
            differ.append(operator.name)
    assert not differ
    assert ran > 90


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_view_of_what_was_written_in_place_is_a_view_as_in_eager(backend, dynamic):
    def fn(x, rows, columns):
        made = x.t() * 2
        made.addmm_(rows, columns)
        return made.t().view(-1), made

    args = [torch.rand(n, m, requires_grad=True) for n, m in ((3, 4), (4, 5), (5, 3))]
    compiled = aotviz.compile(fn, backend=backend, dynamic=dynamic)
    found = []
    for call in (fn, compiled):
        flat, made = call(*args)
        found.append((flat.detach(), torch.autograd.grad(flat.sin().sum(), args)))
        assert made.stride() == (1, 4)
        assert flat.data_ptr() == made.data_ptr()
    torch.testing.assert_close(found[0], found[1])


RANDOM = {
    "bernoulli_": (0.3,),
    "cauchy_": (),
    "exponential_": (),
    "geometric_": (0.5,),
    "log_normal_": (),
    "normal_": (),
    "random_": (7,),
    "uniform_": (),
}


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("view", [torch.t, lambda x: x[:, ::2].t(), lambda x: x[:, :1].expand(4, 6).clone().t()])
def test_random_numbers_fill_a_tensor_in_the_order_of_its_memory(name, view):
    """torch's functionalization gives `bernoulli_` other numbers than eager's, and other strides."""

    def fn(x):
        made, through = view(x * 2), x * 2
        getattr(made, name)(*RANDOM[name])
        getattr(view(through), name)(*RANDOM[name])
        return made, through

    x, found = torch.rand(4, 6), []
    for call in (fn, torch.compile(fn, backend="aotviz_eager"), aotviz.aot_function(fn, lambda graph, _: graph)):
        torch.manual_seed(0)
        found.append(call(x))
    for results in found[1:]:
        assert all(map(torch.equal, results, found[0]))
        assert results[0].stride() == found[0][0].stride()
