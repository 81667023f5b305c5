"""DTensors inside of a function that takes and returns plain tensors: what the random programs with DTensors found."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch._functorch import config
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import aotviz
import aotviz.frontends.backend  # the backends have names from here on
from aotviz.lowerings import run_graph
from aotviz.runtime.call_differs import CallDiffers
from aotviz.torch_private import versions
from tests.one_rank import leaf
from tests.one_rank import mesh as mesh
from tests.oracle import strategy

BACKENDS = ["aotviz_eager", "aotviz"]
pytestmark = pytest.mark.xdist_group("ranks")


@pytest.mark.every(4)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("budget", [0.0, 0.5])
def test_a_mesh_takes_nothing_of_a_memory_budget(mesh, backend, budget):
    """torch's partitioner does not know its size, and its own backends raise."""

    def f(x):
        return DTensor.from_local(x * 2, mesh, [Replicate()]).sin().exp().cos().to_local()

    def ran(fn):
        x = leaf(3)
        fn(x).sum().backward()
        return x.grad

    with config.patch(activation_memory_budget=budget):
        torch.testing.assert_close(ran(torch.compile(f, backend=backend)), ran(f))


@pytest.mark.skipif(not versions.has("a DTensor is detached in place"), reason="DTensor cannot detach in place")
@pytest.mark.parametrize("compiled", [torch.compile, aotviz.aot_function], ids=["torch.compile", "aot_function"])
def test_in_inference_mode_a_write_before_from_local_is_counted_once(mesh, compiled):
    """`from_local` detaches its argument in place there, which no version counter counts."""

    def f(x):
        x.sub_(1)
        return DTensor.from_local(x, mesh, [Replicate()]).to_local()

    fn = compiled(f, backend="aotviz_eager") if compiled is torch.compile else compiled(f, run_graph)
    x, y = leaf(3) * 1, leaf(3) * 1
    with torch.inference_mode():
        assert torch.equal(fn(x), f(y))
    assert torch.equal(x, y)
    assert x._version == y._version == 1


@pytest.mark.parametrize("placement", [Shard(0), Replicate()], ids=str)
def test_what_distribute_tensor_gives_is_waited_for(mesh, placement):
    """The collective that it calls writes to its argument only when Python waits for it."""

    def f(x):
        return distribute_tensor(x.detach(), mesh, [placement]).to_local(), x.sin()

    x = leaf(6)
    assert torch.equal(aotviz.aot_function(f, run_graph)(x)[0], x)
    assert torch.equal(torch.compile(f, backend="aotviz_eager")(x)[0], x)


@pytest.mark.parametrize("compiled", [torch.compile, aotviz.aot_function], ids=["torch.compile", "aot_function"])
@pytest.mark.parametrize("take", [lambda d: d.view(-1), lambda d: d[:1], lambda d: d.t()], ids=["view", "slice", "t"])
@pytest.mark.parametrize("given", [True, False], ids=["a DTensor", "from_local"])
@pytest.mark.parametrize("grad", [False, True])
def test_a_view_that_a_dtensor_takes_of_its_part_is_none_to_autograd(mesh, compiled, take, given, grad):
    """DTensor takes it below autograd: it has no base, and a version counter of its own."""

    def f(x):
        d = x if given else DTensor.from_local(x, mesh, [Replicate()])
        return take(d).to_local()

    def ran(fn):
        x = torch.arange(6.0).reshape(2, 3).requires_grad_(grad)
        made = fn(DTensor.from_local(x, mesh, [Replicate()]) if given else x)
        with torch.no_grad():
            x.add_(1)
            made.detach().mul_(2)
        return made.tolist(), made._version, x._version, made._base is x, made._base is not None

    torch._dynamo.reset()  # eight programs of one code are compiled, and the next runs in eager
    backend = run_graph if compiled is aotviz.aot_function else "aotviz_eager"
    found = ran(compiled(f, backend) if compiled is aotviz.aot_function else compiled(f, backend=backend))
    assert found == ran(f)
    assert not found[3]


