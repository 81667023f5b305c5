"""Recordings of a made-up network, of any number of nodes: what viewers are measured on, each on the same graphs.

A deep network of `blocks` blocks in a row, as the joint graph of its training or as the graph of its inference. The
forward of a block is a chain of operations in small modules; the backward runs through the same modules from the last
block to the first, and each of its operations reads what its forward operation made. So a training has what makes real
graphs hard to draw: modules in modules, edges from the first block to the last gradient, and many nodes in few boxes
(two a block, one in each direction). An inference is a chain of closed blocks, the easiest there is to lay out.

    recording("aotviz", 20_000).to_bytes()                             # 63 boxes as long as every block is closed
    recording("aotviz", 20_000, blocks=60, training=False).to_bytes()  # 62 boxes
"""

from __future__ import annotations

from dataclasses import dataclass

from aotviz.reading.recording import Recording
from aotviz.recording import schema
from tests.ui.fixture import Builder, Ref, Strings, modules

SIZES = (200, 1_000, 5_000, 20_000)  # nodes
BLOCKS = 30
OPS_A_MODULE = 8
WIDTH, HEADS = 64, 4
FORWARD = ("mm", "add", "gelu", "mul", "view", "permute", "native_layer_norm", "add")
BACKWARD = ("mm", "sum", "gelu_backward", "mul", "view", "permute", "native_layer_norm_backward", "add")
VIEWS = ("view", "permute")  # share the memory of what they read


@dataclass(frozen=True)
class Place:
    """One forward operation, and its backward's."""

    block: int
    part: int  # which operation of the block

    @property
    def module(self) -> str:
        block, inner = f"blocks.{self.block}", self.part // OPS_A_MODULE
        return modules(("", "Net"), (block, "Block"), (f"{block}.parts.{inner}", "Part"))

    @property
    def stack(self) -> str:
        return f'  File "/home/ada/net.py", line {10 + self.part}, in forward\n    h = self.op{self.part}(h)'

    @property
    def name(self) -> str:
        return f"b{self.block}_{FORWARD[self.part % len(FORWARD)]}_{self.part}"


def _places(nodes: int, blocks: int, training: bool) -> tuple[list[Place], int]:
    """The forward's operations, and how many operations the backward has, so that the graph has `nodes` nodes."""
    directions = 1 + training
    others = blocks + 1 + directions  # a weight a block, the input, in training the tangent, the output
    ops = nodes - others
    if ops < directions * blocks:
        least = directions * blocks + others
        raise ValueError(f"{nodes} nodes are too few for {blocks} blocks: at least {least} are needed")
    forward = ops // directions
    counts = [forward // blocks + (block < forward % blocks) for block in range(blocks)]
    return [Place(block, part) for block, count in enumerate(counts) for part in range(count)], ops - forward


def graph(
    strings: Strings, values: list[schema.ValueRecord], nodes: int, blocks: int, training: bool = True
) -> schema.GraphSnapshot:
    """A graph of exactly `nodes` nodes. Raises ValueError where they are too few for the blocks."""
    places, backward = _places(nodes, blocks, training)
    builder = Builder(strings, values)
    shape = (HEADS, WIDTH, WIDTH)
    for block in range(blocks):
        weight = builder.tensor((WIDTH, WIDTH))
        name = f"primals_{block + 1}"
        builder.node("p", name, name, [], weight, descriptor=f"blocks.{block}.weight")
    builder.node("p", "x", "x", [], builder.tensor(shape), descriptor="x")

    def op(name: str, kind: str, args: list[str], place: Place, number: int, is_backward: bool) -> None:
        storage = values[builder.value_of[args[0]]].storage if kind in VIEWS else None
        builder.node(
            "f", name, f"aten.{kind}.default", [Ref(arg) for arg in args], builder.tensor(shape, storage=storage),
            stack=place.stack, module=place.module, sequence=number, backward=is_backward,
        )  # fmt: skip

    here = "x"
    block_in = "x"
    for number, place in enumerate(places):
        if place.part == 0:
            block_in = here
        kind = FORWARD[place.part % len(FORWARD)]
        other = {"mm": [f"primals_{place.block + 1}"], "add": [block_in]}.get(kind, [])
        op(place.name, kind, [here, *other], place, number, False)
        here = place.name
    if not training:
        builder.node("o", "output", "output", [[Ref(here)]])
        return builder.snapshot(["out"])
    builder.node("p", "tangents_1", "tangents_1", [], builder.tensor(shape), descriptor="tangent of out", backward=True)
    gradient = "tangents_1"
    last: dict[int, str] = {}  # block -> its last gradient
    for number in range(backward):
        at = max(0, len(places) - 1 - number)
        place = places[at]
        kind = BACKWARD[place.part % len(BACKWARD)]
        op(f"g{number}_{kind}", kind, [gradient, place.name], place, at, True)
        gradient = last[place.block] = f"g{number}_{kind}"
    gradients = [last[block] for block in range(blocks)]
    builder.node("o", "output", "output", [[Ref(here), *map(Ref, gradients)]])
    return builder.snapshot(["out", *(f"gradient of blocks.{block}.weight" for block in range(blocks))])


def recording(name: str, nodes: int, blocks: int = BLOCKS, stages: int = 1, training: bool = True) -> Recording:
    """One compilation of `stages` stages, each with a graph of its own of exactly `nodes` nodes.

    Raises ValueError where the nodes are too few for the blocks.
    """
    strings = Strings()
    values: list[schema.ValueRecord] = []
    graphs = [graph(strings, values, nodes, blocks, training) for _ in range(stages)]
    compilation = schema.CompilationData(
        id="0", name=name, kind="training" if training else "inference",
        started_unix_ns=1_790_000_000_000_000_000, options={},
        stages=[
            schema.StageRecord(
                name="trace" if i == 0 else f"pass {i}", form="JointGraph",
                summary=f"{nodes:,} nodes in {blocks} blocks.", changed=True, late=False, started_ns=i * 1_000_000,
                elapsed_ns=1_000_000, graphs={"joint" if training else "inference": i}, evidence=[], code={},
            )
            for i in range(stages)
        ],
        graphs=graphs, values=values, inputs=[], outputs=[], saved_tensors=[], wrapper=None, error=None,
    )  # fmt: skip
    data = schema.RecordingData(
        format=schema.FORMAT, version=schema.VERSION, producer={"aotviz": "synthetic"}, strings=strings.all,
        compilations=[compilation], dropped=0,
    )  # fmt: skip
    return Recording(data)
