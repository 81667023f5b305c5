"""A recording made by hand, for the tests of the front end: no torch, no pipeline, the same bytes each time.

It has what the views must cope with: a training compilation with forward and backward, modules and saved tensors; an
inference one with symbolic sizes and shared memory; a failed one; and names that contain markup. `python -m
tests.ui.fixture` writes it for the TypeScript tests to `extensions/core/test/`: as a file, as a page has it, in parts.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aotviz.explain import answers
from aotviz.recording import files, schema
from aotviz.recording.compilation import Compilation
from aotviz.recording.live_bytes import Memory
from aotviz.widgets import packing, parts

COLUMNS = ("op", "name", "target", "args", "value", "stack", "module", "sequence", "backward")
MARKUP = "<img src=x onerror=alert(1)>"
ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "extensions" / "core" / "test" / "fixture.aotviz"
PARTS = TARGET.with_name("fixture.parts.json")
PAGE = TARGET.with_name("fixture.page")
MEMORY = TARGET.with_name("fixture.memory.json")


class FixtureRecording:
    """What the widgets need of a Recording."""

    def __init__(self, data: schema.RecordingData) -> None:
        self.data = data

    @property
    def revision(self) -> int:
        return id(self.data)

    @property
    def compilations(self) -> list[Compilation]:
        return [Compilation(compilation, self.data.strings) for compilation in self.data.compilations]

    @property
    def rows(self) -> tuple[schema.RecordingData, list[str]]:
        return self.data, self.data.strings

    @property
    def listed(self) -> tuple[schema.RecordingData, list[str]]:
        return self.rows

    def __len__(self) -> int:
        return len(self.data.compilations)

    def follow(self, changed: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    @property
    def data_producer(self) -> dict[str, str]:
        return self.data.producer

    @property
    def dropped(self) -> int:
        return self.data.dropped

    @property
    def notes(self) -> list[str]:
        return self.data.notes

    def save(self, path: Path) -> None:
        files.write(self.data, path)


class Strings:
    """Interned strings."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self.index: dict[str, int] = {}

    def __call__(self, text: str | None) -> int:
        if not text:
            return schema.NONE
        if text not in self.index:
            self.index[text] = len(self.all)
            self.all.append(text)
        return self.index[text]


@dataclass
class Builder:
    """One graph, node by node."""

    strings: Strings
    values: list[schema.ValueRecord]
    columns: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in COLUMNS})
    places: dict[str, int] = field(default_factory=dict)
    value_of: dict[str, int] = field(default_factory=dict)
    descriptor: dict[int, int] = field(default_factory=dict)
    kwargs: dict[int, Any] = field(default_factory=dict)

    def tensor(self, shape: tuple[int | str, ...], dtype: str = "float32", storage: int | None = None) -> int:
        stride: list[int | str] = []
        step: int | str = 1
        for size in reversed(shape):
            stride.insert(0, step)
            step = step * size if isinstance(step, int) and isinstance(size, int) else f"{step}*{size}"
        self.values.append(
            schema.ValueRecord(
                kind="tensor", dtype=self.strings(f"torch.{dtype}"), shape=list(shape), stride=stride, offset=0,
                device=self.strings("cpu"), storage=len(self.values) if storage is None else storage,
                requires_grad=False, parts=[], text=schema.NONE,
            )
        )  # fmt: skip
        return len(self.values) - 1

    def node(
        self, op: str, name: str, target: str, args: list[Any], value: int = schema.NONE, *, stack: str = "",
        module: str = "", sequence: int = -1, backward: bool = False, descriptor: str = "", kwargs: Any = None,
    ) -> str:  # fmt: skip
        """Adds a node; an argument `Ref(name)` is the result of an earlier one."""
        place = len(self.columns["op"])
        self.places[name] = place
        self.value_of[name] = value
        row = {
            "op": op, "name": self.strings(name), "target": self.strings(target),
            "args": [self.encode(arg, place) for arg in args], "value": value, "stack": self.strings(stack),
            "module": self.strings(module), "sequence": sequence, "backward": "1" if backward else "0",
        }  # fmt: skip
        for column, cell in row.items():
            self.columns[column].append(cell)
        if descriptor:
            self.descriptor[place] = self.strings(descriptor)
        if kwargs:
            self.kwargs[place] = {key: self.encode(arg, place) for key, arg in kwargs.items()}
        return name

    def encode(self, arg: Any, place: int) -> Any:
        if isinstance(arg, Ref):
            return [place - self.places[arg.name]]
        if isinstance(arg, (list, tuple)):
            return ["L", *(self.encode(part, place) for part in arg)]
        if isinstance(arg, slice):
            return {"s": [arg.start, arg.stop, arg.step]}
        if isinstance(arg, Text):
            return {"r": self.strings(arg)}
        return arg

    def snapshot(self, outputs: list[str]) -> schema.GraphSnapshot:
        columns: dict[str, Any] = {
            name: "".join(c) if name in ("op", "backward") else c for name, c in self.columns.items()
        }
        return schema.GraphSnapshot(
            **columns, kwargs=self.kwargs, descriptor=self.descriptor,
            output_descriptors=[self.strings(text) for text in outputs],
        )  # fmt: skip


