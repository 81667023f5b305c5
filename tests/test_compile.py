"""aotviz.compile: the one-liner, and which calls share a program."""

from __future__ import annotations

import enum
import functools
import math
import re
import threading

import pytest
import torch
from torch import nn

import aotviz
import aotviz.frontends.backend
from aotviz import pipeline
from aotviz.lowerings import run_graph
from aotviz.torch_private import versions
from tests.tiers import slow

torch.set_num_threads(1)


def compiled(fn, **options):
    return aotviz.compile(fn, backend="eager", **options)


def count(function):
    return len(function.recording.compilations)


def leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


def test_it_decorates_a_function_and_keeps_its_name_and_docstring():
    @aotviz.compile(backend="eager")
    def scale(x, by=2):
        """Scales."""
        return x * by

    assert scale(torch.ones(2)).tolist() == [2, 2]
    assert scale(torch.ones(2), by=3).tolist() == [3, 3]
    assert (scale.__name__, scale.__doc__) == ("scale", "Scales.")
    assert re.fullmatch(r"scale \[\d+/0\]", scale.recording[0].name)


def test_a_function_that_looks_into_a_mask_unless_it_is_compiled_is_told_that_it_is():
    def masked(x, mask):
        if not torch.compiler.is_compiling() and torch.all(mask == 1):
            return x * 2
        return x * 2 * mask

    function, x = compiled(masked), leaf(3)
    for mask in (torch.ones(3), torch.tensor([1.0, 0.0, 1.0])):
        y = function(x, mask)
        assert torch.equal(y, masked(x, mask))
        assert torch.equal(torch.autograd.grad(y.sum(), x)[0], 2 * mask)
    assert count(function) == 1
    assert not torch.compiler.is_compiling()


@pytest.mark.parametrize("made", ["Normal", "Categorical", "MultivariateNormal"])
def test_a_distribution_does_not_look_at_its_values_while_it_is_traced(made):
    def distribution(x):
        if made == "Normal":
            return torch.distributions.Normal(x, x.exp())
        if made == "Categorical":
            return torch.distributions.Categorical(logits=x)
        return torch.distributions.MultivariateNormal(x, torch.eye(3))

    def step(x):
        found = distribution(x)
        taken = found.rsample() if found.has_rsample else found.sample()
        return taken, found.log_prob(taken.detach()).sum()

    def run(fn):
        x = torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
        torch.manual_seed(0)
        taken, loss = fn(x)
        (loss + taken.sum()).backward()
        return taken.detach(), loss.detach(), x.grad

    before = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(True)  # Dynamo turns it off, once and for all
    try:
        torch.testing.assert_close(run(compiled(step)), run(step))
        with pytest.raises(ValueError, match="to satisfy the constraint"):
            torch.distributions.Normal(torch.zeros(1), -torch.ones(1))
    finally:
        torch.distributions.Distribution.set_default_validate_args(before)


def test_a_tensor_has_the_attributes_that_the_user_gave_it():
    layer = nn.Linear(2, 2)
    layer.weight.scale = 3.0
    layer.bias.shift = torch.ones(2)
    x = torch.ones(1, 2)
    x.tag = "input"

    def marked(x):
        known = [isinstance(t, nn.Parameter) for t in (layer.weight, x, x * 2)]
        marks = [getattr(layer.weight, "scale", 1.0), getattr(layer.weight, "shift", 5.0), getattr(x, "tag", "none")]
        return layer(x) * layer.weight.scale, known, marks, hasattr(x * 2, "tag")

    expected, found = marked(x), compiled(marked)(x)
    assert torch.equal(found[0], expected[0])
    assert found[1:] == expected[1:] == ([True, False, False], [3.0, 5.0, "input"], False)
    with pytest.raises(AttributeError, match="no attribute 'scales'"):
        compiled(lambda x: x * x.scales)(x)
    assert compiled(lambda x: x + layer.bias.shift)(x).tolist() == [[2, 2]]


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match="takes a function or a module, not 3"):
        aotviz.compile(3)


