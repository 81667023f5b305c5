"""Running graphs and modules inside a trace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.fx as fx

from aotviz.torch_private import graph_nodes, pytree
from aotviz.torch_private.cannot_trace import CannotTrace
from aotviz.torch_private.modules import flat_weights_kept, tensors_of
from aotviz.torch_private.operators import named_slots


def nested(graph_module: fx.GraphModule, inputs: tuple[Any, ...], outputs: Any) -> fx.GraphModule:
    """Make a flat graph take and return nested values of the same structure as the examples."""
    spec = pytree.tree_structure((inputs, {}))
    names = ["primals", "tangents"]
    codegen = graph_nodes.nested_codegen(names[: len(inputs)], spec, pytree.tree_structure(outputs))
    graph_module.graph.set_codegen(codegen)
    graph_module.recompile()
    return graph_module


@contextlib.contextmanager
def swapped(module: torch.nn.Module, values: Mapping[str, Any]) -> Iterator[None]:
    """Let `module` use `values` instead of its parameters, buffers and script objects. Tied names get one tensor."""
    places = named_slots(module, list(values))
    wanted = {id(place[leaf]): value for (place, leaf), value in zip(places, values.values(), strict=True)}
    homes = {id(place): place for place, _ in places}
    for one in module.modules():  # each module once, even if it has several names
        homes.update((id(held), held) for held in tensors_of(one))
    put = [(home, leaf, was) for home in homes.values() for leaf, was in home.items() if id(was) in wanted]
    with flat_weights_kept(module):
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
