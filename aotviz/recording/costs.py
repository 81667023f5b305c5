"""What the nodes of a recorded graph cost: floating-point operations, bytes read and written, and an estimate of time.

The formulas for FLOP are torch's (`torch.utils.flop_counter`), applied to recorded shapes. A view costs nothing. The
estimate of time takes the larger of two: the time to compute, and the time to move the bytes. It knows no caches and no
fused kernels, so it compares plans of one program better than it tells how long one runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from aotviz.recording import sizes
from aotviz.recording.graph import Graph
from aotviz.recording.listing import Node

Shape = Sequence[int]


class Speed(NamedTuple):
    """How fast a device is. The defaults are those of one core of a CPU."""

    flop_per_second: float = 5e10
    bytes_per_second: float = 1e10
    seconds_per_operator: float = 5e-6  # to start one


class Cost(NamedTuple):
    flop: int
    moved_bytes: int  # read and written

    def seconds(self, speed: Speed) -> float:
        if not self.moved_bytes:
            return 0.0
        work = max(self.flop / speed.flop_per_second, self.moved_bytes / speed.bytes_per_second)
        return work + speed.seconds_per_operator


def costs(graph: Graph, symbols: Mapping[str, int]) -> list[Cost]:
    """The cost of each node. Raises ValueError if a symbolic size has no value in `symbols`."""
    return [_cost(graph, node, symbols) for node in graph.rows]


def _cost(graph: Graph, node: Node, symbols: Mapping[str, int]) -> Cost:
    if node.op in ("placeholder", "output", "get_attr") or _is_view(graph, node):
        return Cost(0, 0)
    moved = sum(_nbytes(graph, graph.rows[i].value_id, symbols) for i in node.inputs)
    moved += _nbytes(graph, node.value_id, symbols)
    target, encoded = node.target, graph.snapshot.args[node.index]
    if target in _WITH_STATE:  # runs the operator that is an argument
        before = _WITH_STATE[target]
        target, encoded = graph.text(encoded[before]["r"]), encoded[before + 1 :]
    formula = _FORMULAS.get(target.rpartition(".")[0])
    if formula is None:
        return Cost(0, moved)
    arguments = [_argument(graph, node, one, symbols) for one in encoded]
    out = _shapes(graph, node.value_id, symbols)
    return Cost(formula(arguments, out), moved)


_WITH_STATE = {"higher_order.run_with_rng_state": 1, "higher_order.run_and_save_rng_state": 0}


def _is_view(graph: Graph, node: Node) -> bool:
    """Whether a node's result is in the memory of what it reads, and nothing is written."""
    if node.target.endswith("getitem"):
        return True
    within = {value.storage for i in node.inputs if (value := graph.rows[i].value)}
    name = node.target.rpartition(".")[0]
    return node.is_tensor and node.value is not None and node.value.storage in within - {-1} and name[-1:] != "_"


def _nbytes(graph: Graph, number: int, symbols: Mapping[str, int]) -> int:
    found = sizes.tensors([number] if number >= 0 else [], graph.values)
    return sum(
        math.prod(_shape(graph, one, symbols)) * sizes.element_bytes(graph.text(graph.values[one].dtype))
        for one in found
    )


def _shape(graph: Graph, number: int, symbols: Mapping[str, int]) -> Shape:
    return [sizes.evaluated(size, symbols) for size in graph.values[number].shape]


def _shapes(graph: Graph, number: int, symbols: Mapping[str, int]) -> Any:
    """The shape of a tensor, or those of a tuple's tensors, None for what is none."""
    if number < 0:
        return None
    value = graph.values[number]
    if value.kind == "tuple":
        return [_shapes(graph, part, symbols) for part in value.parts]
    return _shape(graph, number, symbols) if value.kind == "tensor" else None


def _argument(graph: Graph, node: Node, encoded: Any, symbols: Mapping[str, int]) -> Any:
    """The shape of an argument that is a node, the parts of a list, or the argument itself (see GraphSnapshot)."""
    if not isinstance(encoded, list):
        return encoded
    if encoded[0] == "L":
        return [_argument(graph, node, one, symbols) for one in encoded[1:]]
    return _shapes(graph, graph.rows[node.index - encoded[0]].value_id, symbols)


def _product(a: Shape, b: Shape) -> int:
    """Of two matrices, or of two batches of them."""
    return 2 * math.prod(a) * b[-1]


def _convolution(x: Shape, weight: Shape, out: Shape, transposed: bool) -> int:
    positions = (x if transposed else out)[2:]
    return 2 * x[0] * math.prod(positions) * math.prod(weight)


def _convolution_backward(arguments: Sequence[Any], out: Any) -> int:
    grad, x, weight, transposed, wanted = *arguments[:3], arguments[7], arguments[10]

    def swapped(shape: Shape) -> Shape:
        return [shape[1], shape[0], *shape[2:]]

    of_input = _convolution(grad, weight, out[0], not transposed) if wanted[0] else 0
    if not wanted[1]:
        return of_input
    first, second = (grad, x) if transposed else (x, grad)
    return of_input + _convolution(swapped(first), swapped(second), swapped(out[1]), False)


def _attention(query: Shape, key: Shape, value: Shape) -> int:
    scores = [*query[:-1], key[-2]]
    return _product(query, [key[-1], key[-2]]) + _product(scores, value)


def _attention_backward(query: Shape, key: Shape, value: Shape) -> int:
    """The scores again, and the gradients of the value, the scores, the query and the key."""
    scores, turned = [*query[:-1], key[-2]], [*query[:-2], key[-2], query[-2]]
    again, of_scores = _product(query, [key[-1], key[-2]]), _product([*query[:-1], value[-1]], [value[-1], key[-2]])
    return again + _product(turned, value) + of_scores + _product(scores, key) + _product(turned, query)


_KINDS = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
_FORMULAS: Mapping[str, Callable[[Sequence[Any], Any], int]] = {
    **dict.fromkeys(("aten.mm", "aten.bmm", "aten._scaled_mm"), lambda given, out: _product(*given[:2])),
    **dict.fromkeys(("aten.addmm", "aten.baddbmm"), lambda given, out: _product(*given[1:3])),
    "aten.convolution": lambda given, out: _convolution(given[0], given[1], out, given[6]),
    "aten.convolution_backward": _convolution_backward,
    **{f"aten._scaled_dot_product_{kind}": lambda given, out: _attention(*given[:3]) for kind in _KINDS},
    **{
        f"aten._scaled_dot_product_{kind}_backward": lambda given, out: _attention_backward(*given[1:4])
        for kind in _KINDS
    },
}
