"""Modes that a call runs in or changes: autocast, grad mode, inference mode, defaults, deterministic algorithms."""

from __future__ import annotations

import contextlib
import warnings

import pytest
import torch
from torch._functorch import config as functorch_config
from torch.testing._internal.two_tensor import TwoTensor

import aotviz
from aotviz.lowerings import run_graph


def autocast(enabled: bool = True):
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled)


def plain(x, w):
    return (x @ w).sin()


def casts_inside(x, w):
    with autocast():
        y = x @ w
    return y.float() * 2, y


def casts_off_inside(x, w):
    with autocast(enabled=False):
        y = x @ w
    return y + (x @ w).float()


def partly_without_gradients(x, w):
    y = x @ w
    with torch.no_grad():
        z = (y * 2).sin()
    return y * z


def gradients_on_inside(x, w):
    with torch.enable_grad():
        return (x * w).sum()


def leaves_gradients_off(x, w):
    torch.set_grad_enabled(False)
    return x @ w


FUNCTIONS = [plain, casts_inside, casts_off_inside, partly_without_gradients, gradients_on_inside, leaves_gradients_off]
MODES = {
    "none": contextlib.nullcontext,
    "autocast": autocast,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}


def run(fn, mode):
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.rand(4, 4, generator=generator).requires_grad_() for _ in range(2))
    try:
        with MODES[mode]():
            result = fn(x, w)
            left = torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)
    outputs = result if isinstance(result, tuple) else (result,)
    differentiable = [value for value in outputs if value.requires_grad]
    if differentiable:
        sum(value.float().sum() for value in differentiable).backward()
    facts = [(value.dtype, value.requires_grad, value.is_inference()) for value in outputs]
    return facts, left, [value.detach() for value in outputs], x.grad, w.grad


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_one_compiled_function_gives_in_every_mode_what_eager_gives(fn):
    compiled = aotviz.compile(fn, backend="eager", debug=True)
    for mode in (*MODES, *MODES):
        expected, got = run(fn, mode), run(compiled, mode)
        assert got[:2] == expected[:2], mode
        for mine, eagers in zip((*got[2], *got[3:]), (*expected[2], *expected[3:]), strict=True):
            assert (mine is None) == (eagers is None), mode
            assert mine is None or torch.equal(mine, eagers), mode


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_a_backward_gives_eagers_gradients_wherever_autocast_is_when_it_is_called(where):
    gradients = []
    for fn in (plain, aotviz.compile(plain, backend="eager")):
        generator = torch.Generator().manual_seed(0)
        x, w = (torch.rand(4, 4, generator=generator).requires_grad_() for _ in range(2))
        with autocast():
            loss = fn(x, w).float().sum()
        with autocast(enabled=where == "inside"):
            loss.backward()
        gradients.append((x.grad, w.grad))
    for mine, eagers in zip(*gradients, strict=True):
        assert torch.equal(mine, eagers)


@pytest.fixture
def deterministic():
    yield torch.use_deterministic_algorithms
    torch.use_deterministic_algorithms(False)


def test_deterministic_algorithms_ask_for_a_program_of_their_own(deterministic):
    compiled = aotviz.compile(plain, backend="eager")
    x = torch.rand(2, 2)
    compiled(x, x)
    deterministic(True)
    compiled(x, x)
    assert len(compiled.recording) == 2


def test_a_backward_compiled_for_any_algorithm_is_refused_where_they_must_be_deterministic(deterministic):
    x = torch.rand(2, 2, requires_grad=True)
    loss = aotviz.compile(plain, backend=lambda module, inputs: module)(x, torch.ones(2, 2)).sum()
    deterministic(True)
    with pytest.raises(RuntimeError, match=r"plain \[.*\] was compiled while torch\.use_deterministic_alg"):
        loss.backward()


def test_a_users_decomposition_takes_the_place_of_an_operator_in_forward_and_backward():
    def tanh(x):
        return 2 * torch.sigmoid(2 * x) - 1

    table = {torch.ops.aten.tanh.default: tanh}
    compiled = aotviz.compile(lambda x: x.tanh().sum(), backend="eager", decompositions=table)
    x, y = (torch.linspace(-1, 1, 5).requires_grad_() for _ in range(2))
    compiled(x).backward()
    y.tanh().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    targets = [str(node.target) for node in compiled.program.lowered.call.graph_module.graph.nodes]
    assert "aten.sigmoid.default" in targets
    assert "aten.tanh.default" not in targets