def test_unknown_backends_and_options_are_refused_when_compile_is_called():
    with pytest.raises(ValueError, match="backend is 'tvm'; it can be"):
        aotviz.compile(lambda x: x, backend="tvm")
    with pytest.raises(ValueError, match=r"there is no option 'max_autotune'\. The options are record, on_stage"):
        aotviz.compile(lambda x: x, backend="eager", options={"max_autotune": True})
    with pytest.raises(ValueError, match=r"there is no option 'max_autotun'\. Did you mean 'max_autotune'"):
        aotviz.compile(lambda x: x, options={"max_autotun": True})
    with pytest.raises(ValueError, match="mode='max-autotune' is a mode of Inductor; backend 'eager' has no modes"):
        aotviz.compile(lambda x: x, backend="eager", mode="max-autotune")
    with pytest.raises(ValueError, match="'on_refusal' is 'ignore'; it can be 'eager' or 'raise'"):
        aotviz.compile(lambda x: x, options={"on_refusal": "ignore"})
    with pytest.raises(TypeError, match="backnd"):
        aotviz.compile(lambda x: x, backnd="eager")


def test_a_function_of_torchs_goes_by_its_name():
    g = compiled(torch.sin)
    g(torch.ones(2))
    assert g.recording[0].name.startswith("sin [")


