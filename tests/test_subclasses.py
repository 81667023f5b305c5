"""Tensors made of tensors: equal to eager through every door, or refused by the input's name."""

from __future__ import annotations

import os
from functools import cache

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import aotviz
import aotviz.frontends.backend
from aotviz.lowerings import run_graph
from aotviz.torch_private.versions import release
from tests.doors import alone
from tests.oracle.compare import CANDIDATES, expect, judge
from tests.oracle.subclass_fuzz import drawn
from tests.oracle.subclass_programs import PROGRAMS, fresh, nest, two
from tests.oracle.weights import DispatchInt8, FunctionInt8, quantised
from tests.tiers import in_turns

# What the error must say.
REFUSED = {
    "part_is_an_input_too_and_is_mutated": "t.a and x overlap in memory inside a tensor subclass, and one of them is",
    "two_subclasses_share_a_part": "t.a and u.a overlap in memory inside a tensor subclass, and one of them is",
    "plain_and_subclass": "the gradient of x was compiled as a TwoTensor, and would be a plain tensor",
}

# Torch 2.13's aot_function gets these wrong or raises; the list is checked, so that it stays true.
RIGHT_WHERE_TORCH_IS_NOT = [
    "duplicates_mutated",
    "dynamic",
    "gains_a_gradient_by_mutation",
    "mutated_with_a_gradient",
    "output_holds_a_mutated_input",
    "outputs_with_disjoint_inputs",
    "overlapping_views_mutated",
    "part_is_written",
    "pieces_of_an_intermediate",
    "same_output_twice",
    "transposed_in_place",
    "views_of_an_unreturned_intermediate",
]


@cache
def expected(name):
    return expect(PROGRAMS[name])


@pytest.mark.parametrize(
    ("name", "door"), in_turns([name for name in PROGRAMS if name not in REFUSED], ["ours-keep", "ours-compile"])
)
def test_a_program_over_subclasses_equals_eager(name, door):
    verdict = judge(PROGRAMS[name], CANDIDATES[door](), expected(name))
    assert verdict.status in ("equal", "details"), f"{PROGRAMS[name].source}\n{verdict}"


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_input(name):
    verdict = judge(PROGRAMS[name], CANDIDATES["ours"](), expected(name))
    assert verdict.status == "raised", str(verdict)
    assert all(REFUSED[name] in failure.message for _, failure in verdict.failures)


@pytest.mark.skipif(release(torch.__version__) != (2, 13), reason="what torch gets wrong differs by release")
@pytest.mark.parametrize("name", RIGHT_WHERE_TORCH_IS_NOT)
def test_torch_is_wrong_or_refuses(name):
    assert judge(PROGRAMS[name], CANDIDATES["torch"](), expected(name)).status in ("wrong", "raised")


def in_int8(kind):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    return quantised(model, kind)


def of_two():
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 3)
    layer.weight = torch.nn.Parameter(TwoTensor(layer.weight.detach(), layer.weight.detach() * 2))
    layer.register_buffer("shift", two(3))
    return layer


MODELS = {
    "int8 by dispatch": lambda: in_int8(DispatchInt8),
    "int8 by function": lambda: in_int8(FunctionInt8),
    "TwoTensor parameter and buffer": of_two,
}


def simplified(model):
    def call(x):
        return aotviz.aot_module_simplified(model, [x], run_graph)(x)[0]

    return call


DOORS = {
    "compile": lambda model: aotviz.compile(model, backend="eager", debug=True),
    "aot_function": lambda model: aotviz.aot_function(model, run_graph),
    "aot_module": lambda model: aotviz.aot_module(model, run_graph),
    "aot_module_simplified": simplified,
    "torch.compile": lambda model: torch.compile(model, backend="aotviz_eager"),
}


def trained(call, model, x):
    """The output and all gradients of one step, each as plain tensors."""
    x = x.clone().requires_grad_()
    model.zero_grad()
    output = call(x)
    output.sum().backward()
    return [plain(value) for value in (output, x.grad, *(p.grad for p in model.parameters()))]


def plain(value):
    if not isinstance(value, TwoTensor):
        return [value]
    return [TwoTensor, *plain(value.a), *plain(value.b)]


