"""A snapshot holds what the graph held, small, and follows a value from graph to graph."""

from __future__ import annotations

import copy
import enum
import gc
import operator
import weakref
from typing import Any

import msgspec
import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from aotviz.recorder import naming
from aotviz.recorder.snapshot import SnapshotWriter
from aotviz.recording import files
from aotviz.recording.graph import Graph
from aotviz.recording.schema import (
    FORMAT,
    NONE,
    VERSION,
    CompilationData,
    GraphSnapshot,
    RecordingData,
    StageRecord,
)


def traced(fn: Any, *inputs: Any, symbolic: bool = False) -> fx.GraphModule:
    return make_fx(fn, tracing_mode="symbolic" if symbolic else "fake")(*inputs)


def recording_of(writer: SnapshotWriter, graphs: list[GraphSnapshot]) -> RecordingData:
    """The graphs as a recording, each a stage of its own."""
    stages = [StageRecord(str(i), "", "", True, False, 0, 0, {"joint": i}, [], {}) for i in range(len(graphs))]
    values = writer.values.take()
    data = CompilationData("0", "f", "training", 0, {}, stages, graphs, values, [], [], [], None, None)
    return RecordingData(FORMAT, VERSION, {}, writer.strings.texts, [data], 0)


def view(writer: SnapshotWriter, snapshot: GraphSnapshot) -> Graph:
    return Graph(snapshot, writer.values.take(), writer.strings.texts, "joint", "trace")


def test_nodes_read_back_as_they_stood() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        parts = torch.split(x + y, 2)
        return torch.cat([parts[0].cos(), parts[1]]).to(torch.float64), x.sum(dim=[0], keepdim=True)

    module = traced(f, torch.randn(4, 3), torch.randn(4, 3))
    writer = SnapshotWriter()
    graph = view(writer, writer.graph(module))
    nodes = {node.name: node for node in module.graph.nodes}
    table = graph.nodes.set_index("name")
    assert table.index.tolist() == list(nodes)
    assert table.op.tolist() == [node.op for node in nodes.values()]
    for name, node in nodes.items():
        assert table.users[name] == tuple(user.name for user in node.users)
        if isinstance(node.target, torch._ops.OpOverload):
            assert table.target[name] == str(node.target)
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            assert table["shape"][name] == tuple(value.shape)
            assert table.stride[name] == value.stride()
            assert table.dtype[name] == str(value.dtype)
            assert table.device[name] == str(value.device)
    assert table.args["cat"] == "[cos, getitem_1]"
    assert table.args["getitem_1"] == "split, 1"
    assert "dtype=torch.float64" in table.args["_to_copy"]
    assert graph.outputs == ("_to_copy", "sum_1")


def test_views_share_a_storage_group_and_copies_do_not() -> None:
    writer = SnapshotWriter()
    graph = view(writer, writer.graph(traced(lambda x: (x.view(-1), x.t(), x + 1), torch.randn(2, 3))))
    groups = graph.nodes.set_index("name").storage_group
    assert groups.iloc[0] == groups["view"] == groups["t"]
    assert groups["add"] != groups["view"]


def test_a_value_keeps_its_number_in_a_copied_graph() -> None:
    module = traced(lambda x: x.cos().sin(), torch.randn(3))
    copied = fx.Graph()
    copied.output(copied.graph_copy(module.graph, {}))
    writer = SnapshotWriter()
    first, second = writer.graph(module), writer.graph(copied)
    assert first.value == second.value
    assert len(writer.values.take()) == 3


def test_a_tuple_keeps_its_number_when_its_list_is_copied() -> None:
    module = traced(lambda x: torch.split(x, 2)[1], torch.randn(4))
    writer = SnapshotWriter()
    first = writer.graph(module)
    for node in module.graph.nodes:
        if isinstance(node.meta.get("val"), (list, tuple)):
            node.meta["val"] = list(node.meta["val"])
    assert writer.graph(module).value == first.value


def test_after_release_only_values_that_may_be_met_again_are_known_and_kept() -> None:
    module = traced(lambda x: x.cos().sin(), torch.randn(3))
    writer = SnapshotWriter()
    first = writer.graph(module)
    again = [node.meta.get("val") for node in module.graph.nodes][1:]
    writer.release(again)
    later = fx.Graph()
    later.graph_copy(module.graph, {})
    assert writer.graph(later).value[1:] == first.value[1:-1]
    assert writer.graph(later).value[0] not in first.value
    fakes = [weakref.ref(value) for value in (next(iter(module.graph.nodes)).meta["val"], again[0])]
    del module, later, again
    gc.collect()
    assert fakes[1]() is not None
    writer.release()
    gc.collect()
    assert [fake() for fake in fakes] == [None, None]


