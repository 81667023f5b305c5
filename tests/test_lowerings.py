"""What a lowering tells the pipeline, and what the pipeline tells Inductor: looked at where Inductor would begin."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn
from torch._inductor import compile_fx, config
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import aotviz
from aotviz.frontends.backend import aotviz_inductor
from aotviz.lowerings import lowering_named, run_graph
from aotviz.torch_private.partitioners import default_partition


class Seen:
    """Stands in for Inductor's inner compiler: notes what it was given, and runs the graph as it is."""

    def __init__(self):
        self.calls = []

    def __call__(self, graph_module, example_inputs, **arguments):
        (output,) = graph_module.graph.find_nodes(op="output")
        arguments["visible"] = output.meta["user_visible_output_idxs"]
        arguments["tuned"] = config.max_autotune
        arguments["strides"] = [a.stride() for a in example_inputs if isinstance(a, torch.Tensor)]
        self.calls.append(arguments)
        return run_graph(graph_module, example_inputs)


@pytest.fixture
def inductor(monkeypatch):
    seen = Seen()
    monkeypatch.setattr(compile_fx, "compile_fx_inner", seen)
    return seen


def test_inductor_hears_which_outputs_a_user_can_see(inductor):
    def f(x, w):
        x.mul_(2)
        y = x * w
        return y.t(), y.exp()

    w = torch.randn(3, 4, requires_grad=True)
    aotviz.compile(f, backend="inductor")(torch.randn(3, 4) * w, w)
    (forward,) = inductor.calls
    assert forward["visible"] == [1, 2]  # the first is the mutated input's value, and saved values follow
    assert not forward["is_inference"]


def test_every_output_of_an_inference_graph_is_seen(inductor):
    aotviz.compile(lambda x: (x + 1, x.exp()), backend="inductor")(torch.ones(2))
    assert inductor.calls[0]["visible"] == [0, 1]
    assert inductor.calls[0]["is_inference"]


@pytest.mark.parametrize("door", ["aotviz.compile", "torch.compile"])
def test_parameters_and_buffers_are_static_inputs(inductor, door):
    module, x = nn.BatchNorm1d(3), torch.ones(4, 3)
    if door == "aotviz.compile":
        aotviz.compile(module, backend="inductor")(x)
    else:
        torch._dynamo.reset()
        torch.compile(module, backend=aotviz_inductor)(x)
    static = inductor.calls[0]["static_input_idxs"]
    assert len(static) == 5  # weight, bias, mean, variance, count; not x


def test_forward_and_backward_of_a_program_share_a_graph_id(inductor):
    f = aotviz.compile(lambda x: x.sin(), backend="inductor")
    for size in (2, 3):
        f(torch.ones(size, requires_grad=True)).sum().backward()
    ids = [call["graph_id"] for call in inductor.calls]
    backward = [call.get("is_backward", False) for call in inductor.calls]
    assert backward == [False, True, False, True]
    assert ids[0] == ids[1] != ids[2] == ids[3]


def test_settings_hold_for_a_backward_that_is_compiled_later(inductor):
    f = aotviz.compile(lambda x: x.sin(), backend="inductor", options={"max_autotune": True})
    y = f(torch.ones(2, requires_grad=True))
    assert not config.max_autotune
    y.sum().backward()
    assert [call["tuned"] for call in inductor.calls] == [True, True]


def test_inductor_writes_inputs_in_the_graph_and_eager_does_not(inductor):
    def f(x):
        x.add_(1)
        return x * 2

    for backend, operator in (("inductor", True), ("eager", False)):
        compiled = aotviz.compile(f, backend=backend)
        x = torch.ones(3)
        compiled(x)
        assert x.tolist() == [2, 2, 2]
        graph = compiled.program.lowered.call.graph_module.graph
        assert any(node.target is torch.ops.aten.copy_.default for node in graph.nodes) == operator


def test_overrides_win_and_none_leaves_the_backends_choice():
    eager = lowering_named("eager")
    assert eager.options(partition_fn=None).partition_fn.__name__ == "min_cut_rematerialization_partition"
    assert eager.options(partition_fn=default_partition).partition_fn is default_partition
    assert (
        lowering_named("inductor").options(keep_inference_input_mutations=False).keep_inference_input_mutations is False
    )


def test_a_callable_compiles_every_graph():
    graphs = []

    def compiler(graph_module, example_inputs):
        graphs.append(graph_module)
        return graph_module.forward

    aotviz.compile(lambda x: x.sin(), backend=compiler)(torch.ones(2, requires_grad=True)).sum().backward()
    assert len(graphs) == 2
    assert lowering_named(compiler).options().backend == "compiler"


