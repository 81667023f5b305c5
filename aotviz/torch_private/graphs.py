"""Running graphs and modules inside a trace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.fx as fx
from torch.nn.utils.stateless import _reparametrize_module

from aotviz.torch_private.operators import named_slots


def interpreter(graph_module: fx.GraphModule) -> Callable[..., Any]:
    """Run a graph node by node, so that each traced node inherits the metadata of the node that caused it."""

    def run(*args: Any) -> Any:
        return fx.Interpreter(graph_module).run(*args)

    return run


@contextlib.contextmanager
def swapped(module: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Let `module` see `tensors` in place of its parameters and buffers. Tied names get one tensor."""
    with _reparametrize_module(module, dict(tensors), tie_weights=True):
        yield
        for (place, leaf), (name, tensor) in zip(named_slots(module, list(tensors)), tensors.items(), strict=True):
            if place.get(leaf) is not tensor:
                raise NotImplementedError(
                    f"the call assigns another tensor to the parameter or buffer {name!r}; write into it instead "
                    f"(self.{name}.copy_(...)), or leave this module to eager"
                )
