"""Why a part of a backward cannot be compiled, in one sentence about the autograd node that it stopped at.

Refusals speak of the user's function and its lines, and say how to write it otherwise. A backward has no such lines:
what its user knows is the autograd node, which has the name of the operator in the forward.
"""

from __future__ import annotations

import re

import torch.fx as fx

from aotviz.ir.refusals import NO_LINE, Refused, briefly, executed, in_words
from aotviz.torch_private.operators import is_operator
from aotviz.whole_backward import steps


class PartNotCompiled(RuntimeError):
    """A part of a backward runs operator by operator."""


def explained(module: fx.GraphModule, error: Exception) -> PartNotCompiled:
    """The error of a compilation of `module`, for the user: "MmBackward0 cannot be compiled: ..."."""
    if isinstance(error, PartNotCompiled):
        return error
    about = re.match(r"input '(\w+)'", str(error))
    name = about[1] if about else executed(error)
    node = next((node for node in module.graph.nodes if node.name == name), None)
    if node is not None and node.op == "placeholder":
        node = next(iter(node.users), None)
    subject = "it" if node is None else _name_of(node)
    return PartNotCompiled(f"{subject} cannot be compiled: {_why(error)}")


def _why(error: Exception) -> str:
    operator = getattr(error, "func", None)
    if is_operator(operator):  # torch's errors of FakeTensors have nothing else to say
        return f"its operator {operator} cannot run on FakeTensors, with which graphs are traced"
    if isinstance(error, Refused):
        message, _ = in_words(error)
        sentence = message.partition(". ")[0].removesuffix(f": {NO_LINE}")
        return re.sub("^(the function|the program)", "it", re.sub("^input", "its input", sentence))
    return briefly(error)


def _name_of(node: fx.Node) -> str:
    """The autograd node of a step; an operator, if the step was copied from the backward of a compiled forward."""
    if node.target is steps.add_to_gradient:
        return "AccumulateGrad"
    if is_operator(node.target):
        return str(node.target)
    return str(getattr(node.target, "__name__", node.target))
