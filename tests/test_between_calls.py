"""What happens to the inputs and the results of a call after it: writes, hooks, requests for gradients, aliases."""

from __future__ import annotations

import inspect

import pytest
import torch

import aotviz
from tests.doors import alone


def compiled(fn):
    return aotviz.compile(fn, backend="eager", record=False)


def grown(*shape):
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape).requires_grad_() * 1.5


def keeps_the_input(x):
    return x.sin()


def both_of_a_chain(x):
    y = x * 2
    return y, y * 3


def test_the_error_names_the_input_that_was_written_before_the_backward():
    x = grown(3)
    result = compiled(keeps_the_input)(x)
    x.mul_(2)
    with pytest.raises(aotviz.Refused, match="x was written after the call of keeps_the_input") as caught:
        result.sum().backward()
    assert caught.value.reason == "written before the backward"
    assert "modified by an inplace operation" in str(caught.value)


def test_the_error_names_the_result_that_was_written_before_the_backward():
    x = grown(3)
    result = alone(lambda x: x.exp())(x)
    result.mul_(2)
    with pytest.raises(aotviz.Refused, match=r"^output was written after"):
        result.sum().backward()


def test_the_error_names_the_input_where_gradients_have_a_history_or_only_some_come_in():
    x = grown(3)
    start = torch.autograd.graph.get_gradient_edge(x)
    result = compiled(lambda x: x.sin())(x)
    x.mul_(2)
    with pytest.raises(aotviz.Refused, match=r"^x was written after the call"):
        torch.autograd.grad(result.sum(), start, create_graph=True)
    x = grown(3)
    one, _other = compiled(lambda x: (x.sin(), x.cos()))(x)
    x.mul_(2)
    with pytest.raises(aotviz.Refused, match=r"^x was written after the call"):
        one.sum().backward()


def both_apart(x, z):
    return x.exp(), z.sin()


@pytest.mark.skipif(
    not hasattr(torch._C._autograd.SavedTensor, "unpack"), reason="this torch unpacks saved tensors all at once"
)
@pytest.mark.parametrize("written", ["result", "input"])
@pytest.mark.parametrize("create_graph", [False, True])
def test_what_was_written_stops_only_the_gradients_that_read_it(written, create_graph):
    def gradient(fn):
        leaf, other = torch.linspace(-1, 1, 3).requires_grad_(), torch.linspace(1, 2, 3).requires_grad_()
        z = other * 1.5
        first, second = fn(leaf, z)
        (first if written == "result" else z).detach().mul_(2)
        asked, spoiled = [(second, other), (first, leaf)][:: 1 if written == "result" else -1]
        (found,) = torch.autograd.grad(asked[0].sum(), asked[1], create_graph=create_graph, retain_graph=True)
        again = torch.autograd.grad(found.pow(2).sum(), asked[1], retain_graph=True) if create_graph else ()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(spoiled[0].sum(), spoiled[1], create_graph=create_graph)
        return found, *again

    torch.testing.assert_close(gradient(compiled(both_apart)), gradient(both_apart))


def scaled_by_its_data(x, _):
    view, data = x[:1], x.data
    x.mul_(data)
    return view, view


def scaled_by_data_that_was_written(x, data):
    data.sin_()
    return x, data * x


@pytest.mark.parametrize("fn", [scaled_by_its_data, scaled_by_data_that_was_written])
def test_a_write_after_the_call_that_autograd_could_not_count_is_refused(fn):
    def gradient(fn, write):
        x = grown(3)
        start = torch.autograd.graph.get_gradient_edge(x)
        alias, result = fn(x, x.data)
        if write:
            alias.mul_(2)
        return torch.autograd.grad(result.sum(), start)

    torch.testing.assert_close(gradient(compiled(fn), False), gradient(fn, False))
    with pytest.raises(aotviz.Refused, match=rf"^x was written after the call of {fn.__name__}"):
        gradient(compiled(fn), True)


def test_an_input_that_the_function_cloned_may_be_written_before_the_backward():
    def f(x):
        y = x.clone()
        return y.sin_()

    def gradient(fn):
        leaf = torch.linspace(-1, 1, 3).requires_grad_()
        x = leaf * 1.5
        result = fn(x)
        x.mul_(2)
        return torch.autograd.grad(result.sum(), leaf)

    torch.testing.assert_close(gradient(compiled(f)), gradient(f))


