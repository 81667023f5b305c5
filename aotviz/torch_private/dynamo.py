"""What a backend must know of Dynamo: how it is found by name, and what Dynamo calls the function it compiles."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from inspect import signature
from types import FrameType
from typing import Any

import torch
from torch._dynamo import config, convert_frame, eval_frame, external_utils
from torch._dynamo.backends import registry
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.utils import counters, get_metrics_context
from torch._guards import CompileContext, DuplicateInputs, TracingContext

from aotviz.torch_private import failed_guards

BackendFailed = BackendCompilerFailed
_ISOLATED = {"isolate_recompiles": True} if "isolate_recompiles" in signature(torch.compile).parameters else {}

_GROUP = "torch_dynamo_backends"


class Moment:
    """What Dynamo is at while one of its records is made. To be asked in the same call, in the same thread."""

    @property
    def compilation(self) -> object:
        """An object that lives as long as anything may still be compiled of the compilation; None outside any."""
        return CompileContext.try_get()

    def code(self) -> int | None:
        """The function that is compiled: a number that is the same for equal code."""
        found = compile_call()
        return hash(found["code"]) if found is not None and "code" in found else None

    def failed_guards(self) -> list[failed_guards.Program]:
        """Why each program that Dynamo has of the function does not do for this call, the newest first."""
        found = compile_call() or {}
        entries, frame = found.get("cache_entries"), found.get("frame")
        return failed_guards.of(entries, frame.f_locals) if entries and frame is not None else []


def offer(name: str, where: str) -> None:
    """Let `torch.compile(backend=name)` find `where` ("module:attribute") in a checkout that was never installed.

    An installed package announces the same by an entry point, and that one wins.
    """
    registry._BACKENDS.setdefault(name, EntryPoint(name=name, value=where, group=_GROUP))


def compiled(fn: Any, backend: Any, **options: Any) -> Any:
    """`torch.compile`, the programs of which count towards no other function's limit where torch can do that."""
    return torch.compile(fn, backend=backend, **options, **_ISOLATED)


def count_compilation(outcome: str) -> None:
    """Count one more graph that goes through AOTAutograd, where DDPOptimizer and people look for it.

    `outcome` is "total" when it begins, and "ok" when it is done.
    """
    counters["aot_autograd"][outcome] += 1


def frame_name(graph_module: Any) -> str:
    """The user's function, or the class of a module, and which compilation of it this is: "train_step [0/1]"."""
    stack = _user_stack(graph_module)
    function = stack[0].name if stack else "graph"
    inside = starts_in_module(graph_module)
    called = _variables().get("fn" if inside else "self") if inside or function == "forward" else None
    if isinstance(called, torch.nn.Module):
        function = type(called).__name__
    elif inside:
        function = getattr(called, "__name__", function)
    number = CompileContext.current_compile_id()
    return f"{function} [{number}]" if number is not None else str(function)


def place(graph_module: Any) -> str:
    """Where the user's code is that a graph was captured from: "file:line in function", "" if unknown."""
    stack = _user_stack(graph_module)
    inside = stack[1:] if starts_in_module(graph_module) and len(stack) > 1 else stack
    return f"{inside[0].filename}:{inside[0].lineno or 0} in {inside[0].name}" if inside else ""


def recompile_reason() -> str:
    """The guard that the newest program of this function failed, as Dynamo logs it; "" for a first program."""
    gathering = get_metrics_context()
    return str(gathering._metrics.get("recompile_reason") or "") if gathering.in_progress() else ""


def compile_call() -> dict[str, Any] | None:
    """The variables of the call by which Dynamo compiles a function, if this thread is in one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_compile" and frame.f_globals.get("__name__") == convert_frame.__name__:
            return frame.f_locals
        frame = frame.f_back
    return None


def starts_in_module(graph_module: Any) -> bool:
    """Whether a module of torch.nn was compiled: Dynamo then starts in a frame of its own, where it is called `fn`."""
    stack = _user_stack(graph_module)
    return bool(stack) and stack[0].filename == external_utils.__file__


def _user_stack(graph_module: Any) -> list[Any]:
    return getattr(getattr(graph_module, "compile_subgraph_reason", None), "user_stack", None) or []


def arguments_inside(graph_module: Any) -> tuple[str, ...] | None:
    """The user's names for the positional arguments of what a frame of Dynamo's own calls; None for another frame.

    Asked for while the graph is handed to a backend.
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
    """Those of the frame that Dynamo compiles."""
    return getattr((compile_call() or {}).get("frame"), "f_locals", {})


def is_symbolic(value: Any) -> bool:
    """Whether Dynamo gave a symbolic number for an input."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def compiling() -> bool:
    """Whether Dynamo waits for what we compile, and so would take guards."""
    return TracingContext.try_get() is not None


def at_work() -> bool:
    """Whether Dynamo is compiling: a function, or in a trace of ours the branch of a `torch.cond`."""
    return CompileContext.current_compile_id() is not None


def may_compile_again() -> bool:
    """Whether a function that has a program may get another: `torch.compiler.set_stance` can forbid that, say."""
    stances = ("default", "eager_then_compile", "aot_eager_then_compile")
    return eval_frame._stance.stance in stances and not config.error_on_recompile


def recompile_limit() -> int:
    """How many programs Dynamo keeps of one function."""
    return int(config.recompile_limit)


def source(node: Any) -> Any:
    """Dynamo's source object of a graph input, or None."""
    found = getattr(node, "_dynamo_source", None)
    return found if found is not None else getattr(node.meta.get("grapharg"), "source", None)


def guard_same(one: Any, other: Any) -> None:
    """The program holds only for calls that pass one tensor in both places."""
    if one is not None and other is not None and one != other:
        TracingContext.get().guards_context.aotautograd_guards.append(DuplicateInputs(one, other))


def is_static(node: Any) -> bool:
    """Whether Dynamo marked a graph input as one that stays where it is in memory."""
    return bool(node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type"))
