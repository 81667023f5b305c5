"""Access to Dynamo's state: registering a backend, and what is being compiled."""

from __future__ import annotations

import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from inspect import signature
from types import FrameType, ModuleType
from typing import Any, TypeVar

import torch
from torch._dynamo import config as config
from torch._dynamo import convert_frame, eval_frame, exc, external_utils
from torch._dynamo.backends import registry
from torch._dynamo.exc import Unsupported as Unsupported
from torch._dynamo.guards import GuardBuilder
from torch._dynamo.utils import counters as counters  # "unimplemented" has what Dynamo met and can't trace
from torch._dynamo.utils import get_metrics_context
from torch._guards import CompileContext, DuplicateInputs, TracingContext
from torch._logging import structured
from torch.fx.experimental._backward_state import BackwardState as BackwardState  # has hooks, set after the forward

BackendFailed, CompileError = exc.BackendCompilerFailed, exc.TorchDynamoException
Function = TypeVar("Function", bound=Callable[..., Any])
programs_of = eval_frame._debug_get_cache_entry_list
_ISOLATED: dict[str, Any] = (
    {"isolate_recompiles": True} if "isolate_recompiles" in signature(torch.compile).parameters else {}
)

_AOT_AUTOGRAD = "torch._functorch._aot_autograd."  # the modules of it


def offer(name: str, where: str) -> None:
    """Register `where` ("module:attribute") for `torch.compile(backend=name)` in a checkout that is not installed.

    An installed package does this by an entry point, which takes precedence.
    """
    registry._BACKENDS.setdefault(name, EntryPoint(name=name, value=where, group="torch_dynamo_backends"))


def compiled(fn: Any, backend: Any, **options: Any) -> Any:
    """`torch.compile`, whose programs do not count towards another function's limit, if torch supports that."""
    return torch.compile(fn, backend=backend, **options, **_ISOLATED)


def traced_as(other: Any) -> Callable[[Function], Function]:
    """A decorator: where Dynamo traces a call of the function, it traces `other` in its place."""

    def decorate(function: Function) -> Function:
        function._torchdynamo_inline = other  # type: ignore[attr-defined]
        return function

    return decorate


compilation = CompileContext.try_get
"""Returns an object that lives as long as the running compilation may compile anything; None outside any."""

compile_id = CompileContext.current_compile_id
"""Returns the number, as in "0/1", of what Dynamo compiles: a function, or the branch of a `torch.cond` in one of our
traces. None outside any compilation."""


def symbols() -> Iterator[tuple[str, str, str]]:
    """(name, source, value) of the sizes and numbers that are symbolic in Dynamo's capture."""
    shapes = getattr(getattr(TracingContext.try_get(), "fake_mode", None), "shape_env", None)
    if shapes is None:
        return
    for symbol, sources in shapes.var_to_sources.items():
        if sources and symbol in shapes.backed_var_to_val:
            yield str(symbol), str(sources[0].name), str(shapes.backed_var_to_val[symbol])


numbered_files: Mapping[str, int] = structured.INTERN_TABLE
"""The numbers of file names in torch's structured trace."""


ENTRY = external_utils.__file__
"""The file in which Dynamo starts when a module of torch.nn is compiled."""


def recompile_reason() -> str:
    """The guard that the newest program of this function failed, in Dynamo's words; "" for a first program."""
    gathering = get_metrics_context()
    return str(gathering._metrics.get("recompile_reason") or "") if gathering.in_progress() else ""


def calls(name: str, module: ModuleType) -> Iterator[dict[str, Any]]:
    """The variables of the calls of a function of torch's that this thread is in, from the innermost."""
    for frame, _ in traceback.walk_stack(sys._getframe(1)):
        if frame.f_code.co_name == name and frame.f_globals.get("__name__") == module.__name__:
            yield frame.f_locals


def called_in(frame: FrameType) -> str:
    """What a function of torch's is called for in this frame: "export", the "call" of a function that Dynamo compiles,
    the "program" that AOTAutograd made, or ""."""
    module, name = str(frame.f_globals.get("__name__")), frame.f_code.co_name
    if module.startswith("torch.export") and name in ("export", "draft_export"):
        return "export"
    if module == eval_frame.__name__ and name == "compile_wrapper":
        return "call"
    return "program" if module.startswith(_AOT_AUTOGRAD) else ""


def is_compile_error(error: BaseException) -> bool:
    """Whether torch could not compile a function."""
    return isinstance(error, CompileError) or type(error).__module__ == exc.__name__


def compile_call() -> dict[str, Any] | None:
    """The variables of the call in which Dynamo compiles a function, if this thread is in one."""
    return next(calls("_compile", convert_frame), None)