def assert_alike(one, other):
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_whose_weights_are_subclasses_trains_as_in_eager(name, door):
    torch._dynamo.reset()
    model, x = MODELS[name](), fresh(5, 4)
    call = DOORS[door](model)
    for expected, found in zip(trained(model, model, x), trained(call, model, x), strict=True):
        assert len(expected) == len(found)
        for one, other in zip(expected, found, strict=True):
            assert type(one) is type(other)
            if isinstance(one, torch.Tensor):
                assert_alike(one, other)


@pytest.mark.slow
def test_a_model_whose_weights_are_subclasses_goes_through_inductor():
    torch._dynamo.reset()
    model, x = in_int8(DispatchInt8), fresh(5, 4)
    with torch.no_grad():
        assert_alike(model(x), torch.compile(model, backend="aotviz")(x))


def jagged(grad=True):
    rows = [fresh(2, 3), fresh(4, 3, start=2.0)]
    return torch.nested.nested_tensor(rows, layout=torch.jagged).requires_grad_(grad)


JAGGED = {
    "arithmetic": lambda t: (t.sin() * 2, t.sum()),
    "linear": lambda t: torch.nn.functional.linear(t, torch.ones(5, 3)).relu(),
    "transpose of the input": lambda t: t.transpose(1, 2),
    "transpose of an intermediate": lambda t: (t * 2).transpose(1, 2),
    "values": lambda t: t.values() * 2,
}


@pytest.mark.parametrize("door", ["compile", "aot_function", "torch.compile"])
@pytest.mark.parametrize("name", JAGGED)
def test_jagged_tensors_are_as_in_eager(name, door):
    torch._dynamo.reset()
    fn = JAGGED[name]
    results = []
    for call in (fn, DOORS[door](fn)):
        t = jagged()
        outputs = call(t)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        values = [output.values() if output.is_nested else output for output in outputs]
        sum((value**2).sum() for value in values).backward()
        results.append([type(output) for output in outputs] + values + [t.grad.values()])
    for one, other in zip(*results, strict=True):
        assert_alike(one, other) if isinstance(one, torch.Tensor) else one is other


def test_a_program_for_jagged_tensors_serves_other_lengths():
    scale = alone(lambda t: t * 2)
    for lengths in ((2, 4), (3, 5), (4, 2, 6)):
        t = torch.nested.nested_tensor([fresh(n, 3) for n in lengths], layout=torch.jagged)
        assert_alike(scale(t).values(), t.values() * 2)
    assert len(scale.recording.compilations) == 1


@pytest.fixture(scope="module")
def mesh():
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0")
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


DISTRIBUTED = {
    "product": lambda t: t * t,
    "matrix product": lambda t: (t @ t.t()).relu(),
    "partial sum": lambda t: t.sum(0),
    "view": lambda t: t.view(12),
    "redistributed": lambda t: t.redistribute(placements=[torch.distributed.tensor.Replicate()]) * 2,
    "local": lambda t: t.to_local() * 2,
}


@pytest.mark.parametrize("door", ["compile", "aot_function", "torch.compile"])
@pytest.mark.parametrize("name", DISTRIBUTED)
def test_distributed_tensors_are_as_in_eager(name, door, mesh):
    from torch.distributed.tensor import Shard, distribute_tensor

    torch._dynamo.reset()
    results = []
    for call in (DISTRIBUTED[name], DOORS[door](DISTRIBUTED[name])):
        t = distribute_tensor(fresh(4, 3), mesh, [Shard(0)]).requires_grad_()
        output = call(t)
        local = output.to_local() if hasattr(output, "to_local") else output
        (local**2).sum().backward()
        results.append((type(output), getattr(output, "placements", None), local, t.grad.placements, t.grad.to_local()))
    for one, other in zip(*results, strict=True):
        assert_alike(one, other) if isinstance(one, torch.Tensor) else one == other


def test_a_plain_gradient_becomes_the_subclass_that_the_backward_takes():
    t, u = two(2, 3, grad=True), two(2, 3, grad=True)
    (t.sin()).backward(torch.ones(2, 3))
    aotviz.compile(lambda t: t.sin(), backend="eager")(u).backward(torch.ones(2, 3))
    for one, other in zip(plain(t.grad), plain(u.grad), strict=True):
        assert one is other or torch.equal(one, other)


