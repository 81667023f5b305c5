"""Backwards that are captured and replayed give what autograd's engine gives, to the last bit, in the same order."""

from __future__ import annotations

import contextlib
import gc
import itertools
import warnings
import weakref

import pytest
import torch

import aotviz
from aotviz.lowerings import lowering_named
from aotviz.pipeline import Observer
from aotviz.reading.recording import Recording
from aotviz.recorder.recorder import Recorder
from aotviz.recording.store import Store
from aotviz.torch_private.modules import boxed
from aotviz.whole_backward import backward_stages, engine
from aotviz.whole_backward.compiled_parts import MOST_PROGRAMS, Compiled, CompiledParts
from tests.compiled_autograd.programs import PROGRAMS, in_threads, leaf
from tests.tiers import slow

BY_THE_ENGINE = {  # programs that autograd's engine runs, or a part of them -> why
    "second_derivative": "its gradients are differentiated again (create_graph=True)",
    "batches_of_gradients": "it computes a batch of gradients (is_grads_batched=True, or a transform of torch.func)",
    "modes_in_which_the_engine_runs_it": "inference mode is on",
    "anomaly_mode": "anomaly mode is on, in which the engine names the operator of the forward that failed",
}


def run_as_it_is(part, graph_module, inputs, symbols, reasons):
    return Compiled(boxed(graph_module), None)


class Captures:
    """A setting, what it captured, and why the engine ran what it did not."""

    def __init__(self, observer=None, dynamic=False, compiler=run_as_it_is):
        self.calls, self.told = [], []
        observer, parts = observer or Observer(), CompiledParts(compiler, lambda *_: None)

        def compiled(asked, call):
            self.calls.append(call)
            return backward_stages.compiled(asked, call, observer, parts)

        self.setting = engine.Setting(lowering_named("eager").options(), compiled, self.told.append, dynamic)

    @contextlib.contextmanager
    def on(self):
        with engine.capturing(self.setting):
            yield self


def replaced():
    """What is replaced while a block is open."""
    return (
        torch.autograd._engine_run_backward,
        torch.autograd.Variable._execution_engine,
        torch._C._current_autograd_node,
    )


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = replaced()
    aotviz.compiled_autograd.reset()
    yield
    engine.reset()
    torch._dynamo.reset()
    assert replaced() == before
    prior = torch._C._dynamo.compiled_autograd.set_autograd_compiler(None, False)
    assert prior == (None, False)


def equal(one, other):
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, torch.Tensor):
        if other is None or one.layout != other.layout or one.dtype != other.dtype:
            return False
        return torch.equal(one.to_dense(), other.to_dense()) if one.layout != torch.strided else torch.equal(one, other)
    return one == other


def both(program, captures):
    """What a program gives in eager, and captured."""
    torch.manual_seed(0)
    expected = program()
    torch._dynamo.reset()
    torch.manual_seed(0)
    with captures.on():
        return expected, program()


@pytest.mark.parametrize("dynamic", [False, slow(True)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_backward_equals_eagers(name, dynamic):
    captures = Captures(dynamic=dynamic)
    expected, found = both(PROGRAMS[name], captures)
    assert equal(expected, found), (expected, found)
    assert captures.calls or name in BY_THE_ENGINE or name == "graphs_that_are_gone_or_were_never_there"
    assert set(captures.told) <= {
        BY_THE_ENGINE.get(name),
        "a TorchDispatchMode is active, which sees each operator",
        "a level of forward-mode differentiation is open",
    }
    assert (BY_THE_ENGINE.get(name) in captures.told) == (name in BY_THE_ENGINE)


def test_a_second_size_is_captured_once_and_serves_for_all():
    captures = Captures()
    both(PROGRAMS["batches_of_four_sizes"], captures)
    assert len(captures.calls) == 2
    assert [any(one.kind == "size" for one in call.inputs) for call in captures.calls] == [False, True]


def test_threads_are_right_and_told_when_the_engine_ran_them():
    captures = Captures()

    def work(k):
        x = torch.full((4,), float(k), requires_grad=True)
        with captures.on():
            for _ in range(20):
                (x.sin() * x).sum().backward()
        return x.grad

    expected = []
    for k in range(6):
        x = torch.full((4,), float(k), requires_grad=True)
        for _ in range(20):
            (x.sin() * x).sum().backward()
        expected.append(x.grad)
    assert equal(expected, in_threads(6, work))
    assert set(captures.told) <= {"another thread runs a backward at the same time"}


def test_a_backward_that_cannot_be_compiled_is_run_by_the_engine():
    told = []

    def refuses(asked, call):
        raise ValueError("not this one")

    setting = engine.Setting(lowering_named("eager").options(), refuses, told.append)
    x = leaf(3)
    x.register_hook(lambda g: g * 2)
    with engine.capturing(setting):
        (x * 3).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 6.0))
    assert told == ["it could not be captured (ValueError: not this one)"]