def test_a_gradient_of_a_dtensor_may_have_other_strides_in_dimensions_of_size_one(mesh):
    """As the gradient of a `redistribute` behind a graph break has them. No copy has the result's."""

    def f(x):
        d = DTensor.from_local(x.t().split(1)[1] * 2.0, mesh, [Shard(0)])
        torch._dynamo.graph_break()
        return d.redistribute(mesh, [Replicate()]).full_tensor()

    def ran(fn):
        x = leaf(2, 3)
        fn(x).sum().backward()
        return x.grad

    assert torch.equal(ran(torch.compile(f, backend="aotviz_eager")), ran(f))


def test_the_parts_of_a_dtensor_may_be_views_that_autograd_no_longer_accepts(mesh):
    """In eager, autograd does not see them."""

    def f(x, y):
        x.add_(1.0)
        d = DTensor.from_local(y.detach(), mesh, [Shard(0)])
        torch._dynamo.graph_break()
        return d.sum(0).to_local()

    def ran(fn):
        whole = leaf(1, 4) * 1.5
        return fn(whole[0:], whole.diagonal())

    torch.testing.assert_close(ran(torch.compile(f, backend="aotviz_eager")), ran(f))


def test_what_a_dtensor_writes_is_seen_through_the_result(mesh):
    def f(x):
        d = DTensor.from_local(x, mesh, [Replicate()])
        d.mul_(0.5)
        return d.to_local()

    def ran(fn):
        x = leaf(4) * 1.5
        result = fn(x)
        with torch.no_grad():
            x.detach().add_(1)
        return result.tolist()

    assert ran(torch.compile(f, backend="aotviz_eager")) == ran(f)
    assert ran(aotviz.aot_function(f, run_graph)) == ran(f)


def test_a_part_of_a_result_over_overlapping_inputs_has_eagers_base(mesh):
    def f(x, y):
        z = y * 2
        d = DTensor.from_local(x, mesh, [Replicate()])
        d.add_(1.0)
        return d, z

    def part(fn):
        base = leaf(1, 4)
        with torch.inference_mode():
            made = fn(base.transpose(0, 1), base.split(1, 0)[0])[0]._local_tensor
        return made.is_inference(), made._is_view(), made.data_ptr() == base.data_ptr()

    assert part(torch.compile(f, backend="aotviz_eager")) == part(f) == (False, True, True)


def test_a_write_that_eager_checks_is_still_refused(mesh):
    def f(x):
        return x * x

    d = distribute_tensor(leaf(4), mesh, [Replicate()]) * 1.5
    result = torch.compile(f, backend="aotviz_eager")(d)
    with torch.no_grad():
        d.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


@pytest.mark.parametrize("breaks", [False, True])
def test_what_distribute_tensor_writes_after_a_graph_break_is_what_the_backward_reads(mesh, breaks):
    def f(x):
        x.sigmoid_()
        if breaks:
            torch._dynamo.graph_break()
        distribute_tensor(x.detach(), mesh, [Replicate()]).add_(1.0)
        return x * 1.0

    def gradient(fn):
        x = leaf(4)
        fn(x * 1.5).sum().backward()
        return x.grad.tolist()

    assert gradient(torch.compile(f, backend="aotviz_eager")) == gradient(f)


def number():
    return 3.0 if torch.compiler.is_compiling() else 2.0


def calls(mesh):
    offsets = torch.tensor([0, 2, 6])
    d = distribute_tensor(torch.ones(4, 6), mesh, [Shard(0)])
    yield lambda d, by: d * by(), d
    yield lambda d, by: (d.sin() * by()).sum(), d.clone().requires_grad_()
    yield lambda x, by: DTensor.from_local(x * by(), mesh, [Replicate()]).sin(), leaf(4, 6)
    yield lambda v, by: torch.nested.nested_tensor_from_jagged(v * by(), offsets).sin(), leaf(6, 2)


@pytest.mark.every(4)
@pytest.mark.parametrize("which", range(4))
def test_verify_compares_dtensors_and_jagged_tensors(mesh, which):
    function, argument = list(calls(mesh))[which]
    assert str(aotviz.verify(lambda x: function(x, lambda: 2.0), argument)).splitlines()[0].endswith(": right")
    assert str(aotviz.verify(lambda x: function(x, number), argument)).splitlines()[0].endswith(": wrong")


def test_random_programs_have_dtensors_as_arguments_and_between_statements():
    texts = [strategy.from_seed(990, k, modes=True).draft.source() for k in range(60)]
    bodies = [text.partition("def f(")[2] for text in texts]
    assert sum("mesh" in body for body in bodies) > 5
    assert any("placed = distribute_tensor" in text for text in texts)
    assert any("graph_break()" in body.partition("= DTensor.from_local")[2] for body in bodies)


