"""Saved-tensor hooks: graphs become part of the program, others run at each call as in eager."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch._functorch import config
from torch._functorch.aot_autograd import aot_function as torch_aot_function
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

import aotviz
from aotviz.ir.refusals import RanInEager
from aotviz.lowerings import run_graph
from aotviz.torch_private.partitioners import default_partition
from tests.doors import alone

torch.set_num_threads(1)


def graph(fn, *arguments):
    """A hook as a GraphModule that calls `fn`; its one argument is a tuple of `arguments` parts, if given."""

    class Hook(torch.nn.Module):
        def forward(self, value):
            parts = [value[i] for i in range(*arguments)] if arguments else [value]
            return fn(*parts)

    return torch.fx.symbolic_trace(Hook())


def opaque(fn):
    """A hook whose graph is one call of `fn`."""
    made = torch.fx.Graph()
    value = made.placeholder("value")
    made.output(made.call_function(fn, (value,)))
    return torch.fx.GraphModule(torch.nn.Module(), made)


HALF = graph(lambda x: (x.to(torch.bfloat16), 1)), graph(lambda x, one: x.to(torch.float32) * one, 2)


def fn(x, w):
    return (x @ w).sin().exp().sum()


def leaves():
    generator = torch.Generator().manual_seed(0)
    return [torch.rand(shape, generator=generator).requires_grad_() for shape in [(3, 4), (4, 5)]]


def compiled(function, **options):
    return aotviz.compile(function, backend="eager", debug=True, partition_fn=default_partition, **options)


def gradients(function, hooks):
    inputs = leaves()
    with saved_tensors_hooks(*hooks):
        out = function(*inputs)
    return torch.autograd.grad(out, inputs)


def close(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("mode", ["donated", "no_static", "all"])
def test_graphs_are_inlined_as_torch_inlines_them(mode):
    with config.patch(saved_tensors_hooks_filtering_mode=mode):
        f = compiled(fn)
        ours = gradients(f, HALF)
        theirs = gradients(torch_aot_function(fn, lambda g, _: g, partition_fn=default_partition), HALF)
        exact = torch.autograd.grad(fn(*(inputs := leaves())), inputs)
    close(ours, theirs)
    assert any(not torch.equal(one, other) for one, other in zip(ours, exact, strict=True)), "half the bits are gone"
    saved = f.recording[0].saved_tensors
    packed = saved[saved["hook"] != ""]
    assert set(packed["dtype"]) == {"torch.bfloat16"}
    assert len(packed) == {"donated": 2, "no_static": 4, "all": 4}[mode]


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.by = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.by


def test_parameters_are_static_and_packed_only_where_everything_is():
    net = Scale()
    counts = {}
    for mode in ("no_static", "all"):
        with config.patch(saved_tensors_hooks_filtering_mode=mode), saved_tensors_hooks(*HALF):
            f = compiled(net)
            f(torch.ones(2, 4, requires_grad=True)).sum().backward()
        counts[mode] = (f.recording[0].saved_tensors["hook"] != "").sum()
    assert counts["all"] == counts["no_static"] + 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_hooks_may_return_symbolic_numbers_and_nothing_to_unpack_with(dynamic):
    pack = graph(lambda x: {"flat": x.reshape(-1), "rows": x.shape[0], "name": "flat", "nothing": None})

    class Unpack(torch.nn.Module):
        def forward(self, packed):
            return packed["flat"].reshape(packed["rows"], -1)

    with config.patch(saved_tensors_hooks_filtering_mode="donated"):
        f = compiled(fn, dynamic=dynamic)
        ours = gradients(f, (pack, torch.fx.symbolic_trace(Unpack())))
    close(ours, torch.autograd.grad(fn(*(inputs := leaves())), inputs))
    kinds = list(f.recording[0].saved_tensors["kind"])
    assert kinds == sorted(kinds, reverse=True), "tensors first"


def test_hooks_that_do_nothing_change_nothing():
    same = graph(lambda x: x)
    with config.patch(saved_tensors_hooks_filtering_mode="all"):
        f, plain = compiled(fn), compiled(fn)
        ours = gradients(f, (same, same))
    close(ours, torch.autograd.grad(plain(*(inputs := leaves())), inputs))
    names = [set(one.recording[0].saved_tensors["name"]) for one in (f, plain)]
    assert names[0] == names[1]


def test_what_is_packed_can_be_donated_and_the_backward_run_twice():
    f, inputs = compiled(fn), leaves()
    with saved_tensors_hooks(*HALF):
        out = f(*inputs)
    first = torch.autograd.grad(out, inputs, retain_graph=True)
    second = torch.autograd.grad(out, inputs)
    close(first, second)
    saved = f.recording[0].saved_tensors
    packed = saved[saved["hook"] != ""]
    assert packed["donated"].all()
    said = f.recording[0].stages.set_index("stage").summary
    count = f"{len(packed)} of {len(saved)} saved values"
    assert said["saved hooks"].startswith(f"{count} packed by a saved tensor hook; ")
    assert said["donated buffers"].startswith(f"{saved['donated'].sum()} of {len(saved)} saved values donated")


def test_the_stage_says_of_each_saved_tensor_why_it_is_packed_or_not():
    f = compiled(lambda x, w: (x @ w).exp())
    gradients(lambda *xs: f(*xs).sum(), HALF)
    reasons = f.recording[0].evidence
    reasons = reasons[reasons["stage"] == "saved hooks"]["reason"].tolist()
    assert any(reason.startswith("not packed: it shares memory with an input") for reason in reasons)


def test_a_hook_can_ask_for_which_tensor_it_is_compiled():
    seen = []

    def look(x):
        seen.append(aotviz.saved_hook_context())
        return x * 1

    gradients(compiled(fn), (opaque(look), opaque(look)))
    names = {context.name for context in seen}
    assert names == {"mm", "detach"}
    assert names < {node.name for node in seen[0].forward.nodes}
    assert names < {node.name for node in seen[0].backward.nodes}
    assert aotviz.saved_hook_context() is None


def test_a_hook_that_writes_its_argument_is_refused_by_name():
    with pytest.raises(aotviz.Refused, match="the pack hook of the saved tensor 'mm' writes to its argument"):
        gradients(alone(fn), (opaque(lambda x: x.mul_(2)), opaque(lambda x: x)))


def test_an_unpack_hook_that_returns_something_else_is_refused_by_name():
    with pytest.raises(ValueError, match=r"torch.float32 of shape \(3, 5\); it returned torch.bfloat16"):
        gradients(compiled(fn), (HALF[0], graph(lambda x, one: x * one, 2)))


def test_a_mode_that_torch_does_not_know_is_refused():
    f = compiled(fn)
    with config.patch(saved_tensors_hooks_filtering_mode="some"), pytest.raises(ValueError, match="'no_static' or"):
        gradients(f, HALF)


def test_other_hooks_are_another_program():
    f = compiled(fn)
    gradients(f, HALF)
    gradients(f, HALF)
    f(*leaves())
    gradients(f, (graph(lambda x: x), graph(lambda x: x)))
    assert len(f.recording.compilations) == 3


def test_hooks_that_are_no_graphs_run_at_each_call_and_never_see_a_fake():
    seen = []

    def pack(x):
        seen.append(type(x))
        return x.to(torch.float64)

    def unpack(x):
        return x.to(torch.float32)

    f = compiled(fn)
    for _ in range(2):
        seen.clear()
        close(gradients(f, (pack, unpack)), torch.autograd.grad(fn(*(inputs := leaves())), inputs))
        assert seen
        assert set(seen) == {torch.Tensor}
    assert len(f.recording.compilations) == 1


def test_save_on_cpu_is_as_in_eager():
    f, inputs = compiled(fn), leaves()
    with save_on_cpu():
        out = f(*inputs)
    close(torch.autograd.grad(out, inputs), torch.autograd.grad(fn(*inputs), inputs))


def inside_save_on_cpu(x):
    with save_on_cpu():
        y = x.exp().sin()
    return y.sum()


def inside_hooks_of_the_users(x):
    with saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
        y = x.exp().sin()
    return y.sum()


@pytest.mark.parametrize("function", [inside_save_on_cpu, inside_hooks_of_the_users])
def test_hooks_inside_a_compiled_function_run_in_eager_and_the_recording_says_so(function):
    """Dynamo cannot trace what enters the hooks, and resumes no graph below it: nothing of the function is compiled."""
    torch._dynamo.reset()
    compiled, (x, *_) = aotviz.compile(function, backend="eager", cache=False), leaves()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RanInEager)
        for _ in range(2):
            close(torch.autograd.grad(compiled(x), x), torch.autograd.grad(function(x), x))
    (told,) = [one for one in compiled.recording if one.data.error is not None]
    line = function.__code__.co_firstlineno + 1
    assert told.data.error.ran_in_eager
    assert told.data.error.place.startswith(f"{__file__}:{line} ")
    said = " ".join(str(compiled.explain()).split())
    name = f"The rest of `{function.__name__}` after line {line}"
    assert f"{name} [0] ran in eager: it enters a context manager that torch cannot compile" in said
    assert "Enter it outside the compiled function." in said
    with pytest.raises(torch._dynamo.exc.Unsupported):
        aotviz.compile(function, backend="eager", fullgraph=True, cache=False)(x)


def test_under_torch_compile_hooks_are_inlined_too():
    torch._dynamo.reset()
    f = torch.compile(fn, backend="aotviz_eager")
    with config.patch(saved_tensors_hooks_filtering_mode="all"), aotviz.record() as recording:
        ours = gradients(f, HALF)
    assert (recording[0].saved_tensors["hook"] != "").any()
    for one in ours:
        assert torch.isfinite(one).all()


def test_a_program_for_aot_function_keeps_the_hooks_that_it_was_compiled_with():
    f = aotviz.aot_function(fn, run_graph)
    first = gradients(f, HALF)
    second = gradients(f, HALF)
    close(first, second)


@pytest.mark.parametrize("mode", ["no_static", "all"])
def test_a_second_derivative_goes_through_the_hooks_as_in_eager(mode):
    def orders(function):
        inputs = leaves()
        with saved_tensors_hooks(*HALF):
            out = function(*inputs)
            first = torch.autograd.grad(out, inputs, create_graph=True)
        return [*first, *torch.autograd.grad(sum((g * g).sum() for g in first), inputs)]

    with config.patch(saved_tensors_hooks_filtering_mode=mode):
        ours = orders(compiled(fn))
    close(ours, orders(fn))
    with torch.autograd.graph.disable_saved_tensors_hooks("none"):
        inputs = leaves()
        exact = torch.autograd.grad(fn(*inputs), inputs)
    assert not torch.equal(ours[0], exact[0]), "half the bits are gone"


def test_a_third_derivative_through_packed_tensors_is_refused_by_name():
    inputs = leaves()
    with config.patch(saved_tensors_hooks_filtering_mode="all"), saved_tensors_hooks(*HALF):
        (first,) = torch.autograd.grad(compiled(fn)(*inputs), inputs[0], create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), inputs[0], create_graph=True)
    with pytest.raises(RuntimeError, match=r"cannot be differentiated again: .*save only what they pack"):
        torch.autograd.grad(second.sum(), inputs[0])


@pytest.mark.parametrize("around", ["save_on_cpu", "checkpoint"])
def test_a_layer_behind_another_is_compiled_inside_of_hooks_from_outside(around):
    def gradient(layer):
        x = torch.tensor([0.3, 0.7], requires_grad=True)
        if around == "checkpoint":
            torch.utils.checkpoint.checkpoint(layer, x * 1.5, use_reentrant=False).sum().backward()
        else:
            with torch.autograd.graph.save_on_cpu():
                layer(x * 1.5).sum().backward()
        return x.grad

    torch.testing.assert_close(gradient(torch.compile(torch.sigmoid, backend="aotviz_eager")), gradient(torch.sigmoid))


QUARTER = (
    graph(lambda x: (x.to(torch.bfloat16), x.amax(), 2)),
    graph(lambda x, _, two: x.to(torch.float32) * two / 2, 3),
)


@pytest.mark.parametrize("mode", ["all", "no_static", "donated"])
@pytest.mark.parametrize("hooks", [HALF, QUARTER])
def test_a_program_with_hooks_that_are_graphs_comes_from_the_cache(hooks, mode, tmp_path):
    def whole():
        torch._dynamo.reset()
        made = aotviz.compile(fn, backend="eager", cache=tmp_path)
        first = gradients(made, hooks)
        inputs = leaves()
        with saved_tensors_hooks(*hooks):
            out = made(*inputs)
        once = torch.autograd.grad(out, inputs, create_graph=True)
        twice = torch.autograd.grad(sum(one.square().sum() for one in once), inputs)
        return made.recording.cache_lookups, [*first, *twice]

    with config.patch(saved_tensors_hooks_filtering_mode=mode):
        (missed, compiled_here), (found, from_cache) = whole(), whole()
    assert (list(missed.outcome), list(missed.reason)) == (["miss"], [""])
    assert list(found.outcome) == ["hit"]
    assert all(map(torch.equal, compiled_here, from_cache))


def test_each_function_that_breaks_where_it_cannot_resume_has_an_entry():
    def another(x):
        with save_on_cpu():
            return x.sin().sum()

    torch._dynamo.reset()
    (x, *_) = leaves()
    with aotviz.record() as recording:
        for function in (inside_save_on_cpu, another):
            torch.compile(function, backend="aotviz_eager")(x)
    places = [one.data.error.place for one in recording if one.data.error is not None]
    lines = [function.__code__.co_firstlineno + 1 for function in (inside_save_on_cpu, another)]
    assert [place.partition(" ")[0] for place in places] == [f"{__file__}:{line}" for line in lines]


def test_the_recompile_limit_is_no_break():
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=2), aotviz.record() as recording:
        compiled = torch.compile(lambda x, factor: x * factor, backend="aotviz_eager", dynamic=False)
        for factor in range(4):
            compiled(torch.ones(3), factor + 2.5)
    assert len(recording) == 2
    assert all(one.data.error is None for one in recording)


def test_a_program_that_raises_while_it_is_traced_is_told_for_dynamo_does_not_try_again():
    def f(x):
        if x.shape[0] == 4:
            raise ValueError("of four")
        return x * 2

    compiled = aotviz.compile(f, backend="eager", cache=False)
    with pytest.raises(ValueError, match="of four"):
        compiled(torch.ones(4))
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    (told,) = compiled.recording
    assert told.data.error.message == "the program raises ValueError while it is traced, and Dynamo does not try again"
