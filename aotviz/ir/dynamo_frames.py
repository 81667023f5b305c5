"""The user's function behind a graph of Dynamo: its name, its place, and the names of its arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from inspect import signature
from typing import Any

import torch

from aotviz.torch_private.dynamo import ENTRY, compile_call, compile_id


def frame_name(graph_module: Any) -> str:
    """The name of the user's function, or the class of a module, with the compile id: "train_step [0/1]"."""
    stack = _user_stack(graph_module)
    function = stack[0].name if stack else "graph"
    inside = starts_in_module(graph_module)
    called = _variables().get("fn" if inside else "self") if inside or function == "forward" else None
    if isinstance(called, torch.nn.Module):
        function = type(called).__name__
    elif inside:
        function = getattr(called, "__name__", function)
    number = compile_id()
    return f"{function} [{number}]" if number is not None else str(function)


def place(graph_module: Any) -> str:
    """The place of the user's code that was captured: "file:line in function", "" if unknown."""
    stack = _user_stack(graph_module)
    inside = stack[1:] if starts_in_module(graph_module) and len(stack) > 1 else stack
    return f"{inside[0].filename}:{inside[0].lineno or 0} in {inside[0].name}" if inside else ""


def starts_in_module(graph_module: Any) -> bool:
    """Whether a module of torch.nn was compiled: Dynamo then starts in a frame of its own, where the module is `fn`."""
    stack = _user_stack(graph_module)
    return bool(stack) and stack[0].filename == ENTRY


def _user_stack(graph_module: Any) -> list[Any]:
    return getattr(getattr(graph_module, "compile_subgraph_reason", None), "user_stack", None) or []


def arguments_inside(graph_module: Any) -> tuple[str, ...] | None:
    """The user's names for the positional arguments of what Dynamo's own frame calls; None for another frame.

    Only valid while the graph is handed to a backend.
    """
    if not starts_in_module(graph_module):
        return None
    called: Any = _variables().get("fn")
    try:
        parameters = signature(getattr(called, "forward", called)).parameters.values()
    except (TypeError, ValueError):  # of a function written in C
        return ()
    return tuple(one.name for one in parameters if one.kind < one.VAR_POSITIONAL)


def named_outside(name: str, arguments: Sequence[str]) -> str:
    """The user's name for an input of a graph that starts in such a frame.

    >>> [named_outside(name, ["x"]) for name in ("args[0].T", "args[1]", "kwargs['mask']", "fn.weight")]
    ['x.T', 'args[1]', 'mask', 'weight']
    """
    name = name.removeprefix("fn.")
    found = re.fullmatch(r"(?:args\[(?P<place>\d+)\]|kwargs\['(?P<key>\w+)'\])(?P<part>.*)", name)
    if found is None or (found["place"] and int(found["place"]) >= len(arguments)):
        return name
    return (found["key"] or arguments[int(found["place"])]) + found["part"]


def _variables() -> dict[str, Any]:
    """The local variables of the frame that Dynamo compiles."""
    return getattr((compile_call() or {}).get("frame"), "f_locals", {})