def test_threads_compile_for_themselves_while_another_compiles():
    g, start = compiled(lambda x: x.cos()), threading.Barrier(3)
    found = []

    def call(size):
        start.wait()
        found.append(torch.equal(g(torch.ones(size)), torch.ones(size).cos()))

    threads = [threading.Thread(target=call, args=(size,)) for size in (2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 3
    assert count(g) > 1


def test_a_method_is_decorated_in_its_class():
    class Scaler:
        by = 3

        @aotviz.compile(backend="eager")
        def scaled(self, x, *, plus=0):
            """Scales."""
            return x * self.by + plus

    assert Scaler().scaled(torch.ones(2), plus=1).tolist() == [4, 4]
    assert Scaler.scaled.__doc__ == "Scales."
    assert len(Scaler().scaled.recording.compilations) == 1


def test_what_lies_between_graph_breaks_is_run_and_the_rest_is_compiled_too():
    said = []

    def chatty(x):
        y = x.sin()
        torch._dynamo.graph_break()
        said.append(y.shape)
        return y.cos()

    g, x = compiled(chatty), leaf(3)
    assert torch.equal(g(x), x.sin().cos())
    assert len(said) == 1
    assert count(g) == 2
    with pytest.raises(Exception, match="graph break"):
        compiled(chatty, fullgraph=True)(x)


@pytest.mark.skipif(
    not versions.has("recompiles are counted by each compiled function"), reason="torch counts them by code"
)
def test_a_function_may_be_compiled_any_number_of_times():
    def f(x):
        return x * 2

    for _ in range(12):
        g = compiled(f)
        assert g(torch.ones(2)).tolist() == [2, 2]
        assert count(g) == 1


def test_a_refused_graph_runs_in_eager_or_raises_what_aotviz_says():
    def overlapping(x):
        x.as_strided((3, 3), (1, 1)).mul_(2)
        return x + 1

    aotviz.frontends.backend._warned.clear()
    with pytest.warns(aotviz.RanInEager, match="overlapping runs in eager because aotviz refused its graph"):
        assert torch.equal(compiled(overlapping)(torch.arange(5.0)), overlapping(torch.arange(5.0)))
    with pytest.raises(aotviz.Refused, match="by mul_"):
        compiled(overlapping, options={"on_refusal": "raise"})(torch.arange(5.0))


def test_a_module_that_a_function_closes_over_is_lifted():
    net = nn.Linear(2, 1)

    def loss(x):
        return net(x).sum()

    f = compiled(loss)
    f(torch.ones(3, 2)).backward()
    assert net.weight.grad.tolist() == [[3, 3]]
    assert [str(d) for d in f.program.lowered.call.graph_inputs] == ["net.weight", "net.bias", "x"]


CHANGES = {
    "a dtype": ((torch.ones(2),), (torch.ones(2, dtype=torch.float64),)),
    "requires_grad": ((torch.ones(2),), (leaf(2),)),
    "a rank": ((torch.ones(2),), (torch.ones(2, 2),)),
    "a plain value": ((torch.ones(2), 2.0), (torch.ones(2), 3.0)),
    "a plain value's type": ((torch.ones(2), 1), (torch.ones(2), True)),
    "a structure": ((torch.ones(2), [1, 2]), (torch.ones(2), (1, 2))),
    "an alias": ((torch.ones(2), torch.ones(2)), (torch.ones(2),) * 2),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_call_of_another_kind_is_compiled_anew_and_the_first_is_kept(name):
    def f(x, other=None):
        y = x * 2
        if isinstance(other, float):
            return torch.copysign(y, torch.tensor(other)) * (other or 1)
        return y

    first, second = CHANGES[name]
    g = compiled(f)
    for args in (first, second, first, second):
        ours, eagers = g(*args), f(*args)
        assert torch.equal(ours, eagers)
        assert ours.requires_grad == eagers.requires_grad
    assert count(g) == 2


def test_keyword_structure_grad_mode_and_autocast_are_guarded():
    g = compiled(lambda x, y=None: x @ (x if y is None else y))
    x = leaf(2, 2)
    g(x)
    g(x, y=torch.ones(2, 2))
    assert count(g) == 2
    with torch.no_grad():
        assert not g(x).requires_grad
    assert count(g) == 3
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert g(x).dtype is torch.bfloat16
    assert count(g) == 4
    assert g(x).dtype is torch.float32
    assert count(g) == 4


def test_the_default_dtype_and_device_are_guarded():
    g = compiled(lambda x: x * torch.ones(2) + torch.tensor(1.5))
    x = torch.ones(2, dtype=torch.int32)
    assert g(x).dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert g(x).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert count(g) == 2
    with torch.device("meta"):
        assert compiled(lambda x: torch.ones(2))(x).device.type == "meta"
        with pytest.raises(RuntimeError, match="meta"):
            g(x)
    assert g(x).dtype is torch.float32


def writes_the_first(a, b):
    a.mul_(2)
    return a + b


def of_one_memory(call, first, second):
    """`call` of two parts of ten numbers, given as ranges, that no tensor is the base of."""
    memory = torch.arange(10.0)
    result = call(memory[slice(*first)].detach(), memory[slice(*second)].detach())
    return result.tolist(), memory.tolist()


def test_where_arguments_meet_in_memory_is_guarded():
    g = compiled(writes_the_first)
    for second in ((5, 10), (3, 8), (2, 7), (3, 8), (5, 10)):
        assert of_one_memory(g, (0, 5), second) == of_one_memory(writes_the_first, (0, 5), second)
    assert count(g) == 3
    assert list(g.recording.recompiles().kind) == ["memory", "memory"]


def test_a_call_that_a_program_finds_different_is_compiled_for():
    g = compiled(writes_the_first)
    for start in (0, 1, 2, 1, 0):
        parts = (start, start + 5), (start + 3, start + 8)
        assert of_one_memory(g, *parts) == of_one_memory(writes_the_first, *parts)
    assert count(g) == 3
    assert set(g.recording.recompiles().kind) == {"memory"}


def test_nan_is_one_value():
    g = compiled(lambda x, fill: x + fill)
    g(torch.ones(2), math.nan)
    g(torch.ones(2), float("nan"))
    assert count(g) == 1


def test_a_size_that_varies_becomes_symbolic_at_the_second_one():
    g = compiled(lambda x: x.sum() * x.shape[0])
    for size in (3, 4, 5, 6):
        assert g(torch.ones(size)).item() == size * size
    assert count(g) == 2


def test_a_number_that_varies_becomes_symbolic_too():
    g = compiled(lambda x, n: x * n)
    for n in (3, 4, 5, 6):
        assert g(torch.ones(1), n).item() == n
    assert count(g) == 2


def test_dynamic_true_is_symbolic_from_the_start_and_dynamic_false_never():
    always, never = compiled(lambda x: x * 2, dynamic=True), compiled(lambda x: x * 2, dynamic=False)
    for size in (3, 4, 5):
        assert always(leaf(size)).shape == (size,)
        never(leaf(size))
    assert (count(always), count(never)) == (1, 3)


def test_a_branch_on_a_symbolic_size_is_guarded():
    g = compiled(lambda x: x * 2 if x.shape[0] > 4 else x * 3, dynamic=True)
    results = [g(torch.ones(size))[0].item() for size in (3, 4, 5, 6)]
    assert results == [3, 3, 2, 2]
    assert count(g) == 2


def test_without_a_recording_there_is_none_and_the_program_is_there():
    g = compiled(lambda x: x * 2, record=False)
    assert g(torch.ones(1)).item() == 2
    with pytest.raises(RuntimeError, match="was compiled with record=False, so there is no recording"):
        g.recording  # noqa: B018
    assert "def " in g.source


def test_before_the_first_call_there_is_no_program():
    def quiet(x):
        return x

    g = compiled(quiet)
    assert len(g.recording.compilations) == 0
    with pytest.raises(RuntimeError, match="quiet has not been compiled yet: call it once"):
        g.source  # noqa: B018


def test_source_and_program_are_those_of_the_latest_program():
    g = compiled(lambda x: x * 2)
    g(torch.ones(2))
    first = g.source
    g(leaf(2))
    assert "autograd" not in first
    assert "autograd" in g.source
    assert g.program.source == g.source


def test_on_stage_hears_of_each_stage_in_order():
    heard = []
    g = compiled(lambda x: x.sin().sum(), on_stage=lambda name, elapsed: heard.append((name, elapsed)))
    out = g(leaf(2))
    names = ["dynamo", *(stage.name for stage in pipeline.TRAINING if stage.needed is None)]
    assert [name for name, _ in heard] == [name for name in names for _ in range(2)]
    assert [elapsed is None for _, elapsed in heard] == [True, False] * len(names)
    out.backward()
    assert [name for name, _ in heard[-2:]] == ["lower backward"] * 2


def test_record_collects_what_is_compiled_inside_and_nothing_else():
    before, inside = compiled(lambda x: x + 1), compiled(lambda x: x + 2, record=False)
    before(torch.ones(2))
    with aotviz.record() as recording:
        before(torch.ones(2))
        inside(torch.ones(2))
        aotviz.aot_function(lambda x: x + 3, run_graph)(torch.ones(2))
        with aotviz.record() as inner:
            before(leaf(2))
    before(torch.ones(2, 2, 2))
    assert len(recording.compilations) == 3
    assert len(inner.compilations) == 1
    assert len(before.recording.compilations) == 3


@pytest.mark.parametrize("call", [(), (1, 2, 3)], ids=["too few", "too many"])
def test_a_call_with_the_wrong_arity_says_so(call):
    def add(x, y):
        return x + y

    g = compiled(add)
    message = r"add\(\) (missing 1|missing 2|takes 2 positional)"
    for _ in range(2):
        with pytest.raises(TypeError, match=message):
            g(*(torch.ones(1) for _ in call))
        g(torch.ones(1), torch.ones(1))


class Colour(enum.IntEnum):
    RED = 1


class Kind(enum.StrEnum):
    A = "a"


def test_keys_and_constants_whose_repr_is_no_python_come_out_as_they_are():
    def f(x):
        return {torch.float32: x + 1, Colour.RED: x + 2, Kind.A: [Colour.RED, Kind.A, 2.5, None, math.inf]}

    ours, eagers = compiled(f)(torch.ones(1)), f(torch.ones(1))
    assert list(ours) == list(eagers)
    assert ours[Kind.A] == eagers[Kind.A]
    assert [type(value) for value in ours[Kind.A]] == [type(value) for value in eagers[Kind.A]]


def test_a_failed_compilation_leaves_nothing_behind():
    def f(x, fail):
        if fail:
            raise KeyError("mine")
        return x * 2

    g = compiled(f)
    with pytest.raises(KeyError, match="mine"):
        g(torch.ones(1), True)
    assert g(torch.ones(1), False).item() == 2
    assert torch.is_grad_enabled()


weight = torch.ones(2)  # what the attribute below must not be taken for


def test_an_attribute_is_not_taken_for_a_global_tensor_of_that_name():
    net = nn.Linear(2, 1)
    assert compiled(lambda x: x @ net.weight.t())(torch.ones(1, 2)).shape == (1, 1)


def test_what_a_partial_binds_is_lifted():
    net = nn.Linear(2, 1)
    compiled(functools.partial(lambda module, x: module(x), net))(torch.ones(1, 2)).sum().backward()
    assert net.weight.grad.tolist() == [[1, 1]]
    scaled = functools.partial(lambda by, x: x * by, by=torch.ones(2))
    assert compiled(scaled)(x=torch.ones(2)).tolist() == [1, 1]
    assert compiled(functools.partial(lambda by, x: x * by, torch.ones(2)))(torch.ones(2)).tolist() == [1, 1]


def test_a_shape_is_returned_as_a_size() -> None:
    def shaped(x: torch.Tensor) -> object:
        return x + 1, {"shape": x.shape, "first": x.shape[:1]}

    x = torch.ones(2, 3)
    for dynamic in (False, True):
        found = aotviz.compile(shaped, backend="eager", dynamic=dynamic)(x)[1]
        assert (type(found["shape"]), found["shape"]) == (torch.Size, x.shape)
        assert (type(found["first"]), found["first"]) == (torch.Size, x.shape[:1])


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("backend", ["eager", slow("inductor")])
def test_batch_norm_counts_the_writes_that_eager_counts(backend: str, grad: bool) -> None:
    plain, other = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    fn = aotviz.compile(other, backend=backend)
    for k in range(3):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(k), requires_grad=grad)
        with torch.set_grad_enabled(grad):
            torch.testing.assert_close(fn(x), plain(x))
    for (name, expected), found in zip(plain.named_buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(found, expected)
        assert found._version == expected._version, name


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (3, "it must be a dict"),
        ({"aten.sin": torch.cos}, "'aten.sin' is not an operator"),
        ({torch.ops.aten.sin: torch.cos}, r"such as torch\.ops\.aten\.sin\.default"),
    ],
)
def test_a_table_of_decompositions_that_no_trace_would_look_into_is_refused(table, said):
    with pytest.raises(TypeError, match=said):
        aotviz.compile(torch.sin, backend="eager", decompositions=table)
    with pytest.raises(TypeError, match=said):
        aotviz.aot_function(torch.sin, run_graph, decompositions=table)


def test_a_compiler_that_returns_nothing_is_told_so():
    with pytest.raises(TypeError, match="the backend compiler returned None"):
        aotviz.compile(lambda x: x * 2, backend=lambda graph, inputs: None)(torch.ones(2))


def test_a_partitioner_goes_by_its_name_too() -> None:
    kept = []
    for name in ("default_partition", "min_cut_rematerialization_partition"):
        compiled = aotviz.compile(lambda x: x.sin().cos().sin().sum(), backend="eager", partition_fn=name)
        compiled(torch.ones(3, requires_grad=True)).backward()
        kept.append(len(compiled.recording[0].saved_tensors))
    assert kept[0] > kept[1]
    with pytest.raises(ValueError, match=r"no partitioner 'minimal'; there are default_partition, min_cut"):
        aotviz.compile(torch.sin, partition_fn="minimal")
    with pytest.raises(TypeError, match=r"partition_fn must be callable or a name .* and it is 3"):
        aotviz.compile(torch.sin, partition_fn=3)