def test_a_gradient_of_another_layout_is_laid_out_anew():
    t, u = two(2, 3, grad=True), two(2, 3, grad=True)
    gradient = two(3, 2).t()
    t.sin().backward(gradient)
    aotviz.compile(lambda t: t.sin(), backend="eager")(u).backward(gradient)
    assert torch.equal(t.grad.a, u.grad.a)
    assert torch.equal(t.grad.b, u.grad.b)


def test_a_nested_gradient_where_a_flat_one_was_expected_is_refused_with_both_named():
    t = two(2, 3, grad=True)
    output = alone(lambda t: t.sin())(t)
    with pytest.raises(
        RuntimeError,
        match=r"gradient of output is a TwoTensor \(a a TwoTensor.*compiled for a TwoTensor \(a a plain",
    ):
        output.backward(nest(2, 3))


def test_a_class_that_can_convert_gradients_is_asked():
    class Converting(TwoTensor):
        def __coerce_same_metadata_as_tangent__(self, context, kind=None):
            return TwoTensor(self.a, self.b) if kind is TwoTensor else None

    t = two(2, 3, grad=True)
    aotviz.compile(lambda t: t * 3, backend="eager")(t).backward(Converting(torch.ones(2, 3), torch.zeros(2, 3)))
    assert torch.equal(t.grad.a, torch.full((2, 3), 3.0))
    assert not t.grad.b.any()


def test_a_saved_input_that_is_written_is_noticed_as_in_eager():
    for fn in (lambda t: t.exp() * t, aotviz.compile(lambda t: t.exp() * t, backend="eager")):
        t = two(3, grad=True).clone()
        output = fn(t)
        t.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            output.backward(torch.ones_like(output))


def test_a_saved_output_that_is_written_is_noticed_as_in_eager():
    for fn in (lambda t: t.exp(), aotviz.compile(lambda t: t.exp(), backend="eager")):
        t = two(3, grad=True)
        output = fn(t)
        with torch.no_grad():
            output.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            output.backward(torch.ones_like(output))


def test_a_call_with_another_kind_of_tensor_is_compiled_anew():
    scale = aotviz.compile(lambda t: t * 2, backend="eager")
    scale(two(3)), scale(torch.ones(3)), scale(nest(3)), scale(two(3))
    assert len(scale.recording.compilations) == 3


def test_a_call_with_another_kind_of_tensor_is_refused_by_what_is_compiled_once():
    program = aotviz.trace_stages(lambda t: t * 2, two(3)).resume()
    program(two(3))
    with pytest.raises(RuntimeError, match="'t' was a TwoTensor when this was compiled"):
        program(torch.ones(3))


def test_aot_function_compiles_again_for_another_kind_of_tensor():
    scale = aotviz.aot_function(lambda t: t * 2, run_graph)
    for one in (two(3), torch.ones(3), two(3)):
        assert type(scale(one)) is type(one)
    assert len(scale.recording) == 2


def test_a_recording_names_the_parts():
    layer = of_two()
    compiled = aotviz.compile(layer, backend="eager")
    compiled(fresh(5, 4))
    inputs = compiled.recording.compilations[0].inputs.set_index("name")
    assert "it is a TwoTensor; the graph has weight.a, weight.b" in inputs.reason["weight"]
    assert "primal_weight.a, primal_weight.b" in compiled.source
    assert "# the graph takes the inner tensors of weight" in compiled.source


def test_a_program_without_subclasses_has_no_line_for_them():
    compiled = aotviz.compile(lambda x: x.sin(), backend="eager")
    compiled(torch.ones(3, requires_grad=True))
    assert "primal" not in compiled.source
    assert "unflatten" not in compiled.source
    stages = compiled.recording.compilations[0].stages.set_index("stage")
    assert not stages.changed["subclasses"]


def test_a_part_that_needs_a_gradient_of_its_own_is_refused_by_name():
    t = TwoTensor(fresh(3).requires_grad_(), fresh(3).requires_grad_())
    with pytest.raises(aotviz.Refused, match=r"t\.a requires grad, and the function uses it directly"):
        alone(lambda t: t.a * 2 + 1)(t)


