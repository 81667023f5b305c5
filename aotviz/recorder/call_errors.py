"""Errors that stop a call of a compiled function, and that no log of torch's has.

They are of three kinds: memory ran out while a program ran; the call needed a new program where none may be made
(`torch.compiler.set_stance("fail_on_recompile")`); or a compiled function, or its backward, raised anything else. A
block that watches or records notes the error that ends it, and a function of `aotviz.compile` the one that it raises.
Of the errors that no compiled function raised, a block notes those that compiling may explain, such as an assertion.
Nothing is done for a call that raises none.

Where a compiled program raised it, the user's line is not in the traceback: Dynamo's code for the function has the line
of its `def`, and the program is generated code. The statement of a graph names a node, which knows its line. A kernel
of Inductor's is noted by its name; the recording has the nodes that it computes.
"""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import NamedTuple

import torch

from aotviz.ir import user_warnings
from aotviz.recording import guard_texts
from aotviz.recording.error_messages import INFERENCE, OF_OPERATOR
from aotviz.recording.schema import CallError
from aotviz.recording.sources import UNKNOWN, SourceLine, user_frames
from aotviz.recording.strings import clean
from aotviz.torch_private import dynamo, registered_operators

OUTSIDE = re.compile(  # what torch says in errors that no compiled function raised, and that compiling explains
    r"_orig_mod\.|Timed out waiting|Watchdog caught collective operation timeout|Export only supports pytree containers"
)
NO_MEMORY = re.compile(r"out of memory|can't allocate memory|not enough memory")
NO_RECOMPILE = re.compile(
    r"Detected recompile when torch\.compile stance is 'fail_on_recompile'\. filename: '(?P<file>.*)', "
    r"function name: '(?P<function>.*)', line number: (?P<line>\d{1,9})"
)
MOST_SAID = 2000  # characters of a message
MOST_ABOUT = 4
STATEMENT = re.compile(r"\s*(?P<name>\w+)(?:: [^=]*)? = ")  # of a graph
CALLED = re.compile(r"\s*(?:\w+(?:, \w+)* = )?(?P<kernel>\w+(?:\.\w+)*)\(")  # by Inductor's program
BACKWARDS = "backward", "grad"  # of torch.autograd


class _Raised(NamedTuple):
    """Where an error was raised."""

    line: SourceLine
    during: str  # as in CallError
    kernel: str


def noted(error: BaseException, is_of_block: bool = False) -> CallError | None:
    """What a recording keeps of the error; None if no compiled function raised it.

    An error that ends a block is kept, whatever raised it.
    """
    if not isinstance(error, Exception):
        return None
    said = str(error)
    refused = NO_RECOMPILE.match(said)
    frames = list(traceback.walk_tb(error.__traceback__))
    if isinstance(error, RuntimeError) and refused is not None:
        file, number = refused["file"], int(refused["line"])
        line = SourceLine(file, number, refused["function"], _statement(file, number))
        found = _Raised(line, "", "")
    elif isinstance(error, RuntimeError) and NO_MEMORY.search(said):
        users = [_line(frame, number) for frame, number in frames if _is_users(frame)]
        found = _Raised(users[-1] if users else UNKNOWN, "", "")
    else:
        found = _where(frames, dynamo.is_compile_error(error))
        if is_of_block and (not found.during or (found.during == "export" and OUTSIDE.search(said))):
            found = _Raised(found.line, "outside", "")
        if not found.during:
            return None
    return CallError(
        type(error).__name__,
        clean(_first_lines(said)),
        [clean(guard) for guard in guard_texts.refused(said)] if refused else [],
        clean(found.line.function),
        clean(found.line.with_code),
        found.during,
        clean(found.kernel),
        [clean(one) for one in _about(said, frames)],
    )


def _first_lines(said: str) -> str:
    """The first lines of a message: those after an empty line explain where it was raised, or how to get more output.

    >>> _first_lines("backend='mine' raised:\\nKeyError: 1\\n\\nSet TORCHDYNAMO_VERBOSE=1")
    "backend='mine' raised: KeyError: 1"
    """
    found = OUTSIDE.search(said)
    if found is not None:  # the lines up to what tells the cause
        rest = said[found.end() :].partition("\n")[0]
        said = " ".join(f"{said[: found.end()]}{rest}".split())
    first, _, rest = said.strip().partition("\n\n")[0].partition("\n")
    return f"{first}{' ' if first.endswith(':') else chr(10)}{rest}".strip()[:MOST_SAID]


