"""Graphs that torch printed read back as they were, node by node; and bad text costs nodes, never an exception."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.graph import CodeGen, _BoxedCodeGen, _parse_stack_trace
from torch.utils.checkpoint import checkpoint

from aotviz.logs.printed.printed_graphs import Printed, PrintedGraphs
from aotviz.recorder.snapshot import SnapshotWriter
from aotviz.recording import files
from aotviz.recording.graph import Graph
from aotviz.recording.schema import FORMAT, NONE, VERSION, CompilationData, RecordingData, StageRecord
from tests.oracle.programs import PROGRAMS


@dataclass
class Print:
    """A text that torch printed, and the graph in it as it truly stood."""

    text: str
    path: str  # of the graph in the text
    truth: Graph
    nodes: list[fx.Node]
    options: dict[str, Any]

    @property
    def role(self) -> str:
        return "joint" if "tree_unflatten" in self.text else "forward"


@contextmanager
def prints() -> Iterator[list[Print]]:
    """Collects what torch prints of its graphs for a structured trace, each with the truth of that moment."""
    found: list[Print] = []
    real = fx.GraphModule.print_readable

    def spy(self: fx.GraphModule, *args: Any, **kwargs: Any) -> str:
        text = real(self, *args, **kwargs)
        for path, module in self.named_modules():
            if isinstance(module, fx.GraphModule):
                writer = SnapshotWriter()
                snapshot = writer.graph(module)
                truth = Graph(snapshot, writer.values.take(), writer.strings.texts, "forward", "")
                found.append(Print(text, path, truth, list(module.graph.nodes), kwargs))
        return text

    handler, logger = logging.NullHandler(), logging.getLogger("torch.__trace")
    fx.GraphModule.print_readable = spy  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)
        fx.GraphModule.print_readable = real  # type: ignore[method-assign]


def train(fn: Callable[..., Any], *args: Any, dynamic: bool | None = None, **kwargs: Any) -> list[Print]:
    torch._dynamo.reset()
    with prints() as found:
        result = torch.compile(fn, backend="aot_eager", dynamic=dynamic)(*args, **kwargs)
        for output in torch.utils._pytree.tree_leaves(result):
            if isinstance(output, torch.Tensor) and output.requires_grad:
                output.sum().backward(retain_graph=True)
    return found


def read(text: str, role: str = "forward", path: str = "") -> tuple[Graph, Printed]:
    reader = PrintedGraphs()
    printed = reader.read(text, role)
    return Graph(printed.graphs[path], reader.values, reader.strings.texts, role, ""), printed


def type_of(graph: Graph, value: Any, options: dict[str, Any]) -> tuple[Any, ...] | None:
    """What a printer with these options shows of a value."""
    if value is None or value.kind in ("tuple", "other"):
        return None
    if value.kind != "tensor":
        return value.kind, graph.text(value.text)
    stride = value.stride if options.get("include_stride") else None
    device = graph.text(value.device) if options.get("include_device") else None
    return "tensor", graph.text(value.dtype), value.shape, stride, device


def frame(node: fx.Node) -> tuple[str, str, str, str] | None:
    found = _parse_stack_trace(node.stack_trace) if node.stack_trace else None
    return (found.file, found.lineno, found.name, found.code) if found else None


def assert_equal(printed: Print) -> None:
    graph, whole = read(printed.text, printed.role, printed.path)
    assert whole.notes == ()
    assert [row.name for row in graph.rows] == [row.name for row in printed.truth.rows]
    for row, true, node in zip(graph.rows, printed.truth.rows, printed.nodes, strict=True):
        assert (row.op, row.target, row.args, row.inputs) == (true.op, true.target, true.args, true.inputs)
        if node.op != "output":
            expected = type_of(printed.truth, true.value, printed.options)
            assert type_of(graph, row.value, printed.options) == expected, node
        if node.op not in ("placeholder", "output"):
            source = row.source
            shown = (source.file, str(source.line), source.function, source.code) if source.line else None
            assert shown == frame(node)
        if printed.options.get("expanded_def") and not printed.path and node.op == "placeholder":
            assert row.descriptor == str(node.meta.get("desc", ""))
    assert len(graph.output_descriptors) == len(printed.truth.output_descriptors)


# Every seventh, so that each kind is met; `data = ` calls functions whose names torch does not print in full.
SAMPLE = [name for name in PROGRAMS if name not in ("data_is_assigned", "inference_mode_inside")][::7]


@pytest.mark.every(3)
@pytest.mark.parametrize("name", SAMPLE)
def test_a_printed_graph_reads_back_as_it_was(name: str) -> None:
    program = PROGRAMS[name]
    call = program.builds[0]()
    try:
        found = train(call.fn, *call.args, dynamic=program.dynamic or None, **call.kwargs)
    except (RuntimeError, AssertionError):
        pytest.skip("torch itself does not compile it")
    found = [p for p in found if p.nodes[-1].name == "output"]
    if not found:
        pytest.skip("no graph, or the name of a second output node is not in its text")
    for printed in found:
        assert_equal(printed)


def branches(x: torch.Tensor) -> Any:
    def inner(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 1, lambda y: (y + 1, y.relu()), lambda y: (y * 2, y + 3), (x,))

    return torch.cond(x.sum() > 0, lambda x: (x.sin(), x.cos()), inner, (x,))


def recomputed(x: torch.Tensor) -> Any:
    return checkpoint(lambda y: (y @ y).sin(), x, use_reentrant=False)


def notations(x: torch.Tensor) -> Any:
    x = x.detach()
    y = x.clone()
    y[0] = 1
    y += 2
    y[:, None, ::2] *= 3
    cast = y.T[..., -1].to(torch.device("cpu"), torch.float64, memory_format=torch.contiguous_format)
    return cast, torch.full((3,), float("-inf")), ~(x > 0) & (x < 1), -(x**2) // 3, x * (1 + 2j), {"k": x.mul(other=3)}


@pytest.mark.parametrize("fn", [branches, recomputed, notations])
def test_inner_graphs_and_every_notation_read_back(fn: Callable[..., Any]) -> None:
    found = train(fn, torch.randn(4, 4, requires_grad=True))
    assert found
    for printed in found:
        assert_equal(printed)
    if fn is branches:
        paths = {printed.path for printed in found}
        assert {"cond_true_0", "cond_false_0.cond_true_0"} <= paths or {"true_graph_0"} <= paths


def test_the_backward_of_a_joint_graph_is_told_apart() -> None:
    def f(x: torch.Tensor, w: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        y = (x * w).sin()
        with torch.no_grad():
            total.add_(y.sum())
        return y.cos() * w

    found = train(f, torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True), torch.zeros(()))
    (joint,) = [printed for printed in found if printed.role == "joint"]
    graph, _ = read(joint.text, "joint")
    sides = {row.name: row.is_backward for row in graph.rows if row.op != "output"}
    true = {node.name: node.meta.get("partitioner_tag") == "is_backward" for node in joint.nodes if node.op != "output"}
    assert sides == true
    assert sum(sides.values()) > 3


def test_a_value_is_the_same_in_the_joint_graph_and_its_halves() -> None:
    found = train(lambda x: (x.sin() * x).exp(), torch.randn(3, requires_grad=True))
    joint, forward, backward = [printed for printed in found if "primals_1" in printed.text]
    reader = PrintedGraphs()
    graphs = [
        Graph(reader.read(p.text, role, "aot").graphs[""], reader.values, reader.strings.texts, role, "")
        for p, role in ((joint, "joint"), (forward, "forward"), (backward, "backward"))
    ]
    ids = [{row.name: row.value_id for row in graph.rows if row.value_id != NONE} for graph in graphs]
    assert set(ids[1]) & set(ids[2])
    for half in ids[1:]:
        assert {name: ids[0][name] for name in half} == half
    assert len(set(ids[0].values())) == len(ids[0])


def test_a_name_that_is_used_anew_is_another_value() -> None:
    reader = PrintedGraphs()
    text = 'class G(M):\n    def forward(self, x: "f32[4]"):\n        a: "f32[4]" = %s\n        return (a,)\n'
    first = reader.read(text % "torch.ops.aten.sin.default(x)", family="aot").graphs[""]
    second = reader.read(text % "torch.ops.aten.cos.default(x)", family="aot").graphs[""]
    assert first.value[0] == second.value[0]
    assert first.value[1] != second.value[1]


@pytest.mark.parametrize("codegen", [CodeGen, _BoxedCodeGen])
@pytest.mark.parametrize("expanded", [False, True])
def test_every_way_to_print_parameters_reads_back(codegen: type, expanded: bool) -> None:
    module = make_fx(lambda x, y: (x + y).sum(), tracing_mode="fake")(torch.randn(3), torch.randn(3))
    module.graph.set_codegen(codegen())
    module.recompile()
    text = module.print_readable(print_output=False, expanded_def=expanded and codegen is CodeGen)
    graph, printed = read(text)
    assert printed.notes == ()
    assert [(row.op, row.name, row.args) for row in graph.rows] == [
        ("placeholder", "x_1", ""),
        ("placeholder", "y_1", ""),
        ("call_function", "add", "x_1, y_1"),
        ("call_function", "sum_1", "add"),
        ("output", "output", "sum_1"),
    ]


def test_modules_methods_and_attributes_read_back() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3)])
            self.scale = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor, *rest: torch.Tensor) -> Any:
            return self.layers[0](x).mul(self.scale, out=None), x.shape

    module = fx.symbolic_trace(Model())
    writer = SnapshotWriter()
    truth = Graph(writer.graph(module), writer.values.take(), writer.strings.texts, "forward", "")
    graph, printed = read(module.print_readable(print_output=False))
    assert printed.notes == ()
    assert [(r.op, r.name, r.target, r.args) for r in graph.rows] == [
        (r.op, r.name, r.target, r.args) for r in truth.rows
    ]


@pytest.mark.parametrize(
    ("text", "ops", "note"),
    [
        ("", "", "no graph in the text"),
        ("Traceback: none of it is a graph", "", "no graph in the text"),
        ("class G:\n    def forward(self, x):\n        a = x.sin()", "pc", "ends before"),
        (
            "class G:\n    def forward(self, x):\n        a = f(<ob at 7f>, x)\n        return (a,)",
            "pfo",
            "line 3",
        ),
        ("class G:\n    def forward(self, x):\n        if x: y\n        return x", "po", "line 3 is not a statement"),
        ("class G:\n    def forward(self, x):\n        a = f(" + "(" * 3000 + "\n        return a", "pfo", "line 3"),
        ("class G:\n    def forward(self, x):\n        a = " + "-" * 9000 + "x\n        return a", "pfo", "line 3"),
        ("class G:\n    def forward(self, x):\n        return (x,, )", "po", "line 3: the return"),
        ('class <lambda>(M):\n    def forward(self, 0x: "f32[2]", y: "f32[3]"):\n        return (y,)', "po", "line 2"),
    ],
)
def test_a_text_that_is_damaged_gives_what_is_left_and_a_note(text: str, ops: str, note: str) -> None:
    reader = PrintedGraphs()
    printed = reader.read(text)
    assert "".join(graph.op for graph in printed.graphs.values()) == ops
    assert any(note in said for said in printed.notes), printed.notes


def test_damaged_texts_never_raise_and_always_give_sound_graphs() -> None:
    texts = [printed.text for printed in train(branches, torch.randn(4, 4, requires_grad=True)) if not printed.path]
    chance = random.Random(7)
    for round in range(300):
        reader = PrintedGraphs()
        text = chance.choice(texts)
        lines = text.split("\n")
        if round % 3 == 0:
            text = text[: chance.randrange(len(text))]
        elif round % 3 == 1:
            chance.shuffle(lines)
            text = "\n".join(lines)
        else:
            letters = list(text)
            for _ in range(20):
                letters[chance.randrange(len(letters))] = chr(chance.choice([0, 9, 10, 34, 40, 41, 92, 0xD800, 0x2028]))
            text = "".join(letters)
        printed = reader.read(text, chance.choice(["joint", "forward", "backward"]))
        graphs = list(printed.graphs.values())
        roles = {path: number for number, path in enumerate(printed.graphs)}
        stages = [StageRecord("s", "", "", True, False, 0, 0, roles, [], {})]
        data = CompilationData("0", "f", "training", 0, {}, stages, graphs, reader.values, [], [], [], None, None)
        files.unpack(files.pack(RecordingData(FORMAT, VERSION, {}, reader.strings.texts, [data], 0)))
        for graph in graphs:
            assert str(Graph(graph, reader.values, reader.strings.texts, "joint", ""))