def test_an_interrupt_while_compiling_leaves_the_graph_whole():
    def interrupted(asked, call):
        raise KeyboardInterrupt

    setting = engine.Setting(lowering_named("eager").options(), interrupted, print)
    x = leaf(3)
    y = (x.sin() * x).sum()
    with engine.capturing(setting), pytest.raises(KeyboardInterrupt):
        y.backward()
    y.backward()
    assert torch.equal(x.grad, x.cos() * x + x.sin())


def test_torchs_own_compiled_autograd_works_before_and_after():
    from torch._dynamo import compiled_autograd

    for _ in range(2):
        x = leaf(3)
        with compiled_autograd._enable(torch.compile(backend="eager")):
            (x.sin() * 3).sum().backward()
        assert torch.equal(x.grad, 3 * x.cos())
        engine.reset()
        captures, x = Captures(), leaf(3)
        with captures.on():
            (x.sin() * 3).sum().backward()
        assert torch.equal(x.grad, 3 * x.cos())
        assert len(captures.calls) == 1
        engine.reset()


def test_the_stages_are_recorded_with_what_runs():
    store = Store()
    captures = Captures(Recorder(store, strict=True))
    x, w = leaf(4), leaf(4)
    with captures.on():
        ((x * w).sin() + x).sum().backward()
    recording = Recording(store, {})
    (data,) = recording.compilations
    assert [stage.name for stage in data.data.stages] == [
        "capture",
        "eager order",
        "dead nodes",
        "compiled parts",
        "replay",
    ]
    source = data.data.stages[-1].code["replay"]
    assert source.startswith("def backward(inputs, sizes, scalars, hooks, packed):")
    assert "# AccumulateGrad" in source


def step(model, x):
    model.zero_grad()
    loss = model(x).square().sum()
    loss.backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.fixture
def model():
    torch.manual_seed(0)
    made = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    yield made
    aotviz.compiled_autograd.reset()


@pytest.mark.parametrize("backend", ["eager", slow("inductor")])
def test_a_block_at_every_step_captures_once(model, backend):
    x = torch.randn(5, 4)
    expected = step(model, x)
    recordings = []
    for _ in range(3):
        with aotviz.compiled_autograd(backend=backend) as recording:
            found = step(model, x)
        torch.testing.assert_close(found, expected)
        recordings.append(recording)
    recording, *others = recordings
    assert [len(one) for one in others] == [0, 0]
    whole, part = recording
    assert [stage.name for stage in whole.data.stages][-1] == "replay"
    assert part.data.stages[-1].name == "link"
    assert recording.explain()


def test_the_recording_of_a_block_has_what_was_captured_in_that_block(model):
    def of(program):
        with aotviz.compiled_autograd(backend="eager") as recording:
            program()
        return recording

    x = leaf(3)
    first, second = of(lambda: step(model, torch.randn(5, 4))), of(lambda: x.sin().sum().backward())
    assert {visit.node for visit in second[0].visits.itertuples()} >= {"SinBackward0"}
    assert [one.name for one in second] == ["backward", "backward, part 0"]
    for _ in range(2):
        with pytest.warns(aotviz.RanInEager):
            third = of(lambda: torch.autograd.grad(x.sin().sum(), x, create_graph=True))
        assert [one.data.error.ran_in_eager for one in third] == [True]
    assert len(first) == 2

    outer, inner = aotviz.compiled_autograd(backend="eager"), aotviz.compiled_autograd(backend="eager")
    with outer as all_of_it, outer:
        (x * x.exp()).sum().backward()
        with inner as nested:
            (x * x.cos()).sum().backward()
    assert [one.name for one in all_of_it] == ["backward", "backward, part 0"] * 2
    assert len(nested) == 2


def test_a_users_compiler_gets_the_whole_backward_as_one_graph(model):
    graphs = []

    def compiler(graph_module, example_inputs):
        graphs.append(graph_module)
        return graph_module

    @aotviz.compiled_autograd(backend=compiler)
    def train(x):
        return step(model, x)

    x = torch.randn(5, 4)
    torch.testing.assert_close(train(x), step(model, x))
    (graph,) = graphs
    targets = {str(node.target) for node in graph.graph.nodes}
    assert {"aten.mm.default", "aten.native_layer_norm_backward.default"} <= targets


def test_a_part_is_compiled_for_each_layout_and_then_runs_operator_by_operator(model):
    graphs = []

    def compiler(graph_module, example_inputs):
        graphs.append(graph_module)
        return graph_module

    for rows in (*range(2, MOST_PROGRAMS + 6), 3):
        x = torch.randn(rows, 4)
        expected = step(model, x)
        with aotviz.compiled_autograd(backend=compiler):
            torch.testing.assert_close(step(model, x), expected)
    assert 0 < len(graphs) <= MOST_PROGRAMS + 1  # the first capture's own part, and those of the one with symbols


