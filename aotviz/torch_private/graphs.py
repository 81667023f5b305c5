"""Running graphs and modules inside a trace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.fx as fx
import torch.utils._pytree as pytree
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo
from torch.nn.utils.stateless import _reparametrize_module

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
    tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
    objects = {name: value for name, value in values.items() if name not in tensors}
    with (
        _flat_weights_kept(module),
        _reparametrize_module(module, tensors, tie_weights=True),
        _attributes(module, objects),
    ):
        yield
        for (place, leaf), (name, tensor) in zip(named_slots(module, list(tensors)), tensors.items(), strict=True):
            if place.get(leaf) is not tensor:
                raise NotImplementedError(
                    f"the call assigns another tensor to the parameter or buffer {name!r}; write into it instead "
                    f"(self.{name}.copy_(...)), or leave this module to eager"
                )


@contextlib.contextmanager
def _flat_weights_kept(module: torch.nn.Module) -> Iterator[None]:
    """A recurrent module lists its weights anew in a call that finds others: here the trace's, for the trace alone."""
    held = [(one, one._flat_weights) for one in module.modules() if isinstance(one, torch.nn.RNNBase)]
    try:
        yield
    finally:
        for one, weights in held:
            one._flat_weights = weights


@contextlib.contextmanager
def _attributes(module: torch.nn.Module, values: Mapping[str, Any]) -> Iterator[None]:
    places = named_slots(module, list(values))
    before = [place[leaf] for place, leaf in places]
    try:
        for (place, leaf), value in zip(places, values.values(), strict=True):
            place[leaf] = value
        yield
    finally:
        for (place, leaf), value in zip(places, before, strict=True):
            place[leaf] = value