def test_a_freed_backward_is_still_torchs_own_error():
    result = compiled(keeps_the_input)(grown(3)).sum()
    result.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        result.backward()


def test_what_was_written_before_the_data_is_assigned_is_seen_by_an_alias_outside():
    def f(x):
        x.mul_(2)
        x.data = torch.zeros(3)
        x.add_(1)
        return x * 1

    def g(x):
        with torch.no_grad():
            x[1:].mul_(2)
            x.set_(x * 3)
            x.add_(1)

    for fn in (f, g):
        found = []
        for call in (fn, compiled(fn)):
            x = torch.ones(3)
            aliases = x.view(3), x.detach()
            result = call(x)
            found.append((x.tolist(), [a.tolist() for a in aliases], str(result), x._version, aliases[0]._version))
        assert found[0] == found[1]


def test_what_was_written_and_moved_before_the_data_is_assigned_is_refused():
    def f(x):
        x.mul_(2)
        x.t_()
        x.data = x * 2

    with pytest.raises(aotviz.Refused) as caught:
        alone(f)(torch.ones(2, 3))
    assert caught.value.reason == "old storage is written"


def test_a_hook_on_a_result_hears_what_comes_to_it_from_outside():
    found = []
    for call in (both_of_a_chain, compiled(both_of_a_chain)):
        x, heard = torch.ones(3, requires_grad=True), []
        y, _ = call(x)
        y.register_hook(lambda gradient, heard=heard: heard.append(gradient.tolist()) or gradient * 10)
        (y * 5).sum().backward()
        found.append((x.grad.tolist(), heard))
    assert found[0] == found[1]


def test_a_hook_on_a_result_that_was_written_since_belongs_to_its_new_history():
    found = []
    for call in (both_of_a_chain, compiled(both_of_a_chain)):
        x, heard = torch.ones(3, requires_grad=True), []
        y, z = call(x)
        y.mul_(2)
        y.register_hook(lambda gradient, heard=heard: heard.append(gradient.tolist()) or gradient * 10)
        (y.sum() + z.sum()).backward()
        found.append((x.grad.tolist(), heard))
    assert found[0] == found[1]


def written(x):
    x.mul_(2)
    return x * 3


def test_the_gradient_of_what_other_results_came_from_is_refused():
    x = grown(3)
    start = x.grad_fn.next_functions[0][0].variable
    result = compiled(written)(x)
    with pytest.raises(aotviz.Refused, match="asks for the gradient of x,") as caught:
        torch.autograd.grad(result.sum(), (x, start), allow_unused=True)
    assert caught.value.reason == "gradient of a result"
    x = grown(3)
    start = x.grad_fn.next_functions[0][0].variable
    y, z = compiled(both_of_a_chain)(x)
    edge = torch.autograd.graph.get_gradient_edge(y)
    with pytest.raises(aotviz.Refused, match=r"asks for the gradient of output\[0\],"):
        torch.autograd.grad(z.sum(), (edge, start), allow_unused=True)


def test_the_gradient_of_a_result_is_given_where_it_comes_from_outside():
    x = torch.ones(3, requires_grad=True)
    y, _ = compiled(both_of_a_chain)(x)
    of_y, of_x = torch.autograd.grad((y * 5).sum(), (y, x))
    assert (of_y.tolist(), of_x.tolist()) == ([5] * 3, [10] * 3)


def test_the_function_is_told_whether_two_arguments_are_one_tensor():
    fn = compiled(lambda x, y: x * 2 if x is y else x * 3)
    x, y = torch.ones(2), torch.ones(2)
    assert [fn(x, x).tolist(), fn(x, y).tolist(), fn(x, x).tolist()] == [[2, 2], [3, 3], [2, 2]]
    weights = torch.ones(2, requires_grad=True)
    fn(weights, weights).sum().backward()
    assert weights.grad.tolist() == [2, 2]


def test_an_input_that_is_given_its_own_view_as_storage_is_refused():
    x = torch.ones(4)
    with pytest.raises(aotviz.Refused) as caught:
        alone(lambda x: x.set_(x[1:]))(x)
    assert caught.value.reason == "alias is given another storage"
    assert x.shape == (4,)


def test_a_write_through_a_view_of_a_view_that_was_moved_is_refused():
    def f(x):
        whole = x * 1
        view = whole.view(2, 2)
        view.unsqueeze_(0)
        view[0].fill_(0.25)
        return whole * 1

    with pytest.raises(aotviz.Refused) as caught:
        alone(f)(grown(2, 2))
    assert caught.value.reason == "metadata op on a view"


