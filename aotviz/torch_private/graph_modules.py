"""Running graphs and modules inside a trace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.fx as fx
import torch.utils._pytree as pytree
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo

from aotviz.torch_private.cannot_trace import CannotTrace
from aotviz.torch_private.operators import named_slots


def interpreter(graph_module: fx.GraphModule) -> Callable[..., Any]:
    """Run a graph node by node, so that each traced node inherits the metadata of the node that caused it."""

    def run(*args: Any) -> Any:
        return fx.Interpreter(graph_module).run(*args)

    return run


def nested(graph_module: fx.GraphModule, inputs: tuple[Any, ...], outputs: Any) -> fx.GraphModule:
    """Let a flat graph be called with, and return, nested values of the structure that the examples have."""
    spec = pytree.tree_structure((inputs, {}))
    names = ["primals", "tangents"]
    graph_module.graph.set_codegen(
        _PyTreeCodeGen(_PyTreeInfo(names[: len(inputs)], spec, pytree.tree_structure(outputs)))
    )
    graph_module.recompile()
    return graph_module


@contextlib.contextmanager
def swapped(module: torch.nn.Module, values: Mapping[str, Any]) -> Iterator[None]:
    """Let `module` see `values` in place of its parameters, buffers and script objects. Tied names get one tensor."""
    places = named_slots(module, list(values))
    wanted = {id(place[leaf]): value for (place, leaf), value in zip(places, values.values(), strict=True)}
    homes = {id(place): place for place, _ in places}
    for one in module.modules():  # each once, however many names it has
        homes.update((id(held), held) for held in (one._parameters, one._buffers))
    put = [(home, leaf, was) for home in homes.values() for leaf, was in home.items() if id(was) in wanted]
    with _flat_weights_kept(module):
        try:
            for home, leaf, was in put:
                home[leaf] = wanted[id(was)]
            yield
            for (place, leaf), (name, value) in zip(places, values.items(), strict=True):
                if place.get(leaf) is not value:
                    raise CannotTrace("parameter is replaced", repr(name), instead=f"self.{name}.copy_(...)")
        finally:
            for home, leaf, was in put:
                home[leaf] = was


@contextlib.contextmanager
def _flat_weights_kept(module: torch.nn.Module) -> Iterator[None]:
    """A recurrent module lists its weights anew in a call that finds others: here the trace's, for the trace alone."""
    held = [(one, one._flat_weights) for one in module.modules() if isinstance(one, torch.nn.RNNBase)]
    try:
        yield
    finally:
        for one, weights in held:
            one._flat_weights = weights