@pytest.mark.parametrize("compiled", [torch.compile, aotviz.aot_function], ids=["torch.compile", "aot_function"])
def test_a_result_of_to_local_is_returned_beside_a_view_of_it(mesh, compiled):
    """The wrapper made each from the other, without end."""

    def f(x):
        local = DTensor.from_local(x, mesh, [Shard(0)]).to_local()
        return local.unsqueeze(1), local

    def ran(fn):
        x = leaf(4)[:3]
        view, local = fn(x)
        (view.sin().sum() + local.sum()).backward()
        return local.data_ptr() == view.data_ptr(), local.data_ptr() == x.data_ptr(), view.tolist(), local.tolist()

    given = {"backend": "aotviz_eager"} if compiled is torch.compile else {"fw_compiler": run_graph}
    assert ran(compiled(f, **given)) == ran(f)


COMPILED = [torch.compile, aotviz.aot_function]


def by(compiled, fn):
    return compiled(fn, **({"backend": "aotviz_eager"} if compiled is torch.compile else {"fw_compiler": run_graph}))


def whole_then_part(d):
    d.mul_(0.5)
    with torch.no_grad():
        d.to_local().zero_()


def part_then_whole(d):
    with torch.no_grad():
        d.to_local().add_(1)
    d.mul_(0.5)


def part_twice(d):
    with torch.no_grad():
        d.to_local().zero_().add_(1)


def whole_alone(d):
    d.mul_(0.5)


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("writes", [whole_then_part, part_then_whole, part_twice, whole_alone])
@pytest.mark.parametrize("grad", [False, True])
def test_a_write_to_a_part_bumps_the_version_of_the_part(mesh, compiled, writes, grad):
    """A write to the whole DTensor bumps only the whole; one to what `to_local` gave bumps its part."""

    def ran(fn):
        d = distribute_tensor(torch.linspace(-1, 1, 6), mesh, [Shard(0)])
        d = d.requires_grad_() * 1.5 if grad else d
        before = d._version, d._local_tensor._version
        fn(d)
        return d._version - before[0], d._local_tensor._version - before[1], d._local_tensor.tolist()

    assert ran(by(compiled, writes)) == ran(writes)


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_part_that_the_function_got_is_reshaped_in_place(mesh, compiled):
    """Under no_grad, `to_local` gives the part itself."""

    def f(d):
        with torch.no_grad():
            local = d.to_local()
        local.t_()
        return local * 2

    def ran(fn):
        d = distribute_tensor(torch.linspace(-1, 1, 6).reshape(2, 3), mesh, [Shard(0)])
        result = fn(d)
        return d.shape, d._local_tensor.tolist(), d._local_tensor.stride(), result.tolist()

    assert ran(by(compiled, f)) == ran(f)


def test_a_part_that_is_reshaped_and_written_is_refused_by_name(mesh):
    def f(d):
        with torch.no_grad():
            local = d.to_local()
        local.t_()
        local.mul_(2)

    d = distribute_tensor(torch.linspace(-1, 1, 6).reshape(2, 3), mesh, [Shard(0)])
    with pytest.raises(aotviz.Refused, match=r"d\._local_tensor: a metadata op \(t_\)"):
        aotviz.aot_function(f, run_graph)(d)


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("grad", [False, True])
def test_a_dtensor_over_a_view_of_a_written_input_lies_where_eagers_does(mesh, compiled, grad):
    """The input begins behind the beginning of its storage: the view was taken from elsewhere, with other values."""

    def f(x):
        view = x[1:]
        view.add_(1)
        return view, DTensor.from_local(view, mesh, [Replicate()])

    def ran(fn):
        whole = torch.arange(6.0)
        whole = whole.requires_grad_() * 1 if grad else whole
        view, d = fn(whole.as_strided((2,), (2,), 1))
        local = d.to_local()
        shared = view.data_ptr() == local.data_ptr() == whole[3:].data_ptr()
        return shared, d._local_tensor._base is whole, view.tolist(), local.tolist(), whole.tolist()

    if (
        grad and compiled is aotviz.aot_function
    ):  # the part is taken before the wrapper writes, so it could have no base
        with pytest.raises(aotviz.Refused, match=r"output\[1\]\._local_tensor is a view of x"):
            ran(by(compiled, f))
    else:
        assert ran(by(compiled, f)) == ran(f)


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("which", ["whole", "plain", "both"])
def test_a_dtensor_argument_gets_its_gradient_from_a_plain_result_alone(mesh, compiled, which):
    """The gradient was refused where only the plain result was differentiated: it might not have been a DTensor."""

    def f(d):
        d.mul_(0.5)
        return (d @ d.t()).to_local()

    def ran(fn):
        leaf = distribute_tensor(torch.linspace(-1, 1, 6).reshape(2, 3), mesh, [Shard(0)]).requires_grad_()
        whole = leaf * 1.5
        plain = fn(whole)
        if which != "plain":
            whole.sum().to_local().backward(retain_graph=True)
        if which != "whole":
            plain.sum().backward()
        return type(leaf.grad), leaf.grad.full_tensor().tolist()

    assert ran(by(compiled, f)) == ran(f)


