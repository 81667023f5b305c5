"""Find the user's name of a tensor that a trace uses although it is not an input.

Frontends that take a function without Dynamo lift the parameters and buffers of a module. If the function uses any
other tensor, an operator of the trace gets a real tensor together with FakeTensors, and torch raises an error. The
tensor is then searched for in everything that the function can reach, so that our error can name it.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from aotviz.frontends.requests import Modules
from aotviz.ir.forms import Request
from aotviz.ir.refusals import Refused
from aotviz.ir.user_code import is_library
from aotviz.tracing import fakes
from aotviz.tracing.outside import reachable


def in_words(error: BaseException, request: Request) -> Exception | None:
    """An error that says in the user's names what cannot be traced; None if `error` has another cause."""
    arguments = {} if request.is_graph else request.arguments()
    named = explained(error, root_of_all(request), arguments)
    if named is None and fakes.asks_for_values(error) and not request.is_graph:
        named = value_asked_for(error, request.root)  # under Dynamo, torch's error causes a graph break
    return named


def root_of_all(request: Request) -> Any:
    """The module that is compiled, or the function."""
    return request.fn if request.root is None or isinstance(request.root, Modules) else request.root


def explained(error: BaseException, fn: Any, arguments: Mapping[str, Any] = MappingProxyType({})) -> Exception | None:
    """An error that names the tensors that `error` is about; None if it is about something else.

    `arguments` are those of the call, by name.
    """
    met = fakes.strays(error)
    if not met:
        return None
    wanted = {id(tensor) for tensor in met}
    found = {place.path: place.of_module for place in reachable(fn, arguments) if id(place.value) in wanted}
    name = getattr(fn, "__name__", type(fn).__name__)
    if not found:
        sizes = " and ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in met)
        return Refused("tensor is not an argument", name, f"a tensor ({sizes})", "pass it as an argument")
    names = " and ".join(repr(path) for path in found)
    advice = "make it a buffer (register_buffer) or a parameter of the module, or pass it as an argument"
    if any(found.values()):
        advice = "compile an nn.Module that has the module holding it as a submodule, or pass the tensor as an argument"
    holder = next((argument for argument in arguments if any(path.startswith(f"{argument}.") for path in found)), None)
    if holder is not None:
        kind = type(arguments[holder]).__name__
        if isinstance(arguments[holder], torch.nn.Module):
            advice = f"compile the {kind} that is passed as {holder!r} itself, or pass its tensors"
        else:
            advice = (
                f"pass the tensor itself, or make {kind}, which is passed as {holder!r}, a pytree "
                f"(torch.export.register_dataclass({kind}) if it is a dataclass)"
            )
    return Refused("tensor is not an argument", name, f"the tensor {names}", advice)


def value_asked_for(error: BaseException, root: torch.nn.Module | None) -> Refused:
    """The refusal of a program that reads the value of a tensor. It names the line, and the buffer if there is one."""
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
    """Whether a source file belongs to torch.nn. A user may be able to call its functions in another way."""
    return "/torch/nn/" in filename.replace("\\", "/")