def test_a_view_taken_after_a_write_knows_its_history():
    def f(x):
        y = x.view(torch.int32).view(torch.float32)
        y.mul_(x)
        view = y[...]
        y.t_()
        return view, y

    results = []
    for fn in (f, compiled(f)):
        x = torch.linspace(-1, 2, 4).reshape(2, 2).requires_grad_()
        view, _ = fn(x)
        view.mul_(2)  # autograd raised where the view had yet to ask
        view.sum().backward()
        results.append((view.detach(), x.grad))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("door", ["aot_function", "torch.compile"])
def test_what_the_function_cloned_may_be_written_before_the_backward(door):
    def f(x, weight):
        return x.clone() * weight

    def gradient(fn):
        weight = torch.ones(3).requires_grad_()
        x = torch.arange(3.0)
        out = fn(x.data, weight)
        x.mul_(2)  # no counter that `x.data` has tells of it
        return torch.autograd.grad(out.sum(), weight)

    torch._dynamo.reset()
    cut = {"partition_fn": "min_cut_rematerialization_partition"}
    compiled = torch.compile(f, backend="aotviz_eager")
    if door == "aot_function":
        compiled = aotviz.aot_function(f, lambda graph, _: graph, **cut)
    torch.testing.assert_close(gradient(compiled), gradient(f))


def test_a_later_write_is_refused_to_what_was_saved_by_its_data_and_written_by_the_call():
    def f(x):
        y = (
            x.data * x
        )  # saves `x.data`, whose counter is not x's, so in eager the backward reads what lies there by then
        x.sin_()
        return y

    def gradient(fn, later):
        leaf = torch.linspace(-1, 1, 3).requires_grad_()
        x = leaf * 1.5
        result = fn(x)
        if later:
            x.mul_(2)
        return torch.autograd.grad(result.sum(), leaf)

    torch.testing.assert_close(gradient(compiled(f), False), gradient(f, False))
    with pytest.raises(aotviz.Refused, match="x was written after the call of f"):
        gradient(compiled(f), True)


@pytest.mark.parametrize("door", ["aot_function", "torch.compile"])
def test_assigned_data_leave_a_views_gradient_where_it_was(door):
    def f(x, y):
        with torch.no_grad():
            y.squeeze_()  # changes nothing, and counts for all views of that tensor
        x.data = x * 2
        return x

    def gradient(fn):
        leaf = torch.linspace(-1, 1, 6).requires_grad_()
        x, y = leaf[4:5], leaf[3:4]
        result = fn(x, y)
        return torch.autograd.grad((result * result).sum(), leaf), x._version

    torch._dynamo.reset()
    run = aotviz.aot_function(f, lambda graph, _: graph)
    run = torch.compile(f, backend="aotviz_eager") if door == "torch.compile" else run
    torch.testing.assert_close(gradient(run), gradient(f))


@pytest.mark.parametrize("which", ["x", "data"])
@pytest.mark.parametrize("door", ["aot_function", "torch.compile"])
def test_a_later_write_is_refused_to_what_was_saved_by_its_data_if_both_are_passed(door, which):
    def f(x, data):
        y = data * x
        x.sin_()
        return y

    def gradient(fn, later):
        leaf = torch.linspace(-1, 1, 3).requires_grad_()
        x = leaf * 1.5
        data = x.data
        result = fn(x, data)
        if later:
            {"x": x, "data": data}[which].detach().mul_(2)
        return torch.autograd.grad(result.sum(), leaf)

    torch._dynamo.reset()
    run = compiled(f) if door == "aot_function" else torch.compile(f, backend="aotviz_eager")
    torch.testing.assert_close(gradient(run, False), gradient(f, False))
    with pytest.raises(aotviz.Refused, match=f"^{which} was written after the call of f"):
        gradient(run, True)


def returns_its_input(x, other):
    return ((x * 2).sin() + other).exp(), x


def returns_a_view_of_its_input(x, other):
    return (x * 2).sin(), x[:2], other


def returns_what_overlaps(x, other):
    return (other * 2).sin(), x.detach()