def test_a_call_under_detect_anomaly_is_compiled():
    compiled = aotviz.compile(lambda x: (x * x).sin(), backend="eager")
    x = torch.ones(3, requires_grad=True)
    with torch.autograd.detect_anomaly():
        compiled(x).sum().backward()
        assert torch.is_anomaly_check_nan_enabled()
    torch.testing.assert_close(x.grad, 2 * torch.ones(3).cos())


def modes():
    autocasts = [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")]
    defaults = torch.get_default_dtype(), torch.get_default_device(), torch.are_deterministic_algorithms_enabled()
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.autograd.is_multithreading_enabled(),
        autocasts,
        defaults,
        torch.get_rng_state().tolist(),
    )


BLOCKS = {
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "autocast": autocast,
}
OUTER = {"plain": contextlib.nullcontext, "no_grad": torch.no_grad, "autocast": autocast}


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("does", ["is refused", "raises", "is refused and raises", "breaks", "breaks and is refused"])
def test_what_runs_in_eager_leaves_every_mode_as_eager_leaves_it(does, block, outer):
    """A sparse tensor is refused in the middle of the block."""

    def function(x, where):
        t, written, viewed = torch.rand(3, 4) * x, x.cos(), x.sin()
        with BLOCKS[block]():
            if "breaks" in does:
                torch._dynamo.graph_break()
            t = t + x.index_select(0, where)
            if "refused" in does:
                written.detach().zero_()
                viewed.to_sparse()
            t = t + x.index_select(0, where)
        return t

    def left_by(fn, where):
        with OUTER[outer]():
            torch.manual_seed(0)
            try:
                result = fn(torch.ones(3, 4, requires_grad=True) * 2, where)
            except (IndexError, RuntimeError) as error:
                return type(error), str(error), modes()
            return result.dtype, result.requires_grad, result.is_inference(), modes()

    compiled = torch.compile(function, backend="aotviz_eager")
    for place in (1, 99 if "raises" in does else 2, 1):
        where = torch.tensor([place, 0, 1])
        assert left_by(compiled, where) == left_by(function, where)
    assert modes()[:2] == (True, False)


@pytest.fixture
def default_dtype():
    yield torch.set_default_dtype
    torch.set_default_dtype(torch.float32)


def test_a_call_that_changes_a_default_runs_in_eager_every_time(default_dtype, deterministic):
    def function(x):
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True)
        return x * torch.ones(2)

    compiled = torch.compile(function, backend="aotviz_eager")
    for _ in range(2):
        default_dtype(torch.float32)
        deterministic(False)
        assert compiled(torch.ones(2)).dtype is torch.float64
        assert torch.get_default_dtype() is torch.float64
        assert torch.are_deterministic_algorithms_enabled()


def writes_with_gradients(x, w):
    w.mul_(0.5)
    with torch.enable_grad():
        x.sin_()


def writes_a_view_with_gradients(x, w):
    with torch.enable_grad():
        x[0].sin_()
    return w * 2


@pytest.mark.parametrize("function", [writes_with_gradients, writes_a_view_with_gradients])
@pytest.mark.parametrize("mode", MODES)
def test_a_write_where_the_function_turns_grad_mode_on_is_differentiated_as_in_eager(mode, function):
    found = []
    for fn in (function, aotviz.compile(function, backend="eager"), aotviz.aot_function(function, graph, graph)):
        leaf, w = torch.linspace(0.1, 1, 4).requires_grad_(), torch.ones(3)
        x = leaf * 1.5
        with MODES[mode]():
            fn(x, w)
        (gradient,) = torch.autograd.grad(x.sum(), leaf)
        found.append((gradient.tolist(), w.tolist(), x._version, type(x.grad_fn).__name__ == "MulBackward0"))
    assert found[1:] == found[:1] * 2


def graph(module, _inputs):
    return module


@pytest.mark.parametrize("view", [lambda t: t[...], lambda t: t.view(-1), lambda t: t.detach()])
def test_a_view_of_what_inference_mode_made_is_what_eager_returns(view):
    def function(x):
        with torch.inference_mode():
            y = x * x
        return view(y)

    for fn in (function, torch.compile(function, backend="aotviz_eager")):
        assert fn(torch.ones(2)).is_inference()


def of_detached_data(x):
    with torch.inference_mode():
        y = x.data
    part = y.chunk(2)[0]
    y.mul_(0.5)
    return part, x * 2


def of_a_view(x):
    with torch.inference_mode():
        y = x.view(-1)
    return x.view(-1) * y


@pytest.mark.parametrize("function", [of_detached_data, of_a_view])
def test_an_alias_made_under_inference_mode_is_used_as_in_eager(function):
    found = []
    for fn in (function, torch.compile(function, backend="aotviz_eager")):
        x = torch.linspace(0, 1, 4).reshape(4).requires_grad_(function is of_a_view)
        result = fn(x * 1)
        results = result if isinstance(result, tuple) else (result,)
        found.append([(one.tolist(), one.requires_grad, one.is_inference()) for one in results])
    assert found[0] == found[1]