def test_sizes_are_symbols_at_once_where_dynamic_asks_for_it():
    block = aotviz.compiled_autograd(backend="eager", dynamic=True)
    for n in (3, 4, 5, 2, 1, 0):
        x = leaf(n)
        with block as recording:
            (x * x).sum().backward()
        assert torch.equal(x.grad, 2 * x.detach())
    whole, part, *others = recording
    (shape,) = (row.shape for row in part.inputs.itertuples() if row.name == "x")
    assert not isinstance(shape[0], int)
    assert whole.name == "backward"
    assert [one.name for one in others] == [part.name] * 2  # sizes 1 and 0 need programs of their own
    told = [*recording.recompiles().itertuples()]
    assert [(one.subject, one.after) for one in told] == [("x.shape[0]", "1"), ("x.shape[0]", "0")]
    assert all(one.fix.startswith("Sizes 0 and 1 always get a program") for one in told)


def test_the_sizes_of_parameters_are_no_symbols(model):
    x = torch.randn(5, 4)
    with aotviz.compiled_autograd(backend="eager", dynamic=True) as recording:
        step(model, x)
    _, part = recording
    weights = [row.shape for row in part.inputs.itertuples() if row.name.endswith("weight")]
    assert weights
    assert all(isinstance(size, int) for shape in weights for size in shape)


def test_a_number_of_a_part_has_advice_that_a_user_can_act_on():
    x, block = torch.randn((), requires_grad=True), aotviz.compiled_autograd(backend="eager")
    for n in (3, 4, 1):
        with block as recording:
            x.expand(n).sum().backward()
        x.grad = None
    *_, row = recording.recompiles().itertuples()
    assert row.why.endswith("the number `sum_backward0_size_0`, which the backward reads, was 4 and is now 1.")
    assert row.fix.startswith("Sizes 0 and 1 always get a program")


def test_a_part_that_has_all_its_programs_says_once_that_it_runs_operator_by_operator():
    block = aotviz.compiled_autograd(backend="eager")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for order in itertools.permutations(range(4)):
            x, w = torch.randn(2, 3, 4, 5), torch.ones(2, 3, 4, 5, requires_grad=True)
            x = x.permute(order).contiguous().permute([order.index(k) for k in range(4)])
            with block as recording:
                (w * x).sum().backward()
            assert torch.equal(w.grad, x)
    (one,) = (one for one in warned if one.category is aotviz.RanInEager)
    assert "backward, part 0 runs operator by operator" in str(one.message)
    assert one.filename == __file__
    *compiled, last = recording.recompiles().itertuples()
    assert [row.outcome for row in compiled] == ["compiled"] * (MOST_PROGRAMS - 1)
    assert (last.outcome, last.subject) == ("limit", "x.stride()")
    assert f"reached the recompile limit of {MOST_PROGRAMS}" in last.why


def test_what_the_engine_runs_is_warned_of_at_the_users_line():
    x = leaf(3)
    with aotviz.compiled_autograd(backend="eager"), pytest.warns(aotviz.RanInEager, match="create_graph=True") as told:
        torch.autograd.grad(x.sin().sum(), x, create_graph=True)
    assert told[0].filename == __file__
    aotviz.compiled_autograd.reset()


def test_a_block_inside_that_disables_it(model):
    with aotviz.compiled_autograd(backend="eager") as recording, aotviz.compiled_autograd.disable():
        step(model, torch.randn(2, 4))
    assert len(recording) == 0


def test_an_unknown_backend_or_option_is_named():
    with pytest.raises(ValueError, match="'nonsense'"):
        aotviz.compiled_autograd(backend="nonsense")
    with pytest.raises(ValueError, match="no option 'colour'"):
        aotviz.compiled_autograd(options={"colour": 1})


@pytest.mark.parametrize("how", ["reset", "autocast"])
def test_what_a_forgotten_capture_held_is_freed(how, monkeypatch):
    """C++ keeps a reference to what it was given for each capture, for good."""
    graphs = []
    form_of = engine.form_of

    def noting(capture, options):
        graphs.append(weakref.ref(capture.graph))
        return form_of(capture, options)

    monkeypatch.setattr(engine, "form_of", noting)
    w = torch.ones(3, requires_grad=True)
    with aotviz.compiled_autograd(backend="eager", options={"record": False}):
        (w * 2).sum().backward()
        if how == "autocast":
            with torch.autocast("cpu", dtype=torch.bfloat16):
                (w * 2).sum().backward()
    if how == "reset":
        aotviz.compiled_autograd.reset()
    gc.collect()
    assert [bool(graph()) for graph in graphs] == ([False] if how == "reset" else [False, True])
    assert w.grad.tolist() == [2.0 if how == "reset" else 4.0] * 3