def test_a_late_view_joins_the_storage_of_its_base() -> None:
    module = traced(lambda x: x.cos().view(-1), torch.randn(2, 3))
    writer = SnapshotWriter()
    base = fx.Graph()
    nodes = {node.name: node for node in module.graph.nodes}
    placeholder = base.placeholder("cos")
    placeholder.meta["val"] = nodes["cos"].meta["val"]
    writer.graph(base)
    before = writer.values.take()
    writer.release([placeholder.meta["val"]])
    writer.graph(module)
    after = [record for record in writer.values.take() if record.shape == [6]]
    assert [record.storage for record in after] == [before[0].storage]


def test_symbolic_sizes_are_text() -> None:
    module = traced(lambda x: (x.view(-1), x.shape[0] * 2), torch.randn(5, 3), symbolic=True)
    writer = SnapshotWriter()
    graph = view(writer, writer.graph(module))
    nodes = graph.nodes
    symbols = nodes[nodes.kind == "symint"]
    assert len(symbols)
    assert all(isinstance(size, str) for size in nodes["shape"].iloc[0][:1])
    assert nodes["shape"].iloc[0][0].startswith("s")
    assert "Sym(" in graph.code


def test_unusual_arguments_keep_their_meaning() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(operator.getitem, (x, (slice(0, None, 2), ..., None)), {"k": {1: x, "b": [x, torch.float16]}})
    graph.call_method("view", (x, 2**70, float("inf"), "a\ud800b", -1))
    graph.call_module("layers.0", (x,))
    graph.get_attr("weight")
    writer = SnapshotWriter()
    seen = view(writer, writer.graph(graph))
    data = recording_of(writer, [seen.snapshot])
    assert files.unpack(files.pack(data)) == data
    args = seen.nodes.args.tolist()
    assert args[1] == "x, [slice(0, None, 2), Ellipsis, None], k={'1': x, 'b': [x, torch.float16]}"
    assert args[2] == f"x, {2**70}, inf, 'a\\\\ud800b', -1"
    assert "x.view(" in seen.code
    assert "self.layers.0(x)" in seen.code


class Mode(enum.IntEnum):
    FAST = 1


def test_an_argument_that_msgpack_would_write_in_its_own_way_is_a_text() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch.add, (x, Mode.FAST, [Mode.FAST, 2**70]), {"k": frozenset([3]), "w": 2**64})
    writer = SnapshotWriter()
    first = view(writer, writer.graph(graph))
    assert first.nodes.args.tolist() == ["", f"x, {Mode.FAST}, [{Mode.FAST}, {2**70}], k=frozenset({{3}}), w={2**64}"]
    assert view(writer, writer.graph(graph)).nodes.equals(first.nodes)


def test_an_edit_of_a_known_node_is_seen() -> None:
    module = traced(lambda x: x.cos().sum(0), torch.randn(3, 3))
    writer = SnapshotWriter()
    before = view(writer, writer.graph(module))
    cos, total = (next(node for node in module.graph.nodes if node.name == name) for name in ("cos", "sum_1"))
    cos.target = torch.ops.aten.sin.default
    total.args = (cos, [1])
    after = Graph(writer.graph(module), before.values, writer.strings.texts, "joint", "edited").nodes.set_index("name")
    assert after.target["cos"] == "aten.sin.default"
    assert after.args["sum_1"] == "cos, [1]"
    assert before.nodes.set_index("name").target["cos"] == "aten.cos.default"


def test_nodes_of_one_name_and_no_value_are_looked_at_each_time() -> None:
    writer = SnapshotWriter()
    sources = []
    for line in (1, 2):
        graph = fx.Graph()
        graph.placeholder("x").meta["stack_trace"] = f'  File "m.py", line {line}, in f\n'
        sources += [writer.strings.texts[number] for number in writer.graph(graph).stack]
    assert sources == ['  File "m.py", line 1, in f', '  File "m.py", line 2, in f']


def test_a_sparse_tensor_among_others_has_no_stride_and_no_storage() -> None:
    graph = fx.Graph()
    dense, sparse = torch.ones(2, 3), torch.eye(3).to_sparse()
    for name, value in (("a", dense), ("b", sparse), ("c", dense.view(-1))):
        graph.placeholder(name).meta["val"] = value
    writer = SnapshotWriter()
    writer.graph(graph)
    records = writer.values.take()
    assert [(record.shape, record.stride) for record in records] == [([2, 3], [3, 1]), ([3, 3], []), ([6], [1])]
    assert records[0].storage == records[2].storage != NONE == records[1].storage