def test_what_is_not_a_backend_is_named():
    with pytest.raises(ValueError, match="backend is 'tvm'; it can be 'inductor', 'eager' or a callable"):
        lowering_named("tvm")
    with pytest.raises(ValueError, match="'eager' has no settings, but these were passed: max_autotune"):
        lowering_named("eager", {"max_autotune": True})
    with pytest.raises(TypeError, match="'partitioner' is not an option of a compilation; the options are fw_compiler"):
        lowering_named("eager").options(partitioner=default_partition)
    with pytest.raises(ValueError, match="'max_autotun' is not an Inductor setting"):
        lowering_named("inductor", {"max_autotun": True})


def test_a_backward_that_keeps_its_saved_tensors_is_not_taken_from_the_cache_of_one_that_does_not():
    def f(x, w):
        return ((x @ w).sin() @ w).cos().sum()

    gradients = []
    for compiled in (aotviz.compile(f), aotviz.compile(f, donate_buffers=False)):
        torch.manual_seed(0)
        x, w = torch.rand(4, 4, requires_grad=True), torch.rand(4, 4, requires_grad=True)
        loss = compiled(x, w)
        keeps = compiled.program.lowered.call.donated == ()
        loss.backward(retain_graph=keeps)
        if keeps:
            x.grad = None
            loss.backward()
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[0], gradients[1])


def test_of_two_nodes_with_one_operator_each_has_the_call_that_computes_it():
    a, b = torch.rand(4, 4, requires_grad=True), torch.rand(4, 4)
    with config.patch(fx_graph_cache=False):
        compiled = aotviz.compile(lambda x, a, b: x @ a @ b)
        compiled(torch.ones(4, 4), a, b).sum().backward()
    lowered = {stage.name: stage for stage in compiled.recording[0].data.stages if stage.kernels}
    assert lowered["lower"].kernels == {
        "inductor forward": {"extern_kernels.mm:1": ["mm"], "extern_kernels.mm:2": ["mm_1"]}
    }
    computed = lowered["lower backward"].kernels["inductor backward"]
    assert {node for nodes in computed.values() for node in nodes} >= {"mm_2", "mm_3"}
    assert all(f"handles] {call}\n" in lowered["lower backward"].code["inductor backward"] for call in computed)
    assert not lowered["lower"].replays


def test_a_graph_that_inductors_cache_has_is_said_to_be_from_there():
    with config.patch(fx_graph_cache=True):
        for _ in range(2):
            compiled = aotviz.compile(lambda x, y: (x @ y) @ x)
            compiled(torch.ones(4, 4), torch.ones(4, 4))
    (lowered,) = [stage for stage in compiled.recording[0].data.stages if stage.name == "lower"]
    assert set(lowered.replays) == {"inference"}
    assert lowered.replays["inference"] > 0
    assert lowered.kernels["inductor inference"]["extern_kernels.mm:2"] == ["mm_1"]  # which the cache keeps too


def test_the_users_own_level_of_provenance_stays():
    seen = []
    with config.patch({"trace.provenance_tracking_level": 1}):
        compiled = aotviz.compile(lambda x: x @ x)
        original = compile_fx.compile_fx_inner

        def noted(*args, **kwargs):
            seen.append(config.trace.provenance_tracking_level)
            return original(*args, **kwargs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compile_fx, "compile_fx_inner", noted)
            compiled(torch.ones(3, 3))
    assert seen == [1]


class Dispatched(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operators = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operators.append(func)
        return func(*args, **(kwargs or {}))


def test_a_graph_calls_the_dispatcher_itself_and_a_mode_sees_the_operators():
    x = torch.tensor([1.0, 2.0])
    run = run_graph(make_fx(lambda x: (x.sin() + 1).cos())(x), [x])
    assert "torch.ops" not in inspect.getsource(run)
    with Dispatched() as seen:
        result = run([x])
    aten = torch.ops.aten
    assert seen.operators == [aten.sin.default, aten.add.Tensor, aten.cos.default]
    assert torch.equal(result, (x.sin() + 1).cos())


def test_a_value_with_the_name_of_an_operator_hides_none():
    graph = torch.fx.Graph()
    x = graph.placeholder("aten_sin_default")
    graph.output((graph.call_function(torch.ops.aten.sin.default, (x,)),))
    x = torch.tensor([1.0, 2.0])
    (result,) = run_graph(torch.fx.GraphModule({}, graph), [x])([x])
    assert torch.equal(result, x.sin())


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_scaled_matrix_product_is_added_with_its_scale(requires_grad):
    """Before torch 2.15, Inductor makes one operator of the two and forgets the scale: 3.9 for 1.2 here."""

    def f(m, a, b):
        return (m * 0.9).add(a @ b, alpha=0.1), m.add(a.mm(b).tanh(), alpha=-2)

    m, a, b = torch.ones(3, 3), torch.ones(3, 3, requires_grad=requires_grad), torch.ones(3, 3)
    found = aotviz.compile(f, cache=False, record=False)(m, a, b)
    torch.testing.assert_close(found, f(m, a, b))
