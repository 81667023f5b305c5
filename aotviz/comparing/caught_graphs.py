"""Capture the graphs that aotviz or torch's own AOTAutograd makes for one call, as they go to the compilers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx as fx

from aotviz.frontends.functions import aot_function
from aotviz.ir.graphs import copy
from aotviz.lowerings import run_graph
from aotviz.python_state.free_variables import Modules, modules
from aotviz.torch_private import oracle

Door = Callable[..., Callable[..., Any]]


class Calls(Modules):
    """A function and the modules that it refers to, as one module, so that AOTAutograd can lift their parameters."""

    def __init__(self, fn: Any, modules: dict[str, torch.nn.Module]) -> None:
        super().__init__(modules)
        self.__dict__["fn"] = fn

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["fn"](*args, **kwargs)


def as_module(fn: Any) -> Any:
    """`fn`, or a module that calls it if `fn` is not a module but uses modules."""
    if isinstance(fn, torch.nn.Module):
        return fn
    found = modules(fn)
    return Calls(fn, found) if found else fn


def torchs(fn: Any, compiler: Callable[..., Any] = run_graph, **settings: Any) -> Callable[..., Any]:
    """`fn` compiled by torch's own AOTAutograd. `settings` are the other arguments of its `aot_function`."""
    return oracle.aot(as_module(fn), fw_compiler=compiler, bw_compiler=compiler, **settings)


def ours(fn: Any, compiler: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
    """`fn` compiled by aotviz's `aot_function`."""
    return aot_function(as_module(fn), compiler, record=False, cache=False, **settings)


def graphs_of(
    door: Door, fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, fx.GraphModule]:
    """Role -> graph: "joint", "forward" and "backward" of a call that needs gradients, else "inference"."""
    found: dict[str, fx.GraphModule] = {}

    def partition(joint: fx.GraphModule, inputs: Any, **others: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        found["joint"] = copy(joint)
        forward, backward = settings["partition_fn"](joint, inputs, **others)
        found["forward"], found["backward"] = copy(forward), copy(backward)
        return forward, backward

    def compiler(graph: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        if "joint" not in found:
            found.setdefault("inference", copy(graph))
        return run_graph(graph, inputs)

    door(fn, compiler, **{**settings, "partition_fn": partition})(*args, **kwargs)
    return found
