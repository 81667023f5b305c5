"""What the code after a graph from Dynamo does with its tensors, where a compiled graph could not answer as eager."""

from __future__ import annotations

import dis
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from torch._dynamo import output_graph
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.tensor import TensorVariable

from aotviz.torch_private import dynamo

_DIFFERENTIATES = ("using `torch.autograd.grad`", "Unsupported Tensor.backward() call")  # how Dynamo's reasons begin


@dataclass(frozen=True)
class Follows:
    """What follows a graph."""

    data: str = ""
    """What is done with a tensor's `.data`. "assigned": the graph ended before `x.data = ...`, with an `x` that it
    returns. "named": it ended at another break, in a function that has `.data` somewhere. Else ""."""

    differentiated: tuple[int, ...] = ()
    """Which results are arguments of `torch.autograd.grad` or `backward`, before which the graph ended."""

    is_input_differentiated: bool = False
    """Whether an input of the graph is such an argument."""

    writes: bool = False
    """Whether the graph ended at a break in a function that writes to something in place (`x.mul_()`, `x += 1`,
    `x[0] = 1`). A compiled backward is then not computed from what may have been written."""

    returned: tuple[int, ...] = ()
    """Which inputs the function returns as they are. A graph does not return them."""

    def __bool__(self) -> bool:
        """Whether a graph could not answer as eager."""
        return replace(self, writes=False, returned=()) != NOTHING

    def __str__(self) -> str:
        """As it is told where two programs differ: each field that is set, in words."""
        said = {
            "`.data` is assigned": self.data == "assigned",
            "`.data` is used": self.data == "named",
            f"gradients of results {_listed(self.differentiated)} are asked for": self.differentiated,
            "gradients of inputs are asked for": self.is_input_differentiated,
            "something is written in place": self.writes,
            f"inputs {_listed(self.returned)} are returned": self.returned,
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
    if not why.graph_break:
        back = _operands()
        return Follows(returned=tuple(i for i, node in enumerate(inputs) if node.name in back))
    named = "named" if "data" in call["code"].co_names else ""
    writes = any(map(_writes, dis.get_instructions(call["code"])))
    taken = _operands() if text.startswith(_DIFFERENTIATES) else set()
    results = module.graph.find_nodes(op="output")[0].args[0] if taken else ()
    places = tuple(i for i, node in enumerate(results) if getattr(node, "name", None) in taken)
    return Follows(named, places, any(node.name in taken for node in inputs), writes)


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def _writes(instruction: dis.Instruction) -> bool:
    """Whether an instruction may be a part of a statement that writes to a tensor."""
    name = instruction.argval if instruction.opname in ("LOAD_METHOD", "LOAD_ATTR") else ""
    in_place = instruction.opname == "BINARY_OP" and instruction.argrepr.endswith("=")
    return in_place or instruction.opname == "STORE_SUBSCR" or (name.endswith("_") and not name.endswith("__"))


def _operands() -> set[str]:
    """The nodes that the instruction takes at which Dynamo ends a graph now, or that it returns, by name."""
    taken = set[str]()

    def look(value: Any) -> None:
        if isinstance(value, TensorVariable):
            taken.add(value.proxy.node.name)

    for held in islice(dynamo.calls("compile_subgraph", output_graph), 1):
        VariableTracker.visit(look, held["tx"].stack)
    return taken