@dataclass(frozen=True)
class Ref:
    name: str


class Text(str):
    """An argument known only by its repr."""


def stack(line: int, code: str) -> str:
    return (
        f'  File "/home/ada/project/train.py", line 31, in step\n    loss = model(x).square().mean()\n'
        f'  File "/home/ada/project/model.py", line {line}, in forward\n    {code}'
    )


def modules(*path: tuple[str, str]) -> str:
    return "\n".join(f"{name}|{kind}" for name, kind in path)


LAYERS, BATCH, WIDTH = 3, 8, 64
FULL, SQUARE = (BATCH, WIDTH), (WIDTH, WIDTH)
ROOT_MODULE = ("", "Net")
X = f"primals_{2 * LAYERS + 1}"


@dataclass(frozen=True)
class At:
    """Where an operation comes from: its source line, module path, autograd sequence number."""

    stack: str
    module: str
    sequence: int
    backward: bool = False


class Network:
    """Forward and backward of a small residual network, into one graph (joint) or two."""

    def __init__(self, strings: Strings, values: list[schema.ValueRecord], inner: str) -> None:
        self.strings, self.values = strings, values
        self.inner = inner  # name of the innermost module, which may hold markup
        self.shared: dict[str, int] = {}  # value of a name, in every stage

    def value(self, builder: Builder, name: str, shape: tuple[int | str, ...], storage: int | None = None) -> int:
        if name not in self.shared:
            self.shared[name] = builder.tensor(shape, storage=storage)
        return self.shared[name]

    def places(self, layer: int, backward: bool = False) -> tuple[At, At, At]:
        """Of a block's linear layer, its activation and its sum."""
        block = (ROOT_MODULE, (f"blocks.{layer}", "Block"))
        linear = modules(*block, (f"blocks.{layer}.{self.inner}", "Linear"))
        activation = modules(*block, (f"blocks.{layer}.act", "GELU"))
        return (
            At(stack(12, f"h = self.fc(x)  # {self.inner}"), linear, 10 * layer + 1, backward),
            At(stack(13, "h = self.act(h)"), activation, 10 * layer + 2, backward),
            At(stack(14, "return x + h"), modules(*block), 10 * layer + 3, backward),
        )

    def op(
        self, builder: Builder, name: str, target: str, args: list[Any], shape: tuple[int, ...], at: At,
        value: str = "", storage: int | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """A call whose value is known by `value`, or by its own name, in every stage."""
        number = self.value(builder, value or name, shape, storage)
        facts: dict[str, Any] = {"stack": at.stack, "module": at.module, "sequence": at.sequence}
        builder.node("f", name, target, args, number, backward=at.backward, kwargs=kwargs, **facts)

    def inputs(self, builder: Builder) -> None:
        for layer in range(LAYERS):
            for number, part, shape in ((1, "weight", SQUARE), (2, "bias", (WIDTH,))):
                name, path = f"primals_{2 * layer + number}", f"blocks.{layer}.{self.inner}.{part}"
                builder.node("p", name, name, [], self.value(builder, name, shape), descriptor=path)
        builder.node("p", X, X, [], self.value(builder, X, FULL), descriptor="x")

    def forward(self, builder: Builder, decomposed: bool) -> str:
        here = X
        for layer in range(LAYERS):
            linear, activation, plus = self.places(layer)
            weight, bias = Ref(f"primals_{2 * layer + 1}"), Ref(f"primals_{2 * layer + 2}")
            n = f"_{layer}" if layer else ""
            self.op(builder, f"t{n}", "aten.t.default", [weight], SQUARE, linear, storage=self.shared[weight.name])
            if decomposed:
                pre = f"add_bias{n}"
                self.op(builder, f"mm{n}", "aten.mm.default", [Ref(here), Ref(f"t{n}")], FULL, linear)
                self.op(builder, pre, "aten.add.Tensor", [Ref(f"mm{n}"), bias], FULL, linear, value=f"addmm{n}")
            else:
                pre = f"addmm{n}"
                self.op(builder, pre, "aten.addmm.default", [bias, Ref(here), Ref(f"t{n}")], FULL, linear)
            self.op(builder, f"gelu{n}", "aten.gelu.default", [Ref(pre)], FULL, activation, approximate="none")
            self.op(builder, f"add{n}", "aten.add.Tensor", [Ref(here), Ref(f"gelu{n}")], FULL, plus, alpha=1.0)
            here = f"add{n}"
        at = At(stack(22, "return x[:, :]"), modules(ROOT_MODULE), 40)
        self.op(builder, "slice_1", "aten.slice.Tensor", [Ref(here), 1, 0, 2**63 - 1], FULL, at)
        return "slice_1"

    def backward(self, builder: Builder) -> list[str]:
        """The names of the gradients, one a primal."""
        here = "tangents_1"
        value = self.value(builder, here, FULL)
        builder.node("p", here, here, [], value, descriptor="tangent of out", backward=True)
        grads: list[str] = []
        for layer in reversed(range(LAYERS)):
            n = f"_{layer}" if layer else ""
            linear, activation, plus = self.places(layer, backward=True)
            pre = f"addmm{n}" if f"addmm{n}" in builder.places else f"add_bias{n}"
            before = f"add_{layer - 1}" if layer > 1 else "add" if layer else X
            inner = Ref(f"gelu_backward{n}")
            self.op(builder, inner.name, "aten.gelu_backward.default", [Ref(here), Ref(pre)], FULL, activation)
            self.op(builder, f"t_g{n}", "aten.t.default", [inner], (WIDTH, BATCH), linear)
            self.op(builder, f"mm_w{n}", "aten.mm.default", [Ref(f"t_g{n}"), Ref(before)], SQUARE, linear)
            self.op(builder, f"sum{n}", "aten.sum.dim_IntList", [inner, [0], True], (1, WIDTH), linear)
            self.op(builder, f"view{n}", "aten.view.default", [Ref(f"sum{n}"), [WIDTH]], (WIDTH,), linear)
            self.op(builder, f"mm_x{n}", "aten.mm.default", [inner, Ref(f"primals_{2 * layer + 1}")], FULL, linear)
            self.op(builder, f"add_g{n}", "aten.add.Tensor", [Ref(here), Ref(f"mm_x{n}")], FULL, plus)
            grads = [f"mm_w{n}", f"view{n}", *grads]
            here = f"add_g{n}"
        return [*grads, here]

    def joint(self, decomposed: bool) -> schema.GraphSnapshot:
        builder = Builder(self.strings, self.values)
        self.inputs(builder)
        out = self.forward(builder, decomposed)
        grads = self.backward(builder)
        builder.node("o", "output", "output", [[Ref(out), *map(Ref, grads)]])
        return builder.snapshot(["out", *GRADIENTS])

    def split(self) -> tuple[schema.GraphSnapshot, schema.GraphSnapshot, list[str]]:
        """Forward, backward, and the names of what is saved between them."""
        saved = [f"add_bias_{layer}" if layer else "add_bias" for layer in range(LAYERS)]
        saved += ["add", "add_1", *(f"primals_{2 * layer + 1}" for layer in range(LAYERS)), X]
        front = Builder(self.strings, self.values)
        self.inputs(front)
        out = self.forward(front, True)
        front.node("o", "output", "output", [[Ref(out), *map(Ref, saved)]])
        back = Builder(self.strings, self.values)
        for name in saved:
            back.node("p", name, name, [], front.value_of[name], descriptor=f"saved {name}")
        back.node("o", "output", "output", [list(map(Ref, self.backward(back)))])
        return front.snapshot(["out", *(f"saved {name}" for name in saved)]), back.snapshot(GRADIENTS), saved


GRADIENTS = [f"gradient of primals_{i + 1}" for i in range(2 * LAYERS + 1)]
STAGES = [  # name, form, summary, microseconds
    ("flatten", "FlatCall", "7 flat inputs: 6 parameters, 1 tensor.", 212),
    ("metadata", "FlatCall", "No input is mutated; the output is fresh memory.", 4210),
    ("dedupe", "FlatCall", "No duplicates.", 31),
    ("synthetic bases", "FlatCall", "No mutated inputs share memory.", 18),
    ("joint", "JointCall", "Forward and backward became one function of 7 primals and 1 tangent.", 402),
    ("functionalize", "JointCall", "No mutation to remove.", 96),
    ("subclasses", "JointCall", "No tensor subclasses.", 22),
    ("trace", "JointGraph", "Traced into one joint graph.", 38120),
    ("decompose", "JointGraph", "3 addmm became mm and add.", 1830),
    ("partition", "Split", "Cut into forward and backward; 9 values are saved.", 9120),
    ("saved hooks", "Split", "No saved-tensor hooks.", 12),
    ("donated buffers", "Split", "5 saved values may be overwritten by the backward.", 140),
    ("lower", "Lowered", "Inductor compiled the forward.", 512300),
    ("lower backward", "Lowered", "Inductor compiled the backward, on its first use.", 441000),
    ("link", "Program", "One wrapper of 14 lines.", 690),
]

WRAPPER = f"""def call(args):
    # 7 inputs: 6 parameters, then x
    w0, b0, w1, b1, w2, b2, x = args
    args.clear()
    out, *saved = forward_compiled([w0, b0, w1, b1, w2, b2, x])
    # {MARKUP}
    return (out,)


def backward(ctx, tangent):
    tangent = tangent.contiguous()
    grads = backward_compiled([*ctx.saved_tensors, tangent])
    return (*grads[:6], None)
"""


def training(strings: Strings, inner: str) -> schema.CompilationData:
    values: list[schema.ValueRecord] = []
    network = Network(strings, values, inner)
    joint, decomposed = network.joint(False), network.joint(True)
    forward, backward, saved = network.split()
    graphs = [joint, decomposed, forward, backward]
    roles = {
        "trace": {"joint": 0}, "decompose": {"joint": 1}, "partition": {"forward": 2, "backward": 3},
        "saved hooks": {"forward": 2, "backward": 3}, "donated buffers": {"forward": 2, "backward": 3},
        "lower": {"forward": 2}, "lower backward": {"backward": 3},
    }  # fmt: skip
    idle = {"dedupe", "synthetic bases", "functionalize", "subclasses", "saved hooks"}
    evidence = [
        schema.Evidence(name, "gelu's backward reads it; recomputing it would run a matrix multiplication again")
        for name in saved[:LAYERS]
    ] + [schema.Evidence(MARKUP, f"a name with markup: {MARKUP}")]
    clock, stages = 0, []
    for name, form, summary, micros in STAGES:
        stages.append(
            schema.StageRecord(
                name=name, form=form, summary=summary, changed=name not in idle, late=name == "lower backward",
                started_ns=clock, elapsed_ns=micros * 1000, graphs=roles.get(name, {}),
                evidence=evidence if name == "partition" else [],
                code={"wrapper": WRAPPER} if name == "link" else {},
                replays={"forward": 41_000_000} if name == "lower" else {},
            )
        )  # fmt: skip
        clock += micros * 1000
    inputs = [
        tensor_input(f"blocks.{layer}.{inner}.{part}", "parameter", shape, storage)
        for storage, (layer, part, shape) in enumerate(
            (layer, part, shape)
            for layer in range(LAYERS)
            for part, shape in (("weight", [WIDTH, WIDTH]), ("bias", [WIDTH]))
        )
    ]
    inputs.append(tensor_input("x", "input", [BATCH, WIDTH], 6, requires_grad=False))
    return schema.CompilationData(
        id="0", name="Net", kind="training", started_unix_ns=1_790_000_000_123_456_789,
        options={"backend": "inductor", "dynamic": "None"}, stages=stages, graphs=graphs, values=values, inputs=inputs,
        outputs=[
            schema.OutputRecord(
                name="out", output_type="non_alias", dtype="torch.float32", shape=[BATCH, WIDTH], device="cpu",
                requires_grad=True, base="", view_chain=[], has_tangent=True, reason="",
            )
        ],
        saved_tensors=[saved_tensor(name, inner, i, readers(strings, backward, name)) for i, name in enumerate(saved)],
        wrapper=schema.WrapperRecord(
            filename="<aotviz Net.0>", source=WRAPPER,
            notes=[
                schema.WrapperNote(3, 3, "the calling convention: parameters first, in the order of the module", ""),
                schema.WrapperNote(4, 4, "inputs are freed as early as they can be", "args"),
                schema.WrapperNote(11, 11, "the backward was compiled for a contiguous tangent", "out"),
                schema.WrapperNote(12, 12, "5 of the saved values are donated: the backward overwrites them", MARKUP),
                schema.WrapperNote(13, 13, "x asks for no gradient", "x"),
            ],
        ),
        error=None,
    )  # fmt: skip


def readers(strings: Strings, graph: schema.GraphSnapshot, name: str) -> dict[str, Any]:
    """The nodes of a graph that read a placeholder directly, and where the last stands."""
    place = graph.name.index(strings(name))
    nodes = range(place + 1, len(graph.op) - 1)
    found = [node for node in nodes if [node - place] in graph.args[node]]
    return {"consumers": [strings.all[graph.name[node]] for node in found], "dies_at": max(found, default=-1)}


def saved_tensor(name: str, inner: str, position: int, used: dict[str, Any]) -> schema.SavedTensorRecord:
    made, parameter = name.startswith("add"), name.startswith("primals")
    return schema.SavedTensorRecord(
        name=name, kind="tensor", dtype="torch.float32", shape=[BATCH, WIDTH] if made else [WIDTH, WIDTH],
        nbytes=4 * WIDTH * (BATCH if made else WIDTH),
        producer="aten.add.Tensor" if made else f"blocks.{position}.weight",
        source="model.py:12 h = self.fc(x)" if made else "", module=f"blocks.0.{inner}" if made else "",
        why="the backward of gelu reads it; a matrix multiplication would have to run again" if made
        else "an input of the forward: keeping it costs nothing",
        version_checked=parameter, donated=made,
        why_donated="made by the forward, and nothing else holds it" if made else "it belongs to the user",
        memory_of="" if made else f"blocks.{position}.weight", **used,
    )  # fmt: skip


def tensor_input(
    name: str, kind: str, shape: Sequence[int | str], storage: int, *, requires_grad: bool = True, **facts: Any
) -> schema.InputRecord:
    return schema.InputRecord(**{
        "name": name, "kind": kind, "dtype": "torch.float32", "shape": list(shape), "device": "cpu",
        "requires_grad": requires_grad, "is_leaf": True, "mutates_data": False, "mutates_metadata": False,
        "mutation": "NOT_MUTATED", "hidden_from_autograd": False, "under_no_grad": False, "storage_resized": False,
        "storage_replaced": False, "static": kind == "parameter", "storage": storage, "duplicate_of": "",
        "synthetic_base": "", "reason": "", **facts,
    })  # fmt: skip


def inference(strings: Strings) -> schema.CompilationData:
    values: list[schema.ValueRecord] = []
    builder = Builder(strings, values)
    base = builder.tensor(("s0", 4))
    builder.node("p", "arg0_1", "arg0_1", [], base, descriptor="base of a, b")
    values.append(schema.ValueRecord("symint", -1, [], [], 0, -1, -1, False, [], strings("s0")))
    line = stack(7, "a.mul_(2); return b[0], a.view(-1)")
    builder.node("f", "sym_size_int", "aten.sym_size.int", [Ref("arg0_1"), 0], len(values) - 1, stack=line)
    builder.node("f", "mul", "aten.mul.Tensor", [Ref("arg0_1"), 2.0], builder.tensor(("s0", 4)), stack=line)
    builder.node("f", "copy_", "aten.copy_.default", [Ref("arg0_1"), Ref("mul")], base, stack=line)
    view = builder.tensor(("4*s0",), storage=base)
    builder.node("f", "view", "aten.view.default", [Ref("mul"), [-1]], view, stack=line)
    builder.node("f", "scale", "operator.mul", [Ref("sym_size_int"), 4], -1, stack=line)
    kwargs = {"dtype": Text("torch.float32"), "pin_memory": False}
    builder.node("f", "full", "aten.full.default", [[Ref("scale")], 1.0], view, kwargs=kwargs)
    builder.node("o", "output", "output", [[Ref("view"), Ref("full"), None]])
    graph = builder.snapshot(["out[0]", "out[1]", "out[2]"])
    shape: list[int | str] = ["s0", 4]
    return schema.CompilationData(
        id="1", name=f"update{MARKUP}", kind="inference", started_unix_ns=1_790_000_001_000_000_000,
        options={"dynamic": "True"}, sizes={"s0": 6},
        stages=[
            schema.StageRecord("metadata", "FlatCall", "a is mutated; b shares its memory.", True, False, 0, 900_000, {}, [schema.Evidence("a", "mul_ wrote to it")], {}),  # noqa: E501
            schema.StageRecord("synthetic bases", "FlatCall", f"a and b became views of one base {MARKUP}.", True, False, 900_000, 80_000, {}, [], {}),  # noqa: E501
            schema.StageRecord("trace", "InferenceGraph", "Traced into one graph.", True, False, 980_000, 7_000_000, {"inference": 0}, [], {}),  # noqa: E501
        ],
        graphs=[graph], values=values,
        inputs=[
            tensor_input("a", "input", shape, 0, requires_grad=False, mutates_data=True, mutation="MUTATED_OUT_GRAPH", synthetic_base="base of a, b", reason="written by mul_, and b sees the change"),  # noqa: E501
            tensor_input("b", "input", shape, 0, requires_grad=False, synthetic_base="base of a, b", reason="shares memory with a, which is mutated"),  # noqa: E501
            tensor_input("c", "input", [4], 1, duplicate_of="d", mutates_metadata=True, reason="transposed in place"),
        ],
        outputs=[
            schema.OutputRecord("out[0]", "alias_of_input", "torch.float32", [4], "cpu", False, "b", ["select(0, 0)"], False, "a view of input b: rebuilt from it, so that autograd and the user see one tensor"),  # noqa: E501
            schema.OutputRecord("out[1]", "alias_of_input", "torch.float32", ["4*s0"], "cpu", False, "a", ["view([-1])"], False, ""),  # noqa: E501
        ],
        saved_tensors=[], wrapper=None, error=None, storages=shared_memory(shape), run=run(strings),
    )  # fmt: skip


def run(strings: Strings) -> schema.RunLog:
    """Of `inference`."""
    line = strings(f"update.py:7 a.mul_(2)  # {MARKUP}")

    def event(what: str, tensor: int, of: int, operator: str, node: str, *fact: str) -> schema.RunEvent:
        made = [schema.RunFact(*map(strings, fact))] if fact else []
        place = line if node else schema.NONE
        return schema.RunEvent(strings(what), tensor, of, strings(operator), strings(node), place, schema.NONE, made)

    none = schema.NONE
    return schema.RunLog([*map(strings, ("a", "b", "c", f"out[0]{MARKUP}"))], [
        event("argument", 0, none, "", ""), event("argument", 1, none, "", ""), event("argument", 2, none, "", ""),
        event("write", 0, none, "mul_", "mul", "a", "data", "the wrapper writes it after the graph ran"),
        event("view", 3, 1, f"select(0, 0){MARKUP}", "view", f"out[0]{MARKUP}", "alias_of_input", "a view of an input"),
        event("random", none, none, "aten.rand.default", "full"),
        event("result", 3, none, "", "", f"out[0]{MARKUP}", "alias_of_input", "a view of an input"),
    ])  # fmt: skip


def shared_memory(shape: list[int | str]) -> list[schema.StorageRecord]:
    """Of `inference`: a and b in one storage of symbolic size, written; c in one of its own."""
    line = f"update.py:7 a.mul_(2)  # {MARKUP}"
    whole, part = (shape, ["4", 1], 0, 4), ([4], [1], 0, 4)
    return [
        schema.StorageRecord(None, "cpu", [
            schema.AliasTensor(["base of a, b"], "base", *whole, schema.NONE, "", "", ""),
            schema.AliasTensor(["a"], "input", *whole, 0, "", "", ""),
            schema.AliasTensor(["b"], "input", *whole, 0, "", "", ""),
            schema.AliasTensor([f"out[0]{MARKUP}"], "output", *part, 2, "select(0, 0)", "select", line),
            schema.AliasTensor(["out[1]"], "output", ["4*s0"], [1], 0, 4, 1, "view([-1])", "view", line),
        ], [schema.StorageWrite(0, 1, "data", "mul_", "mul", line, True)]),
        schema.StorageRecord(16, "cpu", [
            schema.AliasTensor(["c"], "input", [4], [1], 0, 4, schema.NONE, "", "", ""),
        ], [schema.StorageWrite(1, 0, "metadata", "t_", "", line, False)]),
    ]  # fmt: skip


def failed() -> schema.CompilationData:
    stage = schema.StageRecord("flatten", "FlatCall", "1 flat input.", True, False, 0, 50_000, {}, [], {})
    return schema.CompilationData(
        id="2", name="broken", kind="training", started_unix_ns=1_790_000_002_000_000_000, options={}, stages=[stage],
        graphs=[], values=[], inputs=[], outputs=[], saved_tensors=[], wrapper=None,
        error=schema.ErrorRecord("metadata", "RuntimeError", f"x.resize_() inside {MARKUP} can't be traced"),
    )  # fmt: skip


def recording(inner: str = f"fc{MARKUP}") -> FixtureRecording:
    strings = Strings()
    compilations = [training(strings, inner), inference(strings), failed()]
    data = schema.RecordingData(
        format=schema.FORMAT, version=schema.VERSION,
        producer={"aotviz": "0.1.0", "torch": "2.13.0", "python": "3.12.3"}, strings=strings.all,
        compilations=compilations, dropped=0, cache_lookups=[lookup(strings)],
    )  # fmt: skip
    return FixtureRecording(answers.with_differences(FixtureRecording(data)))


def lookup(strings: Strings) -> schema.CacheLookup:
    """What `inference` found in a cache of torch's, after its second stage."""
    origin = schema.Origin(schema.NONE, 1, 1, 0, 1_790_000_001_000_000_000 + 950_000)
    return schema.CacheLookup(origin, "fx", "hit", "key", [], [], schema.NONE, {"time_saved_ns": strings("41000000")})


def packed_parts() -> dict[str, bytes]:
    """Every part of it as a kernel sends it, by the question that asks for it, as JSON."""
    made = recording()
    answers: dict[tuple[object, ...], bytes] = {("index",): parts.pack(parts.index(made))}
    answers |= {("rows", kind): parts.pack(parts.rows(made, kind)) for kind in parts.index(made).rows}
    for compilation in made.data.compilations:
        answers["compilation", compilation.id] = parts.pack(parts.compilation(made, compilation.id))
        for number in range(len(compilation.graphs)):
            answers["graph", compilation.id, number] = parts.pack(parts.graph(made, compilation.id, number))
        for number, stage in enumerate(compilation.stages):
            if stage.code:
                answers["code", compilation.id, number] = parts.pack(parts.code(made, compilation.id, number))
    return {json.dumps(question, separators=(",", ":")): answer for question, answer in answers.items()}


def planned_memory() -> dict[str, dict[str, Any]]:
    """The plan of memory of each compilation that has one, as Python makes it; of symbolic sizes, for others too."""
    made = recording().compilations
    cases: list[tuple[Compilation, dict[str, int]]] = [(made[0], {}), (made[1], {}), (made[1], {"s0": 100})]
    return {
        " ".join([one.id, *(f"{name}={size}" for name, size in sizes.items())]): plan_of(one.memory(sizes))
        for one, sizes in cases
    }


def plan_of(memory: Memory) -> dict[str, Any]:
    moments = memory.moments[["node", "alive"]].values.tolist()
    columns = ["made_at", "name", "kind", "nbytes", "held_until", "held_by"]
    held = {tuple(row) for at in range(len(moments)) for row in memory.holders(at)[columns].values.tolist()}
    return {"moments": moments, "holders": sorted(held)}


if __name__ == "__main__":
    recording().save(TARGET)
    MEMORY.write_text(json.dumps(planned_memory(), indent=1) + "\n")
    PAGE.write_bytes(packing.pack(recording().data))
    PARTS.write_text(json.dumps({k: base64.b64encode(v).decode() for k, v in packed_parts().items()}, indent=1) + "\n")
    print(f"wrote {TARGET.relative_to(ROOT)}", file=sys.stderr)
