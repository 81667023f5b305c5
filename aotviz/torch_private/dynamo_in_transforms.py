"""Breaks Dynamo's graph at transforms of torch.func that Dynamo gets wrong, or at which it fails.

Where Dynamo traces `Function.apply`, it keeps the backward only if an input requires a gradient outside of all
transforms. Inside `torch.func.grad`, `vjp`, `jvp` and what is made of them, it traces the forward alone, and the
transform then differentiates that: a silently wrong gradient. And some operators fail on its fake tensors inside nested
transforms, as in `vmap(hessian(f))`; Dynamo makes an error of that. Here both break the graph, so that the call of the
transform runs in eager, and the graph break says why. That is so only for the backends given to `break_graphs_for`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import convert_frame, utils
from torch._dynamo.eval_frame import innermost_backend
from torch._dynamo.exc import Unsupported, unimplemented
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.variables.misc import AutogradFunctionVariable
from torch._functorch.pyfunctorch import TransformType

from aotviz.torch_private import runtime

_DIFFERENTIATING = (TransformType.Grad, TransformType.Jvp)
REASON = "The backward of a torch.autograd.Function is lost under a torch.func transform"
Tell = Callable[[Any, str, str, str], None]


def break_graphs_for(is_one: Callable[[Any], bool], tell_lost: Tell, tell_failed: Tell) -> None:
    """Break the graph for the backends for which `is_one` is true.

    Before that, `tell_lost` is called with the backend, the name of the compiled function, that of the
    autograd.Function, and the place of the call; `tell_failed` gets the error's message in place of the second name.
    """
    kind: Any = AutogradFunctionVariable
    traced = kind.call_apply

    @functools.wraps(traced)
    def call_apply(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if _differentiates() and is_one(_backend(tx)):
            tell_lost(_backend(tx), _function(tx), self.fn_cls.__name__, _place(tx))
            _refuse(self.fn_cls)
        return traced(self, tx, args, kwargs)

    kind.call_apply = call_apply
    convert_frame._compile = _with_its_dispatch_keys(convert_frame._compile)
    raises = utils._wrap_graph_break_with_torch_runtime_err

    def breaks_or_raises(break_graph: Callable[[], Any]) -> Any:
        tx = InstructionTranslator.current_tx()
        if runtime.transforms_active() and is_one(_backend(tx)):
            try:
                break_graph()
            except Unsupported as error:
                tell_failed(_backend(tx), _function(tx), str(error), _place(tx))
                raise
        raises(break_graph)

    utils._wrap_graph_break_with_torch_runtime_err = breaks_or_raises  # type: ignore[assignment]


def _backend(tx: Any) -> Any:
    found: Any = innermost_backend(tx.output.compiler_fn)
    return getattr(found, "compiler_fn", found)


def _function(tx: Any) -> str:
    return str(tx.output.root_tx.f_code.co_name)


def _place(tx: Any) -> str:
    """The innermost line that is traced and not torch's."""
    frame = tx
    while frame.parent is not None and "/torch/" in frame.f_code.co_filename.replace("\\", "/"):
        frame = frame.parent
    return f"{frame.f_code.co_filename}:{frame.lineno} in {frame.f_code.co_name}"


def _with_its_dispatch_keys(compile_frame: Callable[..., Any]) -> Callable[..., Any]:
    """An operator that fails inside nested transforms leaves dispatch keys excluded, with which the transform would
    fail in eager too. Dynamo puts them back only where the outermost call ends."""

    @functools.wraps(compile_frame)
    def run(*args: Any, **kwargs: Any) -> Any:
        before = torch._C._dispatch_tls_local_exclude_set()
        try:
            return compile_frame(*args, **kwargs)
        finally:
            left = torch._C._dispatch_tls_local_exclude_set() - before
            while left.raw_repr():
                key = left.highestPriorityTypeId()
                torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
                left = left.remove(key)

    return run


def _differentiates() -> bool:
    """Whether the trace is inside a transform that differentiates."""
    levels = torch._C._functorch.get_interpreter_stack() or ()
    return any(level.key() in _DIFFERENTIATING for level in levels)


def _refuse(function: type[torch.autograd.Function]) -> None:
    unimplemented(
        gb_type=REASON,
        context=f"{function.__name__}.apply",
        explanation=f"Dynamo would trace the forward of {function.__name__} without its backward, and torch.func would "
        "differentiate that forward instead.",
        hints=[
            "The call of the transform runs in eager. `aotviz.aot_function` compiles it with the backward.",
        ],
    )
