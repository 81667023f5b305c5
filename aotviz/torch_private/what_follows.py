"""What the code after a graph from Dynamo does with its tensors, where a compiled graph could not answer as eager."""

from __future__ import annotations

import contextlib
import dis
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch._dynamo import output_graph
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.lazy import LazyVariableTracker
from torch._dynamo.variables.tensor import TensorVariable

from aotviz.torch_private import dynamo, pytree
from aotviz.torch_private.tensors import is_traceable_wrapper_subclass, storage_key

_DIFFERENTIATES = ("using `torch.autograd.grad`", "Unsupported Tensor.backward() call")  # how Dynamo's reasons begin
_BELOW_AUTOGRAD = {"data", "distribute_tensor"}  # what makes aliases whose writes autograd does not count


@dataclass(frozen=True)
class Follows:
    """What follows a graph."""

    data: str = ""
    """What is done with a tensor's `.data`. "assigned": the graph ended before `x.data = ...`, with an `x` that it
    returns. "named": it ended at another break, in a function that has `.data` or `distribute_tensor` somewhere. Else
    ""."""

    differentiated: tuple[int, ...] = ()
    """Which results are arguments of `torch.autograd.grad` or `backward`, before which the graph ended."""

    is_input_differentiated: bool = False
    """Whether an input of the graph is such an argument."""

    writes: bool = False
    """Whether the graph ended at a break in a function that writes to something in place (`x.mul_()`, `x += 1`,
    `x[0] = 1`). A compiled backward is then not computed from what may have been written."""

    returned: tuple[int, ...] = ()
    """Which inputs lie in the memory of a tensor that the function returns and that the graph does not return."""

    alive: tuple[int, ...] = ()
    """Which inputs lie in the memory of a tensor that the code after a graph break has: it may write or return it."""

    def __bool__(self) -> bool:
        """Whether a graph could not answer as eager."""
        return replace(self, writes=False, returned=(), alive=()) != NOTHING

    def __str__(self) -> str:
        """As it is told where two programs differ: each field that is set, in words."""
        said = {
            "`.data` is assigned": self.data == "assigned",
            "`.data` or `distribute_tensor` is used": self.data == "named",
            f"gradients of results {_listed(self.differentiated)} are asked for": self.differentiated,
            "gradients of inputs are asked for": self.is_input_differentiated,
            "something is written in place": self.writes,
            f"inputs {_listed(self.returned)} are returned": self.returned,
            f"inputs {_listed(self.alive)} are still used": self.alive,
        }
        return f"after the graph: {'; '.join(text for text, holds in said.items() if holds)}"


NOTHING = Follows()


def of(module: Any) -> Follows:
    """What follows a graph that Dynamo hands to its backend now."""
    why = getattr(module, "compile_subgraph_reason", None)
    text = str(getattr(why, "reason", ""))
    if text.startswith("Failed to mutate tensor data attribute"):
        return Follows("assigned")
    call, inputs = dynamo.compile_call(), module.graph.find_nodes(op="placeholder")
    if call is None or why is None:
        return NOTHING

    def in_memory_of(names: Set[str], places: Set[int]) -> tuple[int, ...]:
        return tuple(i for i, node in enumerate(inputs) if node.name in names or not places.isdisjoint(_storages(node)))

    on_the_stack, places = _held(lambda tx: tx.stack)
    if not why.graph_break:
        return Follows(returned=in_memory_of(on_the_stack, places))
    named = "" if _BELOW_AUTOGRAD.isdisjoint(call["code"].co_names) else "named"
    writes = any(map(_writes, dis.get_instructions(call["code"])))
    taken = on_the_stack if text.startswith(_DIFFERENTIATES) else set()
    results = module.graph.find_nodes(op="output")[0].args[0] if taken else ()
    differentiated = tuple(i for i, node in enumerate(results) if getattr(node, "name", None) in taken)
    in_locals, more = _held(lambda tx: tx.symbolic_locals)
    alive = in_memory_of(on_the_stack | in_locals, places | more)
    return Follows(named, differentiated, any(node.name in taken for node in inputs), writes, alive=alive)


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def _writes(instruction: dis.Instruction) -> bool:
    """Whether an instruction may be a part of a statement that writes to a tensor."""
    name = instruction.argval if instruction.opname in ("LOAD_METHOD", "LOAD_ATTR") else ""
    in_place = instruction.opname == "BINARY_OP" and instruction.argrepr.endswith("=")
    return in_place or instruction.opname == "STORE_SUBSCR" or (name.endswith("_") and not name.endswith("__"))


def _held(by: Callable[[Any], Any]) -> tuple[set[str], set[int]]:
    """What Python has where Dynamo ends a graph now: nodes, by name, and the memory of their tensors. `by` gives
    variables of a frame: the stack is what the next instruction takes or returns."""
    names, places = set[str](), set[int]()

    def look(value: Any) -> None:
        if issubclass(type(value), TensorVariable):
            names.add(value.proxy.node.name)
            places.update(_storages(value.proxy.node))
        elif type(value) is LazyVariableTracker:  # no operator has had it; an `isinstance` would make it an input
            places.update(_storages_of(pytree.tree_leaves(value.peek_value())))

    for held in islice(dynamo.calls("compile_subgraph", output_graph), 1):
        VariableTracker.visit(look, by(held["tx"]))
    return names, places


def _storages(node: Any) -> set[int]:
    """The memory of a node's fake tensor, and of the real one, if it is an input."""
    real = node.meta.get("grapharg")
    return _storages_of([node.meta.get("example_value"), getattr(real, "example", None)])


def _storages_of(values: Sequence[Any]) -> set[int]:
    """The memory of the plain tensors among the values. Neither a subclass nor what a transform such as vjp wraps has
    memory of its own."""
    found = set[int]()
    for value in values:
        if isinstance(value, torch.Tensor) and not is_traceable_wrapper_subclass(value):
            with contextlib.suppress(NotImplementedError):
                found.add(storage_key(value))
    return found