def test_a_part_that_requires_grad_is_no_obstacle_while_only_the_whole_is_used():
    results = []
    for fn in (lambda t: t.sin(), aotviz.compile(lambda t: t.sin(), backend="eager")):
        t = TwoTensor(fresh(3).requires_grad_(), fresh(3).requires_grad_())
        output = fn(t)
        output.backward(two(3))
        results.append((*plain(t.grad)[1:], t.a.grad))
    (a, b, inner), (our_a, our_b, our_inner) = results
    assert_alike((a, b), (our_a, our_b))
    assert inner is our_inner is None


def test_an_export_of_subclasses_is_refused_by_name():
    class Scale(torch.nn.Module):
        def forward(self, t):
            return (t * 2,)

    with pytest.raises(Exception, match="'t' is a TwoTensor, a tensor subclass"):
        aotviz.aot_export_module(Scale(), (two(3),), trace_joint=False)


@pytest.mark.parametrize("make", [fresh, two])
def test_a_detached_alias_of_an_input_gains_the_history_of_what_is_written_to_it(make):
    def f(p, q):
        alias = q.detach()
        alias.copy_(p)
        return alias

    p, q = make(3).requires_grad_(), make(3)
    alias = aotviz.compile(f, backend="eager")(p, q)
    assert (alias.requires_grad, q.requires_grad) == (True, False)
    assert torch.equal(plain(alias)[-1], plain(q)[-1])
    alias.sum().backward()
    assert p.grad is not None


@pytest.mark.parametrize("index", range(2, 14))
def test_a_random_program_over_two_tensors_equals_eager(index):
    """`python -m tests.oracle.subclass_fuzz` runs more of them, torch's own AOTAutograd beside ours."""
    found = drawn(0, index)
    if found is not None:
        program, expected = found
        verdict = judge(program, CANDIDATES["ours"](), expected)
        assert verdict.status in ("equal", "details"), f"{program.source}\n{verdict}"


def test_a_tensor_of_two_passed_twice_under_inference_mode():
    def fn(a, b, c):
        a.mul_(2)
        return a * 1, b

    def run(call):
        a, b = (TwoTensor(torch.ones(3), torch.ones(3)) for _ in range(2))
        with torch.inference_mode():
            out, same = call(a, b, b)
        return out.a.tolist(), a.b.tolist(), same is b

    assert run(aotviz.compile(fn, backend="eager")) == run(fn)


def test_a_subclass_that_refuses_the_parts_of_a_trace_is_named_with_what_it_says():
    def fn(a, b):
        b.as_strided((2,), (2,), 2).sub_(1)
        return a.flatten(), b

    whole = TwoTensor(torch.ones(6), torch.ones(6))
    with pytest.raises(aotviz.Refused, match="TwoTensor cannot be put together from new inner tensors"):
        alone(fn)(whole, whole[1:])


@pytest.mark.parametrize("strides", ["fit", "differ"])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_gradient_made_of_parts_is_not_given_to_a_backward_for_plain_ones(backend, strides):
    compiled, x = aotviz.compile(lambda x: (x * 2).sin(), backend=backend), torch.ones(3, 4, requires_grad=True)
    part = torch.ones(3, 4) if strides == "fit" else torch.ones(4, 3).t()
    with pytest.raises(RuntimeError, match=r"gradient of output\[0\] is a TwoTensor .* compiled for a plain tensor"):
        compiled(x).backward(TwoTensor(part, part.clone()))
    assert x.grad is None


def test_a_subclass_over_one_memory_twice_is_not_written():
    inner = torch.ones(3)
    t = TwoTensor(inner, inner)
    with pytest.raises(aotviz.Refused, match=r"t\.a and t\.b overlap in memory"):
        alone(lambda t: t.mul_(3))(t)
    assert inner.tolist() == [1] * 3
    assert alone(lambda t: t * 3)(t).b.tolist() == [3] * 3


def test_a_layer_norm_of_jagged_tensors_serves_other_lengths():
    compiled = alone(lambda t: torch.nn.functional.layer_norm(t, (4,)))
    for lengths in ((2, 3), (4, 2, 2), (3, 5)):
        t = torch.nested.nested_tensor([torch.rand(n, 4) for n in lengths], layout=torch.jagged)
        torch.testing.assert_close(compiled(t).values(), torch.nn.functional.layer_norm(t.values(), (4,)))
    assert len(compiled.recording.compilations) == 1