def _about(said: str, frames: Sequence[tuple[FrameType, int]]) -> list[str]:
    """What a message of torch's does not name, and a person has to find: which of the tensors were made in inference
    mode, or where the fake kernel is defined that promised another result."""
    if INFERENCE.search(said):
        found: dict[int, str] = {}  # id of a tensor -> its name in the innermost function that has it
        for name, tensor in (one for frame, _ in reversed(frames) if _is_users(frame) for one in _tensors(frame)):
            if tensor.is_inference():
                found.setdefault(id(tensor), name)
        return list(found.values())[:MOST_ABOUT]
    match = OF_OPERATOR.search(said)
    code = registered_operators.fake_kernel(f"{match['name']}::{match['op']}") if match else None
    if code is None:
        return []
    file, number = code.co_filename, code.co_firstlineno
    return [SourceLine(file, number, code.co_name, _statement(file, number)).with_code]


_Held = torch.Tensor | torch.nn.Module | None  # or anything else, which is passed over


def _tensors(frame: FrameType) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a function's variables and of its modules, by the names that it has for them."""
    variables: Mapping[str, _Held] = frame.f_locals
    for name, value in variables.items():
        held = {name: value}
        if isinstance(value, torch.nn.Module):
            for path, module in value.named_modules(prefix=name):
                attributes: dict[str, _Held] = {**vars(module), **dict(module.named_parameters(recurse=False))}
                attributes.update(module.named_buffers(recurse=False))
                held.update((f"{path}.{key}", one) for key, one in attributes.items())
        yield from ((path, one) for path, one in held.items() if isinstance(one, torch.Tensor))


def _where(frames: Sequence[tuple[FrameType, int]], is_compile_error: bool) -> _Raised:
    line, node, kernel, function = UNKNOWN, UNKNOWN, "", ""
    is_program = is_backward = False
    called = set[str]()
    for place, (frame, number) in enumerate(frames):
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if _is_users(frame):
            if place == len(frames) - 1 or number != frame.f_code.co_firstlineno:
                line, node, kernel, function = _line(frame, number), UNKNOWN, "", ""
            else:  # of a program
                function = name
        elif name == "forward" and isinstance(frame.f_locals.get("self"), torch.fx.GraphModule):
            node, kernel, is_program = _of_node(frame, number), "", True
        elif user_warnings.is_inductors(file) and (call := CALLED.match(_statement(file, number))):
            node, kernel, is_program = UNKNOWN, call["kernel"], True
        elif name in BACKWARDS and file.startswith(AUTOGRAD):
            is_backward = True
        called.add(dynamo.called_in(frame))
        is_program = is_program or "program" in called or file.startswith("<aotviz")
    if "export" in called:
        during = "export"
    elif is_compile_error:
        during = "compile"
    elif is_program:
        during = "backward" if is_backward else "program"
    else:
        during = "eager" if "call" in called else ""
    if node.line:
        line = node
    elif during == "backward" or function:
        line = replace(line, function=function)
    return _Raised(line, during, kernel)


AUTOGRAD = torch.autograd.__file__.removesuffix("__init__.py")


def _is_users(frame: FrameType) -> bool:
    return user_warnings.is_users(frame.f_code.co_filename) and not user_warnings.is_pythons(frame.f_code.co_filename)


def _line(frame: FrameType, number: int) -> SourceLine:
    file = frame.f_code.co_filename
    return SourceLine(file, number, frame.f_code.co_name, _statement(file, number))


def _statement(file: str, number: int) -> str:
    return linecache.getline(file, number).strip()


def _of_node(frame: FrameType, number: int) -> SourceLine:
    """The user's line of the node that a graph's statement computes."""
    statement = STATEMENT.match(_statement(frame.f_code.co_filename, number))
    if statement is None:
        return UNKNOWN
    nodes: Iterator[torch.fx.Node] = iter(frame.f_locals["self"].graph.nodes)
    stacks = (node.stack_trace or "" for node in nodes if node.name == statement["name"])
    lines = reversed(user_frames(next(stacks, "")))
    return next((line for line in lines if user_warnings.is_users(line.file)), UNKNOWN)