def test_only_the_frames_of_the_user_are_kept() -> None:
    torch_file = f"{naming.TORCHS[0]}nn/modules/linear.py"
    our_file = f"{naming.OURS[0]}frontends/functions.py"
    trace = (
        f'  File "{our_file}", line 1, in compile\n    a()\n'
        '  File "/home/me/model.py", line 2, in forward\n    b(1,\n    ~^^^\n'
        f'  File "{torch_file}", line 3, in forward\n    c()\n'
    )
    assert naming.user_frames(trace) == '  File "/home/me/model.py", line 2, in forward\n    b(1,'
    graph = fx.Graph()
    graph.placeholder("x").meta["stack_trace"] = f'  File "{torch_file}", line 3, in forward\n    c()\n'
    assert SnapshotWriter().graph(graph).stack == [NONE]


def test_a_backward_node_without_a_source_stands_where_its_forward_stands() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    forward, backward = graph.call_function(torch.cos, (x,)), graph.call_function(torch.sin, (x,))
    forward.meta.update(seq_nr=4, stack_trace='  File "m.py", line 2, in f\n', nn_module_stack={"": ("h.0", "Block")})
    backward.meta.update(seq_nr=4, partitioner_tag="is_backward")
    seen = SnapshotWriter().graph(graph)
    assert seen.stack[2] == seen.stack[1] != NONE
    assert seen.module[2] == seen.module[1] != NONE
    assert seen.backward == "001"


def test_descriptors_are_kept_for_inputs_and_for_each_output() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["desc"] = "the weight"
    graph.output((x, None, x)).meta["desc"] = ["first", None]
    writer = SnapshotWriter()
    seen = writer.graph(graph)
    texts = [*writer.strings.texts, "none"]
    assert {i: texts[t] for i, t in seen.descriptor.items()} == {0: "the weight"}
    assert [texts[t] for t in seen.output_descriptors] == ["first", "none", "none"]


def test_a_snapshot_outlives_later_edits() -> None:
    module = traced(lambda x: x.cos().sin(), torch.randn(3))
    writer = SnapshotWriter()
    seen = writer.graph(module)
    packed = msgspec.msgpack.encode(seen)
    for node in reversed(module.graph.nodes):
        node.args = ()
        node.meta.clear()
    assert msgspec.msgpack.encode(seen) == packed


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.attention = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.attention(self.norm(x)).chunk(3, -1)
        x = x + self.out(torch.softmax(q @ k.transpose(-1, -2), -1) @ v)
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


@pytest.fixture(scope="module")
def transformer() -> dict[str, fx.GraphModule]:
    """Joint, forward and backward of four blocks, as torch's own AOTAutograd makes them: some 600 nodes."""
    from torch._functorch.aot_autograd import aot_module_simplified
    from torch._functorch.partitioners import default_partition

    found: dict[str, fx.GraphModule] = {}

    def partition(joint: fx.GraphModule, inputs: Any, **options: Any) -> Any:
        found["joint"] = copy.copy(joint)
        return default_partition(joint, inputs, **options)

    def keep(role: str) -> Any:
        def compiler(module: fx.GraphModule, inputs: Any) -> Any:
            found[role] = module
            return module.forward

        return compiler

    def backend(module: fx.GraphModule, inputs: Any) -> Any:
        return aot_module_simplified(module, inputs, keep("forward"), keep("backward"), partition_fn=partition)

    model = torch.nn.Sequential(*(Block(8) for _ in range(4)))
    torch._dynamo.reset()
    torch.compile(model, backend=backend)(torch.randn(2, 5, 8)).sum().backward()
    return found


def test_a_node_of_a_model_takes_at_most_25_bytes(transformer: dict[str, fx.GraphModule]) -> None:
    writer = SnapshotWriter()
    graphs = [writer.graph(transformer[role]) for role in ("joint", "forward", "backward")]
    nodes = sum(len(graph.op) for graph in graphs)
    assert nodes > 500
    assert len(files.pack(recording_of(writer, graphs))) <= 25 * nodes


def test_values_of_a_model_are_followed_through_the_partition(transformer: dict[str, fx.GraphModule]) -> None:
    writer = SnapshotWriter()
    joint, forward, backward = (writer.graph(transformer[role]) for role in ("joint", "forward", "backward"))
    assert set(forward.value) <= set(joint.value)
    assert set(backward.value) <= set(joint.value)
    texts = writer.strings.texts
    by_value = {value: texts[name] for value, name in zip(joint.value, joint.name, strict=True)}
    same = sum(by_value[v] == texts[n] for v, n in zip(forward.value, forward.name, strict=True))
    assert same > 0.9 * len(forward.op)
    paths = {texts[module].rpartition("\n")[2] for module in joint.module if module != NONE}
    assert {"0.attention|Linear", "3.down|Linear"} <= paths
    assert all(naming.TORCHS[0] not in texts[stack] for stack in joint.stack if stack != NONE)
