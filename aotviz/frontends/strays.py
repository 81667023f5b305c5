"""Find the user's name of a tensor that a trace uses although it is not an input.

Frontends that take a function without Dynamo lift the parameters and buffers of a module. If the function uses any
other tensor, an operator of the trace gets a real tensor together with FakeTensors, and torch raises an error. The
tensor is then searched for in everything that the function can reach, so that our error can name it.
"""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Mapping
from types import FrameType
from typing import Any

import torch

from aotviz.ir.forms import Request
from aotviz.ir.refusals import Refused
from aotviz.ir.user_code import is_library, variables
from aotviz.python_state.free_variables import Modules, reachable
from aotviz.tracing import fakes


def in_words(error: BaseException, request: Request) -> Exception | None:
    """An error that says in the user's names what cannot be traced; None if `error` has another cause."""
    arguments = {} if request.is_graph else request.arguments()
    root = request.root_module
    named = explained(error, request.fn if root is None or isinstance(root, Modules) else root, arguments)
    if named is None and fakes.asks_for_values(error) and not request.is_graph:
        named = value_asked_for(error, root)  # under Dynamo, torch's error causes a graph break
    return named


def explained(error: BaseException, fn: Any, arguments: Mapping[str, Any]) -> Exception | None:
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
    """The refusal of a program that reads the value of a tensor. It names the line, and the buffer or the variables."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    lines = traceback.extract_tb(error.__traceback__)
    steps = list(zip(frames, lines, strict=True))
    own = [step for step in steps if not is_library(step[1].filename)]
    # Else one of torch.nn: a user may be able to call its functions in another way.
    own = own or [step for step in steps if "/torch/nn/" in step[1].filename.replace("\\", "/")]
    where = f" at {own[-1][1].filename}:{own[-1][1].lineno} `{own[-1][1].line}`" if own else ""
    paths = {id(module): path for path, module in root.named_modules()} if root is not None else {}
    for frame, line in reversed(steps):
        module = frame.f_locals.get("self")
        if not isinstance(module, torch.nn.Module):
            continue
        read = [name for name in re.findall(r"self\.(\w+)", line.line or "") if name in dict(module.named_buffers())]
        if read:
            path = ".".join(part for part in (paths.get(id(module), ""), read[0]) if part)
            return Refused("value of a tensor", f"of the buffer {path!r} of {type(module).__name__}", where)
    return Refused("value of a tensor", _by_its_variables(*own[-1]) if own else "of a tensor", where)


def _by_its_variables(frame: FrameType, line: traceback.FrameSummary) -> str:
    """The tensor whose value is asked for at `line`, by the names of the tensors in the part of the line that asks."""
    asks = linecache.getline(line.filename, line.lineno or 0).encode()  # the columns count bytes
    if line.colno is not None and line.end_colno is not None and line.lineno == line.end_lineno:
        asks = asks[line.colno : line.end_colno]
    found = variables(frame)
    words = dict.fromkeys(re.findall(r"(?<![\w.])[^\W\d]\w*", asks.decode(errors="replace")))
    names = [repr(word) for word in words if isinstance(found.get(word), torch.Tensor)]
    return f"of a tensor that depends on {' and '.join(names)}," if names else "of a tensor"