def inside(x):
    with torch.inference_mode():
        y = x.sin()
    return y, x * 2


def views_of_one(x):
    with torch.inference_mode():
        y = x.sin()
        z = y[1:]
    return z, y.t(), y[0], x.cos()


def written_inside(x):
    with torch.inference_mode():
        y = x.sin()
        y.mul_(2)
        again = y.add_(1)
    return y, again, y.view(-1), y.clone(), x.cos()


def view_of_an_input(x):
    with torch.inference_mode():
        z = x[1:]
    return z, x.cos()


def view_of_a_result(x):
    y = x * 2
    with torch.inference_mode():
        z = y.t()
    return z, y


def equal_ones(x):
    with torch.inference_mode():
        a, b = x.sin(), x.sin()
        same = a.detach()
    return a, b, same, b.double(), x * 2


def conjugated(x):
    with torch.inference_mode():
        y = torch.complex(x, x).conj()
    return y, y.imag, x * 2


def writes_the_input(x):
    y = x * 1
    with torch.inference_mode():
        y.mul_(2)
        z = y.detach()
    return z, y, x.sin()


def goes_on_from_one(x):
    with torch.inference_mode():
        y = x.sin()
    return y.exp(), y + x, y.view(-1).cos()


def needed_for_a_gradient(x):
    with torch.inference_mode():
        y = x.sin()
    return y * x


def writes_one_later(x):
    with torch.inference_mode():
        y = x.sin()
    return y.mul_(2)


PARTS = [inside, views_of_one, written_inside, view_of_an_input, view_of_a_result, equal_ones, conjugated]
PARTS += [writes_the_input, goes_on_from_one, needed_for_a_gradient, writes_one_later]
DOORS = {
    "aot_function": lambda fn: aotviz.aot_function(fn, graph, graph),
    "torch.compile": lambda fn: torch.compile(fn, backend="aotviz_eager"),
}


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("function", PARTS)
def test_what_a_function_makes_in_inference_mode_is_what_eager_makes(function, door, trains):
    def facts(fn):
        x = torch.linspace(0.1, 1, 9).view(3, 3).requires_grad_(trains)
        try:
            results = fn(x)
        except RuntimeError as error:
            return str(error.__cause__ or error).splitlines()[0]
        found = []
        for one in results:
            sharing = [one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() for other in results]
            same = [one is other for other in results]
            place = one.stride(), one.storage_offset(), one.is_conj(), one.is_neg()
            is_view = not one.is_inference() and one._is_view()
            found.append((one.tolist(), one.is_inference(), one.requires_grad, is_view, *place, sharing, same))
        if trains:
            sum(one.sum() for one in results if one.requires_grad).abs().backward()
        return found, None if x.grad is None else x.grad.tolist()

    with warnings.catch_warnings():
        if function not in (needed_for_a_gradient, writes_one_later):  # these raise
            warnings.simplefilter("error", aotviz.RanInEager)
        assert facts(DOORS[door](function)) == facts(function)


@pytest.mark.parametrize("budget", [0.0, 1.0])
@pytest.mark.parametrize("door", DOORS)
def test_an_inference_tensor_is_an_argument_of_what_is_differentiated(door, budget, monkeypatch):
    def function(v, x):
        with torch.no_grad():
            scale = v.view(-1).exp() + 1
        return x * scale.sin()

    monkeypatch.setattr(functorch_config, "activation_memory_budget", budget)
    found = []
    for fn in (function, DOORS[door](function)):
        with torch.inference_mode():
            v = torch.linspace(0, 1, 3)
        x = torch.ones(3, requires_grad=True)
        y = fn(v, x)
        with torch.inference_mode():
            v.zero_()  # no version counter tells of this write
        y.sum().backward()
        found.append((y.tolist(), x.grad.tolist()))
    assert found[0] == found[1]


def writes_an_alias(v):
    v.detach().mul_(2)


def writes_under_no_grad(v):
    with torch.no_grad():
        v.detach().view(-1)[0] = 3


def writes_in_inference_mode(v):
    with torch.inference_mode():
        v.mul_(2)
        v.t_()


def writes_itself(v):
    v.mul_(2)


def writes_a_part(v):
    v[1:].add_(1)