def programs(compile_call: dict[str, Any]) -> list[Any]:
    """Dynamo's cache entries of the function that is compiled, the newest first."""
    if "cache_entries" in compile_call:
        return list(compile_call["cache_entries"] or ())
    found, entry = [], compile_call.get("cache_entry")
    while entry is not None:  # in torch 2.11 each has the next one
        found.append(entry)
        entry = entry.next
    return found


@dataclass(frozen=True)
class RunningCall:
    """A call of a compiled function."""

    context: Any  # called with the function, it compiles that again
    function: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    token: object  # an object of this call alone


def running_call() -> RunningCall | None:
    """The outermost call of a compiled function that this thread is in; None if there is none, or for an export."""
    held: dict[str, Any] = next(iter(deque(calls("compile_wrapper", eval_frame), maxlen=1)), {})
    context, token = held.get("self"), held.get("cleanups")
    if token is None or getattr(context, "export", False):
        return None
    return RunningCall(context, held["fn"], held["args"], held["kwargs"], token)


def compiling() -> bool:
    """Whether Dynamo is waiting for our result, and would accept guards."""
    return TracingContext.try_get() is not None


def functions_compiled() -> int:
    """How many functions Dynamo has compiled since its last reset; the rest of one after a break counts too."""
    return int(convert_frame.FRAME_COUNTER)


def changed_defaults() -> list[str]:
    """Defaults that Dynamo has changed, as the function being compiled does, since it began with that function."""
    known = convert_frame.initial_global_state if compile_id() is not None else None
    differs = "" if known is None or known.check() else known.reason()
    names = {"default_dtype": "the default dtype", "deterministic_algorithms": "use_deterministic_algorithms"}
    return [names[word] for word in differs.split() if word in names]


def may_compile_again() -> bool:
    """Whether a function that has a program may get another; `torch.compiler.set_stance` can forbid that."""
    stances = ("default", "eager_then_compile", "aot_eager_then_compile")
    return eval_frame._stance.stance in stances and not config.error_on_recompile


def source(node: Any) -> Any:
    """Dynamo's source object of a graph input, or None."""
    found = getattr(node, "_dynamo_source", None)
    return found if found is not None else getattr(node.meta.get("grapharg"), "source", None)


def source_text(node: Any) -> str:
    """Dynamo's source expression of a graph input, such as "L['x']", or ""."""
    return str(getattr(source(node), "name", None) or "")


def example(node: Any) -> Any:
    """The tensor of the compiled call that a graph input stands for, if Dynamo still has it; else None."""
    return getattr(node.meta.get("grapharg"), "example", None)


def guard_same(one: Any, other: Any) -> None:
    """Guard that both inputs are the same tensor."""
    if one is not None and other is not None and one != other:
        TracingContext.get().guards_context.aotautograd_guards.append(DuplicateInputs(one, other))


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks")


def guard_empty_hooks() -> None:
    """Guard that the modules which had no hooks when they were traced still have none, and that there are as many
    global ones. Dynamo has a guard that checks this, and doesn't install it unless `config.skip_nnmodule_hook_guards`
    is off."""
    tracing = TracingContext.try_get()
    if tracing is None:
        return
    guards = tracing.guards_context.dynamo_guards
    hooks = {GuardBuilder.EMPTY_NN_MODULE_HOOKS_DICT: _HOOKS, GuardBuilder.TYPE_MATCH: _GLOBAL}
    for guard in list(guards):
        if getattr(guard.originating_source, "member", None) in hooks.get(guard.create_fn, ()):
            counted = guard.originating_source.make_guard(GuardBuilder.SEQUENCE_LENGTH)
            counted.stack, counted.user_stack = guard.stack, guard.user_stack  # of the user's line, for a recompile
            guards.add(counted)


def is_static(node: Any) -> bool:
    """Whether Dynamo marked a graph input as having the same memory in every call."""
    return bool(node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type"))


def mark_static(node: Any) -> None:
    """Mark a graph input as Dynamo does, so that `is_static` says so."""
    node.meta["tensor_dict"] = {"_dynamo_static_input_type": "unguarded"}


def id_for_next_process(graph_module: Any) -> str | None:
    """The id under which Dynamo keeps a backend's result for the next process; None if it keeps nothing."""
    found = getattr(graph_module, "_backend_id", None)
    return None if found is None else str(found)


def is_compiled(fn: Any) -> bool:
    """Whether `torch.compile` returned this function or module."""
    return isinstance(fn, torch._dynamo.OptimizedModule) or hasattr(fn, "_torchdynamo_orig_callable")
