"""A program that stage "metadata" has traced, as text: what the stages after it read.

A trace has no graph of Dynamo. Its own graph has the operators of the forward alone: what a gradient will be depends on
the autograd graph that was recorded with it, on the user's `autograd.Function`s in there, and on the statements about
aliases in the ledger. All of these are described. A program that a later stage would trace again, from the user's
function, cannot be described.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from aotviz.cache import bypasses
from aotviz.cache.canonical import Program, Symbols
from aotviz.ir import autograd_graph
from aotviz.ir.forms import TracedCall
from aotviz.ir.wrapper_subclasses import is_subclass
from aotviz.torch_private import autograd_nodes
from aotviz.torch_private.autograd_nodes import function_of
from aotviz.torch_private.fake_tensors import FakeTensor
from aotviz.torch_private.modules import hooks_of
from aotviz.tracing import functional
from aotviz.tracing.events import Hooked, TensorNumber


def texts(call: TracedCall, symbols: Symbols) -> Mapping[str, str]:
    """The ingredients "program", "autograd" and "facts".

    Raises:
        Uncacheable: the program has hooks, or would be traced again, or depends on something without a description.
    """
    _refuse(call)
    forward = call.forward
    program = _Trace(symbols, forward.ledger.tensors)
    for argument in forward.args:
        program.value(argument)  # the first numbers are those of the inputs
    graph = program.whole(forward.graph(), forward.open.tracer.root)
    with forward.open.active("is_forward"):
        autograd = "\n".join(_autograd(program, call))
        events = "\n".join(_event(program, event) for event in forward.ledger.events)
    outputs = program.value([*forward.outputs, *forward.output_facts.bases])
    facts = "\n".join(f"{one.name}: {program.value(getattr(call.meta, one.name))}" for one in _fields(call.meta))
    shape = f"returns {outputs} as {call.out_spec}"
    return {"program": f"{graph}\n{shape}", "autograd": autograd, "facts": f"{facts}\n{events}"}


def _refuse(call: TracedCall) -> None:
    forward = call.forward
    if any(isinstance(event, Hooked) for event in forward.ledger.events) or forward.ledger.traced_hooks:
        raise bypasses.HOOKS(f"{call.name} registers gradient hooks")
    modules = call.root_module.modules() if call.root_module is not None else ()
    if any(hooks for module in modules for hooks in hooks_of(module)[2:]):
        raise bypasses.HOOKS(f"a module of {call.name} has backward hooks")
    if any(map(is_subclass, (*call.args, *forward.outputs))):
        raise bypasses.RETRACED(f"{call.name} is traced again for its tensor subclasses")
    if any(first is not None for first in call.duplicate_of):
        raise bypasses.RETRACED(f"{call.name} is traced again, because it is called with one tensor twice")
    storages = [functional.storage(value) for value in call.args if isinstance(value, torch.Tensor)]
    if len({*storages}) < len(storages):
        raise bypasses.RETRACED(f"{call.name} may be traced again, because its arguments share memory")


class _Trace(Program):
    """Describes what a trace has: its tensors by numbers, in order of their first occurrence. `tensors` are those of
    the ledger."""

    def __init__(self, symbols: Symbols, tensors: Sequence[Any]) -> None:
        super().__init__(symbols)
        self._of_ledger = tensors
        self._numbers: dict[int, int] = {}

    def value(self, value: Any) -> str:
        return super().value(self._of_ledger[value] if isinstance(value, TensorNumber) else value)

    def tensor(self, value: torch.Tensor) -> str:
        if functional.is_functional(value) or isinstance(value, FakeTensor):
            self.kept.append(value)
            return f"t{self._numbers.setdefault(id(value), len(self._numbers))}"
        return super().tensor(value)


def _fields(value: Any) -> tuple[Any, ...]:
    return dataclasses.fields(value)


def _event(program: Program, event: Any) -> str:
    held = (f"{one.name}={program.value(getattr(event, one.name))}" for one in _fields(event))
    return f"{type(event).__name__}({', '.join(held)})"


def _autograd(program: Program, call: TracedCall) -> Iterator[str]:
    """The nodes behind each result, in the order in which they were made, and their edges."""
    forward = call.forward
    roots = {}
    for kind, values in (("output", forward.outputs), ("base", forward.output_facts.bases), ("input", forward.args)):
        for i, value in enumerate(values):
            if functional.is_functional(value) and value.requires_grad:
                roots[f"{kind} {i}"] = functional.grad_fn(value)
    nodes = [node for node in autograd_graph.nodes_behind(filter(None, roots.values())) if node is not None]
    made = sorted(dict.fromkeys(nodes), key=autograd_nodes.number)
    leaves = [node for node in made if getattr(node, "variable", None) is not None]
    numbers = {node: i for i, node in enumerate(node for node in made if node not in leaves)}
    for node in leaves:
        numbers[node] = f"leaf {program.value(node.variable)}"  # type: ignore[assignment]
    for node, number in numbers.items():
        if node not in leaves:
            edges = ", ".join(
                "none" if one is None else f"{numbers[one]}:{place}" for one, place in node.next_functions
            )
            yield f"{number} {_name(program, node)} -> {edges}"
    yield from (f"{name} is of {numbers.get(node, 'none')}" for name, node in roots.items())


def _name(program: Program, node: Any) -> str:
    if not autograd_graph.from_custom_function(node):
        return str(node.name())
    state = program.value(dict(sorted(vars(node).items())))
    return f"{program.kind(function_of(node))} {state}"