@pytest.mark.parametrize("fn", [returns_its_input, returns_a_view_of_its_input, returns_what_overlaps])
@pytest.mark.parametrize("door", ["aot_function", "torch.compile"])
def test_an_input_that_the_function_returns_may_be_written_before_a_backward_that_eager_does_not_compute_from_it(
    fn, door
):
    """The partitioner would save the input, and recompute from it what eager saves."""

    def gradient(fn):
        leaf = torch.linspace(-1, 1, 6).requires_grad_()
        base = leaf * 1.5
        result, returned, *_ = fn(base[:4], base[2:])
        returned.detach().mul_(2)
        return torch.autograd.grad(result.sum(), leaf)

    torch._dynamo.reset()
    found = alone(fn) if door == "aot_function" else torch.compile(fn, backend="aotviz_eager")
    torch.testing.assert_close(gradient(found), gradient(fn))


def by_a_method(x):
    x.add_(1.5)


def by_an_operator(x):
    x += 1.5


def by_an_index(x):
    x[0] = 1.5


@pytest.mark.parametrize("write", [by_a_method, by_an_operator, by_an_index])
def test_what_the_code_after_a_graph_break_writes_does_not_spoil_a_backward(write):
    lines = inspect.getsource(write).partition("\n")[2]
    source = "def fn(x):\n    result, twice = (x * 2).sin(), x * 3\n    more = (twice + 1).cos()\n    pause()\n"
    source += f"{lines}    with torch.no_grad():\n        twice.mul_(2)\n    return result, more"
    names = {"torch": torch, "pause": torch._dynamo.graph_break}
    exec(source, names)

    def gradient(fn):
        leaf = torch.linspace(-1, 1, 6).requires_grad_()
        result, more = fn(leaf * 1.5)
        return torch.autograd.grad(result.sum() + more.sum(), leaf)

    torch._dynamo.reset()
    torch.testing.assert_close(gradient(torch.compile(names["fn"], backend="aotviz_eager")), gradient(names["fn"]))


def test_an_input_that_the_function_does_not_return_is_saved_where_that_costs_no_memory():
    traced = alone(lambda x: (x * 2).sin())
    traced(grown(3))
    assert [str(one) for one in traced.recording[0].saved_tensors.name] == ["primals_1"]


def returns_what_it_was_computed_from(x):
    y = x * 0.5
    return y, (y * 2).sin()


@pytest.mark.parametrize("door", ["aot_function", "torch.compile"])
def test_a_result_may_be_written_before_a_backward_that_eager_does_not_compute_from_it(door):
    """Operator by operator, recomputing from a result saves no time. In machine code it does, and the write raises."""

    def gradient(fn):
        leaf = torch.linspace(-1, 1, 6).requires_grad_()
        half, result = fn(leaf)
        half.detach().mul_(2)
        return torch.autograd.grad(result.sum(), leaf)

    torch._dynamo.reset()
    fn = returns_what_it_was_computed_from
    found = alone(fn) if door == "aot_function" else torch.compile(fn, backend="aotviz_eager")
    torch.testing.assert_close(gradient(found), gradient(fn))


def test_in_machine_code_such_a_write_is_refused(clean_dynamo):
    found = torch.compile(returns_what_it_was_computed_from, backend="aotviz")
    half, result = found(torch.linspace(-1, 1, 6).requires_grad_())
    half.detach().mul_(2)
    with pytest.raises(aotviz.Refused) as caught:
        result.sum().backward()
    assert caught.value.reason == "written before the backward"


def test_an_input_may_be_written_before_a_second_derivative_that_eager_does_not_compute_from_it(clean_dynamo):
    def gradient(fn):
        leaf = torch.linspace(-1, 1, 6).requires_grad_()
        x = leaf * 1.5
        (found,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        x.detach().mul_(2)
        return torch.autograd.grad(found.sum(), leaf)

    fn = lambda x: (x * 2).sin()  # noqa: E731
    torch.testing.assert_close(gradient(torch.compile(fn, backend="aotviz_eager")), gradient(fn))


def test_a_write_that_is_not_counted_reaches_a_backward_as_in_eager(clean_dynamo):
    """Of what was computed from the input before, the backward reads the old value."""

    def fn(x):
        y = x * torch.full_like(x, 3.0).cos()
        y.mul_(x)
        torch._dynamo.graph_break()
        x.data.mul_(0.5)
        return y

    def gradient(fn):
        leaf = torch.linspace(-1, 1, 6).requires_grad_()
        return torch.autograd.grad(fn(leaf * 1.5).sum(), leaf)

    torch.testing.assert_close(gradient(torch.compile(fn, backend="aotviz_eager")), gradient(fn))
