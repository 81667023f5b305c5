"""Streams of the user: what is recorded and waited for happens once and in order, and Inductor is told to keep it.

A machine without an accelerator has no streams, and Dynamo captures none. So the graphs are made as Dynamo makes them
on a GPU, and the streams and events behind the numbers in them are stand-ins that write down what is asked of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.fx as fx
from torch._dynamo import lookup_backend
from torch._dynamo.variables import streams as torchs_streams
from torch._inductor import compile_fx
from torch._inductor.codecache import compiled_fx_graph_hash

import aotviz
from aotviz.torch_private import versions
from aotviz.torch_private.graph_nodes import stream_of

keeps_order = pytest.mark.skipif(
    not versions.has("an operator without a result can be tied"),
    reason="Inductor cannot tie an operator without a result",
)
Heard = list[tuple[Any, ...]]


class Stream:
    def __init__(self, number: int, heard: Heard) -> None:
        self.number, self.heard = number, heard

    def record_event(self, event: Event) -> None:  # torch 2.11 asks the stream
        event.record(self)

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def wait_stream(self, other: Stream) -> None:
        self.heard.append(("wait for a stream", self.number, other.number))


class Event:
    def __init__(self, number: int, heard: Heard) -> None:
        self.number, self.heard = number, heard

    def record(self, stream: Stream) -> None:
        self.heard.append(("record", self.number, stream.number))

    def wait(self, stream: Stream) -> None:
        self.heard.append(("wait", self.number, stream.number))


@pytest.fixture
def heard(monkeypatch) -> Heard:
    found: Heard = []
    monkeypatch.setattr(torchs_streams, "_get_stream_by_index", lambda number: Stream(number, found))
    monkeypatch.setattr(torchs_streams, "_get_event_by_index", lambda number: Event(number, found))
    return found


SIDE = 1  # the stream's number; 0 is the caller's
EVENTS = [("record", 7, 0), ("wait", 7, SIDE), ("record", 8, SIDE), ("wait", 8, 0)]


def on_a_side_stream(by: str = "events") -> fx.GraphModule:
    """What Dynamo captures of work in `with torch.cuda.stream(side):` that waits for what is before it, and is waited
    for."""
    graph, ops = fx.Graph(), torch.ops.streams

    def wait(event: int, waiting: int, waited_for: int) -> None:
        if by == "streams":
            graph.call_function(ops.wait_stream.default, (waiting, waited_for))
        else:
            graph.call_function(ops.record_event.default, (event, waited_for))
            graph.call_function(ops.wait_event.default, (event, waiting))

    x, y = graph.placeholder("x"), graph.placeholder("y")
    product = graph.call_function(torch.mul, (x, y))
    wait(7, SIDE, 0)
    worked = graph.call_function(torch.sin, (product,))
    worked.meta["custom"] = {"stream": SIDE, "mine": "kept"}
    wait(8, 0, SIDE)
    graph.output((graph.call_function(torch.add, (worked, product)),))
    return fx.GraphModule({}, graph)


def inputs(requires_grad: bool = False) -> list[torch.Tensor]:
    return [torch.linspace(-1, 1, 3).requires_grad_(requires_grad), torch.ones(3)]


def given_to_inductor(monkeypatch) -> list[fx.GraphModule]:
    """The graphs that Inductor's inner compiler gets from now on. They run operator by operator: what Inductor makes of
    them needs the streams."""
    found: list[fx.GraphModule] = []

    def keep(module: fx.GraphModule, example_inputs: Any, **_: Any) -> Any:
        found.append(module)
        run = lambda args: module(*args)  # noqa: E731
        run._boxed_call = True
        return run

    monkeypatch.setattr(compile_fx, "compile_fx_inner", keep)
    return found


def test_events_are_recorded_and_waited_for_once_in_a_training_step_and_in_eagers_order(heard):
    x, y = inputs(requires_grad=True)
    (result,) = lookup_backend("aotviz_eager")(on_a_side_stream(), [x, y])(x, y)
    assert heard == EVENTS
    result.sum().backward()
    assert heard == EVENTS  # the backward records and waits for none: a partitioner would have copied all four to it
    expected = x.detach().requires_grad_()
    ((expected * y).sin() + expected * y).sum().backward()
    assert torch.equal(x.grad, expected.grad)


@pytest.fixture(scope="module")
def tell() -> Iterator[Heard]:
    """What `torch.ops.aotviz_streams.tell` was called with: an operator that returns nothing and has a side effect."""
    seen: Heard = []
    with torch.library._scoped_library("aotviz_streams", "DEF") as library:
        library.define("tell(str text, Tensor? x=None) -> ()")
        library.impl("tell", lambda text, x=None: seen.append((text,)), "CompositeExplicitAutograd")
        torch.library.register_fake("aotviz_streams::tell", lambda text, x=None: None, lib=library)
        fx.node.has_side_effect(torch.ops.aotviz_streams.tell.default)
        yield seen


class Told(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        torch.ops.aotviz_streams.tell("forward")
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        torch.ops.aotviz_streams.tell("backward", *ctx.saved_tensors)
        torch.ops.aotviz_streams.tell("backward again")
        return gradient * 2


@pytest.mark.parametrize("partition_fn", ["min-cut", "default"])
def test_effects_happen_in_their_half_once_and_in_order(tell, partition_fn):
    tell.clear()
    x = torch.ones(3, requires_grad=True)
    compiled = aotviz.compile(lambda x: Told.apply(x.sin()), backend="eager", partition_fn=partition_fn, cache=False)
    result = compiled(x)
    assert tell == [("forward",)]
    result.sum().backward()
    assert tell == [("forward",), ("backward",), ("backward again",)]
    assert torch.equal(x.grad, 2 * torch.ones(3).cos())


def without_inductor(module: fx.GraphModule) -> list[fx.GraphModule]:
    found: list[fx.GraphModule] = []
    compiler = lambda graph, _: found.append(graph) or graph  # noqa: E731
    aotviz.aot_module_simplified(module, inputs(), fw_compiler=compiler, inference_compiler=compiler)
    return found


def any_order(module: fx.GraphModule, choose: random.Random) -> list[fx.Node]:
    """The nodes of a graph in one of the orders that its data allow."""
    left, done = list(module.graph.nodes), []
    while left:
        ready = [node for node in left if not set(node.all_input_nodes) - set(done)]
        done.append(choose.choice([node for node in ready if node.op != "output"] or ready))
        left.remove(done[-1])
    return done


def what_happens(module: fx.GraphModule, order: Sequence[fx.Node], inputs: Sequence[Any], heard: Heard) -> Any:
    """Run a graph in that order, and write down its computations among the events. Returns its results."""
    values: dict[fx.Node, Any] = dict(zip(module.graph.find_nodes(op="placeholder"), inputs, strict=True))
    for node in order:
        args = fx.node.map_arg(node.args, lambda one: values[one])
        if node.op == "output":
            return args[0]
        if node.op == "get_attr":
            values[node] = getattr(module, node.target)
        if node.op == "call_function":
            values[node] = node.target(*args, **node.kwargs)
            if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "aten":
                heard.append((node.target.overloadpacket.__name__,))
    raise AssertionError("a graph ends with its output")


@keeps_order
@pytest.mark.parametrize("wait", ["events", "streams"])
def test_inductor_may_move_what_it_gets_and_all_happens_in_the_users_order(heard, monkeypatch, wait):
    module = on_a_side_stream(wait)
    graphs = given_to_inductor(monkeypatch)
    lookup_backend("aotviz")(module, inputs())
    (untied,) = without_inductor(module)
    heard.clear()
    expected = what_happens(untied, list(untied.graph.nodes), inputs(), heard)
    in_users_order = list(heard)
    choose, others = random.Random(0), 0
    for _ in range(50):
        heard.clear()
        results = what_happens(graphs[0], any_order(graphs[0], choose), inputs(), heard)
        assert heard == in_users_order
        assert torch.equal(results[0], expected[0])
        heard.clear()
        what_happens(untied, any_order(untied, choose), inputs(), heard)
        others += heard != in_users_order
    assert others  # without the ties, the data allow other orders


@keeps_order
def test_inductor_gets_a_backward_of_one_stream_without_events(heard, monkeypatch):
    ours = given_to_inductor(monkeypatch)
    x, y = inputs(requires_grad=True)
    (result,) = lookup_backend("aotviz")(on_a_side_stream(), [x, y])(x, y)
    result.sum().backward()
    forward, backward = ours
    assert heard == EVENTS
    assert {SIDE} == {stream_of(node) for node in forward.graph.nodes} - {None}
    assert {stream_of(node) for node in backward.graph.nodes} == {None}
    assert any(node.meta.get("custom") == {"mine": "kept"} for node in backward.graph.nodes)  # the user's own note
    expected = x.detach().requires_grad_()
    ((expected * y).sin() + expected * y).sum().backward()
    torch.testing.assert_close(x.grad, expected.grad)


def test_a_graph_on_another_stream_has_another_key_in_inductors_cache(monkeypatch):
    keys = []

    def keyed(module: fx.GraphModule, example_inputs: Any, **_: Any) -> Any:
        keys.append(compiled_fx_graph_hash(module, example_inputs, {}, [])[0])
        return lambda args: args

    monkeypatch.setattr(compile_fx, "compile_fx_inner", keyed)
    for stream in (None, SIDE, 2, SIDE):
        graph = fx.Graph()
        node = graph.call_function(torch.sin, (graph.placeholder("x"),))
        if stream is not None:
            node.meta["custom"] = {"stream": stream}
        graph.output((node,))
        lookup_backend("aotviz")(fx.GraphModule({}, graph), [torch.ones(3)])
    assert len({*keys[:3]}) == 3
    assert keys[3] == keys[1]


def test_a_graph_that_writes_an_argument_on_a_stream_runs_in_eager_in_place_of_inductor():
    def module() -> fx.GraphModule:
        graph = fx.Graph()
        x, y = graph.placeholder("x"), graph.placeholder("y")
        base = graph.call_function(torch.mul, (x, y))
        written = graph.call_function(torch.Tensor.mul_, (y, x))
        written.meta["custom"] = {"stream": SIDE}
        graph.output((base,))
        return fx.GraphModule({}, graph)

    for backend in ("aotviz", "aotviz_eager"):
        x, y = torch.full((3,), 2.0), torch.ones(3, requires_grad=True) * 1
        told = (
            pytest.warns(aotviz.RanInEager, match="writes 'y' on a stream of its own")
            if backend == "aotviz"
            else nullcontext()
        )
        with told:
            lookup_backend(backend)(module(), [x, y])(x, y)
        assert torch.equal(y, torch.full((3,), 2.0))
        assert y.grad_fn is not None
