"""A tensor that a trace met and that is no input: which one is it, by the user's name?

Parameters and buffers are lifted where a module is in plain sight (`captured.py`). A tensor that a function reaches in
another way, through a container, a default argument, an attribute, an object that it calls, is met in the middle of a
trace as a real tensor among stand-ins. It is then looked for in everything that the function can reach.
"""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch

from aotviz import captured
from aotviz.ir.refusals import Refused
from aotviz.torch_private import fakes
from aotviz.torch_private.open_trace import is_library

DEPTH = 6  # steps from the function: its closure, an object there, an attribute of it, an item of that ...


def explained(error: BaseException, fn: Any, arguments: Mapping[str, Any] = MappingProxyType({})) -> Exception | None:
    """An error that names the tensor that `error` is about; None if it is about something else.

    `arguments` has each argument of the call under its name.
    """
    met = fakes.strays(error)
    if not met:
        return None
    wanted = {id(tensor) for tensor in met}
    found = {path: kind for path, tensor, kind in reachable(fn, arguments) if id(tensor) in wanted}
    name = getattr(fn, "__name__", type(fn).__name__)
    if not found:
        sizes = " and ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in met)
        return NotImplementedError(
            f"{name} uses a tensor ({sizes}) that is neither an argument nor made inside, and that nothing it refers "
            'to leads to. Pass it as an argument; torch.compile(fn, backend="aotviz") lifts such tensors itself.'
        )
    names = " and ".join(repr(path) for path in found)
    advice = "make it a buffer (register_buffer) or a parameter of the module, or pass it as an argument"
    if "held" in found.values():
        advice = "compile an nn.Module that has the module holding it as a submodule, or pass the tensor as an argument"
    return NotImplementedError(
        f"{name} uses the tensor {names} without taking it as an argument, so aotviz can't follow what happens to it: "
        f'{advice}. torch.compile(fn, backend="aotviz") lifts such tensors itself.'
    )


def value_asked_for(error: BaseException, root: torch.nn.Module | None) -> Refused:
    """What to say of a program whose course depends on the value of a tensor: the line, and the buffer it reads."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    lines = traceback.extract_tb(error.__traceback__)
    own = [line for line in lines if not is_library(line.filename)] or [
        line for line in lines if _of_a_module(line.filename)
    ]
    where = f" at {own[-1].filename}:{own[-1].lineno} `{own[-1].line}`" if own else ""
    paths = {id(module): path for path, module in root.named_modules()} if root is not None else {}
    for frame, line in reversed(list(zip(frames, lines, strict=True))):
        module = frame.f_locals.get("self")
        if not isinstance(module, torch.nn.Module):
            continue
        read = [name for name in re.findall(r"self\.(\w+)", line.line or "") if name in dict(module.named_buffers())]
        if read:
            path = ".".join(part for part in (paths.get(id(module), ""), read[0]) if part)
            return Refused("value of a tensor", f"of the buffer {path!r} of {type(module).__name__}", where)
    return Refused("value of a tensor", "of a tensor", where)


def _of_a_module(filename: str) -> bool:
    """Whether a source file has modules or functions of torch.nn, which a user may know to call otherwise."""
    return "/torch/nn/" in filename.replace("\\", "/")


def reachable(fn: Any, arguments: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor, str]]:
    """(path, tensor, kind) of the tensors that a call leads to; kind "held" for those that a module owns."""
    seen: set[int] = set()
    starts = [("self", fn)] if not inspect.isroutine(fn) else _of_function(fn)
    for path, value in (*starts, *arguments.items()):
        yield from _walk(path, value, seen, DEPTH, "")


def _of_function(fn: Any) -> list[tuple[str, Any]]:
    found = list(captured.references(fn))
    inner = inspect.unwrap(getattr(fn, "__func__", fn))
    try:
        parameters = inspect.signature(inner).parameters.values()
    except (TypeError, ValueError):
        return found
    return [*found, *((p.name, p.default) for p in parameters if p.default is not p.empty)]


def _walk(path: str, value: Any, seen: set[int], depth: int, kind: str) -> Iterator[tuple[str, torch.Tensor, str]]:
    if isinstance(value, torch.Tensor):
        yield path, value, kind
        return
    if depth == 0 or id(value) in seen or inspect.ismodule(value) or isinstance(value, (str, bytes, int, float, type)):
        return
    seen.add(id(value))
    if isinstance(value, torch.nn.Module):
        for name, tensor in (*value.named_parameters(), *value.named_buffers()):
            yield f"{path}.{name}", tensor, "held"
    for step, item in _parts(value):
        yield from _walk(path + step, item, seen, depth - 1, kind)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", item) for key, item in list(value.items()))
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
    elif inspect.isroutine(value):
        yield from ((f".{name}", item) for name, item in _of_function(value))
    elif isinstance(value, torch.nn.Module):
        for name, module in value.named_modules():
            prefix = f".{name}" if name else ""
            yield from ((f"{prefix}.{key}", item) for key, item in vars(module).items() if not key.startswith("_"))
    else:
        yield from ((f".{name}", item) for name, item in list(getattr(value, "__dict__", {}).items()))
        if callable(value):
            yield from ((f".__call__.{name}", item) for name, item in _of_function(type(value).__call__))