def test_a_second_derivative_after_a_plain_backward(mesh):
    """The key of the cache read the mesh while the trace was open: the first trace had a node that the second has
    not."""

    def f(x):
        return DTensor.from_local(x, mesh, [Replicate()]).sin().full_tensor()

    def second(fn):
        x = leaf(2, 2)
        (gradient,) = torch.autograd.grad(fn(x).sin().sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.sin().sum(), x)[0]

    compiled = aotviz.aot_function(f, run_graph)
    compiled(leaf(2, 2)).sum().backward()
    torch.testing.assert_close(second(compiled), second(f))


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("writes", [False, True])
def test_what_a_dtensor_saved_of_an_input_may_be_written_before_the_backward(mesh, compiled, writes):
    """Eager checks the version of the DTensor, which such a write does not bump: its gradient is of the new values."""

    def f(x):
        if writes:
            with torch.no_grad():
                x.mul_(2)
        return DTensor.from_local(x, mesh, [Replicate()]).sin().to_local(), x

    def ran(fn):
        x = leaf(4)
        result, same = fn(x * 1)
        same.mul_(0.5)
        result.sum().backward()
        return x.grad

    torch.testing.assert_close(ran(by(compiled, f)), ran(f))


@pytest.mark.parametrize("compiled", COMPILED)
def test_what_a_dtensor_did_not_save_may_be_written_before_the_backward(mesh, compiled):
    def f(x):
        return (DTensor.from_local(x, mesh, [Replicate()]) * 3).exp().to_local(), x

    def ran(fn):
        x = leaf(4)
        result, same = fn(x * 1)
        same.mul_(0.5)
        (result.sum() + same.sum()).backward()
        return x.grad

    torch.testing.assert_close(ran(by(compiled, f)), ran(f))


def copied(x, view):
    part = x[::2]
    x.copy_(view)
    return part


def test_the_gradient_of_a_view_that_a_custom_function_returned_passes_that_function(mesh):
    """Beside another argument over the same memory, the view was taken again from their base."""

    def ran(fn):
        x = leaf(4)
        whole = x * 1.5
        d = DTensor.from_local(whole, mesh, [Replicate()])
        d.sin_()
        fn(whole, d.to_local()).sum().backward()
        return x.grad

    with pytest.raises(aotviz.Refused, match="'view' is a view of what another input views"):
        ran(aotviz.aot_function(copied, run_graph))
    with pytest.warns(aotviz.RanInEager):
        torch.testing.assert_close(ran(torch.compile(copied, backend="aotviz_eager")), ran(copied))


def test_a_later_call_with_a_view_that_a_custom_function_returned_is_refused(mesh):
    compiled, whole = aotviz.aot_function(copied, run_graph), leaf(4) * 1.5
    compiled(whole, whole.view(4))
    whole = leaf(4) * 1.5
    view = DTensor.from_local(whole, mesh, [Replicate()]).to_local()
    with pytest.raises(CallDiffers, match="view is now a view that a custom autograd"):
        compiled(whole, view)