WRITES = [writes_an_alias, writes_under_no_grad, writes_in_inference_mode, writes_itself, writes_a_part]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("write", WRITES)
def test_an_inference_tensor_that_is_an_argument_is_written(write, door):
    def function(v, x):
        write(v)
        return x * 2

    found = []
    for fn in (function, DOORS[door](function)):
        with torch.inference_mode():
            v = torch.linspace(0, 1, 6).view(2, 3)
        try:
            fn(v, torch.ones(2, requires_grad=True)).sum().backward()
        except RuntimeError as error:
            found.append("Inplace update" in str(error) or "Eager raises there too" in str(error))
        else:
            found.append((v.tolist(), v.stride(), v.is_inference()))
    assert found[0] == found[1]


VIEWS = {
    "view": lambda t: t.view(-1),
    "view_as": lambda t: t.view_as(t),
    "flatten": lambda t: t.flatten(),
    "a copy by flatten": lambda t: t.t().flatten(),
    "reshape": lambda t: t.reshape(-1),
    "contiguous": lambda t: t.contiguous(),
    "expand_as": lambda t: t.expand_as(t),
    "to": lambda t: t.to(torch.float32),
    "chunk": lambda t: t.chunk(2)[0],
    "unbind": lambda t: t.unbind()[0],
    "split": lambda t: t.split(1)[0],
    "T": lambda t: t.T,
    "movedim": lambda t: t.movedim(0, 1),
    "unflatten": lambda t: t.unflatten(1, (1, 3)),
    "narrow": lambda t: t.narrow(0, 0, 2),
    "index": lambda t: t[0],
    "detach": lambda t: t.detach(),
    "another dtype": lambda t: t.view(torch.int32),
}


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_that_is_taken_in_inference_mode_is_eagers(view, door, trains):
    def function(x):
        y = x * 2
        with torch.inference_mode():
            taken = VIEWS[view](y)
        return taken, y

    def writes(x):
        y = x * 2
        with torch.inference_mode():
            taken = VIEWS[view](y)
            taken.add_(1)
        return y

    found = []
    for through in (lambda fn: fn, DOORS[door]):
        x = torch.linspace(0.1, 1, 9).view(3, 3).requires_grad_(trains)
        taken, y = through(function)(x)
        facts = [taken.tolist(), taken.is_inference(), taken.requires_grad, taken.data_ptr() == y.data_ptr()]
        if not taken.is_inference():
            facts.append(taken._base is y or (taken._base is not None and taken._base is y._base) or taken is y)
        written = through(writes)(x)
        found.append((*facts, written.nan_to_num().tolist(), written._version, written.requires_grad))
    assert found[0] == found[1]


@pytest.mark.parametrize("write", [lambda x: x.data.mul_(2), lambda x: x.mul_(2)], ids=["through data", "in place"])
def test_what_is_written_in_inference_mode_beside_a_subclass_needs_no_gradient(write):
    def written(through):
        x = torch.ones(4, 2).requires_grad_().narrow(1, 0, 1)
        part = TwoTensor(torch.ones(2), torch.ones(2)).requires_grad_()
        with torch.inference_mode():
            through(lambda x, part: write(x))(x, part)
        return x.tolist()

    assert written(lambda fn: aotviz.aot_function(fn, run_graph)) == written(lambda fn: fn)


def writes_a_cache(cache, k, position):
    cache[position] = k
    return cache.sum(0), cache.t()


@pytest.mark.parametrize("backend", ["aotviz_eager", "aotviz"])
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_an_inference_tensor_is_written_in_inference_mode_and_elsewhere_eagers_error_is_raised(
    backend, mode, clean_dynamo
):
    compiled = torch.compile(writes_a_cache, backend=backend)

    def called(fn):
        with torch.inference_mode():
            cache, k = torch.zeros(4, 3), torch.ones(3)
        found = []
        for position in range(2):
            try:
                with mode():
                    found += [one.tolist() for one in fn(cache, k, torch.tensor([position]))]
            except RuntimeError as error:
                found.append(str(error).partition(" is not allowed")[0])
        return found if mode is torch.no_grad else [*found, cache.tolist()]  # eager raises after it has written

    with warnings.catch_warnings():
        warnings.simplefilter("error", aotviz.RanInEager)
        assert called(compiled) == called(writes_a_cache)


def test_a_program_compiled_in_inference_mode_refuses_its_write_outside_of_it(clean_dynamo):
    with torch.inference_mode():
        cache, k, position = torch.zeros(4, 3), torch.ones(3), torch.tensor([1])
    compiled = torch.compile(writes_a_cache, backend="aotviz_eager")
    with torch.inference_mode():
        compiled(cache, k, position)
    before = cache.tolist()
    with torch.no_grad(), pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
        compiled(cache, k, position)
    assert cache.tolist() == before