def test_a_dtensor_over_a_tensor_that_is_not_dense_gets_a_gradient_with_its_strides(mesh):
    """Its TensorMeta has them, and the gradient from behind the graph break has those of a dense tensor."""

    def f(x):
        d = DTensor.from_local(x, mesh, [Replicate()])
        torch._dynamo.graph_break()
        return d.sin().full_tensor()

    def ran(fn):
        x = leaf(2, 3)
        result = fn(x.narrow(1, 1, 2))
        (gradient,) = torch.autograd.grad(result.sin().sum(), x, create_graph=True)
        return gradient, torch.autograd.grad(gradient.sin().sum(), x)[0]

    torch.testing.assert_close(ran(torch.compile(f, backend="aotviz_eager")), ran(f))


@pytest.mark.parametrize("compiled", COMPILED)
def test_the_part_of_a_result_over_a_written_leaf_does_not_require_grad(mesh, compiled):
    def f(x):
        d = DTensor.from_local(x.detach(), mesh, [Shard(0)])
        d.mul_(0.5)
        return d

    def ran(fn):
        x = leaf(4)
        local = fn(x)._local_tensor
        before = x._version
        local.add_(1)
        return local.requires_grad, x._version - before, local.data_ptr() == x.data_ptr(), x.tolist()

    assert ran(by(compiled, f)) == ran(f)


def hooked():
    return torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved)


@pytest.mark.parametrize("around", [contextlib.nullcontext, hooked], ids=["plain", "hooks on saved tensors"])
@pytest.mark.parametrize("given", [[Replicate()], None], ids=["another placement", "the same placement"])
@pytest.mark.parametrize("passed", [lambda d: d * d.sum(), lambda d: torch.cat([d, d])], ids=["product", "cat"])
def test_a_second_derivative_ends_where_a_gradient_has_another_placement(mesh, given, passed, around):
    """The backward of `from_local` converts such a gradient, and its result has no `grad_fn`. The compiled backward
    was traced for the gradient as it is once converted. Under hooks, a missing gradient became plain zeros."""

    def f(x):
        d = DTensor.from_local(x, mesh, [Shard(0)])
        torch._dynamo.graph_break()
        return passed(d).to_local(grad_placements=given), x.sin()

    def ran(fn):
        x = leaf(4, 1)
        with around():
            first, second = fn(x)
        (gradient,) = torch.autograd.grad([(first * first).sum(), second.sum()], x, create_graph=True)
        return gradient, torch.autograd.grad((gradient * gradient).sum(), x)[0]

    torch.testing.assert_close(ran(torch.compile(f, backend="aotviz_eager")), ran(f))


def test_a_gradient_of_another_placement_has_a_grad_fn_where_eagers_has(mesh):
    def f(d):
        return d.sin()

    def ran(fn):
        d = distribute_tensor(torch.linspace(-1, 1, 4), mesh, [Shard(0)]).requires_grad_()
        weight = distribute_tensor(torch.linspace(1, 2, 4), mesh, [Replicate()]).requires_grad_()
        (gradient,) = torch.autograd.grad(fn(d), d, weight, create_graph=True)
        found = torch.autograd.grad((gradient * gradient).sum(), [d, weight])
        return [gradient.full_tensor(), *(one.full_tensor() for one in found)]

    for compiled in COMPILED:
        torch.testing.assert_close(ran(by(compiled, f)), ran(f))


def written_through_the_dtensor(p, x, mesh):
    x.copy_(p * 2)
    d = DTensor.from_local(x, mesh, [Shard(0)])
    d.add_(1.0)
    return d.to_local().narrow(1, 1, 1), p


def another_view_changes(p, x, mesh):
    d = DTensor.from_local(x, mesh, [Shard(0)])
    p.squeeze_()
    local = d.to_local()
    return local.view_as(local), local * p


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("f", [written_through_the_dtensor, another_view_changes])
def test_a_part_is_taken_again_though_its_base_has_changed_since(mesh, compiled, f):
    """It was a view under no_grad, as eager's is, and was an argument of an autograd.Function: autograd refused it."""

    def ran(fn):
        leaf = torch.linspace(-1, 1, 6).reshape(3, 2).requires_grad_()
        whole = leaf * 1.5
        view, other = fn(*((leaf[0], whole) if f is written_through_the_dtensor else (whole[0], whole[1:])))
        (view.sin().sum() + other.sum()).backward()
        return view.tolist(), view._base is whole, leaf.grad.tolist(), whole._version

    def program(p, x):
        return f(p, x, mesh)

    assert ran(by(compiled, program)) == ran(program)
