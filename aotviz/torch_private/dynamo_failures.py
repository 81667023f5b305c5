"""Leaves to eager what Dynamo gets wrong, or fails at, for the backends given to `leave_to_eager`.

- Where Dynamo traces `Function.apply`, it keeps the backward only if an input requires a gradient outside of all
  transforms. Inside `torch.func.grad`, `vjp`, `jvp` and what is made of them, it traces the forward alone, and the
  transform then differentiates that: a silently wrong gradient. The graph breaks, and the transform runs in eager.
- A function that `torch.func.vjp` returned reads tensors with a `grad_fn`, which Dynamo drops where it traces that
  function alone: the gradient would be zeros. The graph breaks, as it does for all backends since torch 2.13.
- An operator that fails on Dynamo's fake tensors (as some do in `vmap(hessian(f))`, or where an input's strides in
  memory are not those that Dynamo assumes) breaks the graph, where Dynamo makes an error of it. A program that is wrong
  raises eager's own error then.
- Where Dynamo fails in another way (an error of its own, as of a view whose history autograd can't make again), the
  frame runs in eager.
- Where the graph breaks and Dynamo cannot resume, such as inside of a loop or under a context manager, Dynamo itself
  runs the frame in eager. Nothing is changed there, but it is told: no compilation would say so.

With `fullgraph=True` nothing runs in eager: Dynamo's error is raised.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch._dynamo import convert_frame, exc, utils
from torch._dynamo.eval_frame import innermost_backend
from torch._dynamo.exc import (
    InternalTorchDynamoError,
    TorchRuntimeError,
    Unsupported,
    raise_observed_exception,
    unimplemented,
)
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.variables import BaseListVariable, TensorVariable, VariableTracker, misc
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch._functorch.eager_transforms import _autograd_grad
from torch._functorch.pyfunctorch import TransformType

from aotviz.torch_private import dynamo, runtime, versions

_DIFFERENTIATING = (TransformType.Grad, TransformType.Jvp)
_OWN_ERRORS = (InternalTorchDynamoError, TorchRuntimeError, AssertionError, IndexError)  # of Dynamo's own capture


class Left(NamedTuple):
    """What runs in eager, and why."""

    backend: Any
    function: str  # as Dynamo names it
    place: str  # "file:line in function" of the innermost line that is not torch's
    why: str  # the name of the autograd.Function whose backward would be lost, or the error's message
    # What of the function runs in eager; "frame": all of it, by Dynamo's own decision
    part: Literal["transform", "call", "function", "frame"]
    lost: bool = False  # a backward would be lost; nothing failed


def leave_to_eager(is_one: Callable[[Any], bool], tell: Callable[[Left], None]) -> None:
    """Do so for the backends for which `is_one` is true. `tell` is called before anything runs in eager."""
    kind: Any = misc.AutogradFunctionVariable
    traced = kind.call_apply

    @functools.wraps(traced)
    def call_apply(self: Any, tx: InstructionTranslator, args: Any, kwargs: Any) -> Any:
        if _differentiates() and is_one(_innermost(tx.output.compiler_fn)):
            name = self.fn_cls.__name__
            with _telling(tell, tx, lost=name):
                unimplemented(
                    gb_type="The backward of a torch.autograd.Function is lost under a torch.func transform",
                    context=f"{name}.apply",
                    explanation=f"Dynamo would trace the forward of {name} without its backward, and torch.func would "
                    "differentiate that forward instead.",
                    hints=[
                        "The call of the transform runs in eager. `aotviz.aot_function` compiles it with the backward."
                    ],
                )
        return traced(self, tx, args, kwargs)

    kind.call_apply = call_apply
    if not versions.has("the gradient of a function that vjp returned breaks the graph"):
        in_graph: Any = TorchInGraphFunctionVariable
        in_graph.call_function = _broken_where_a_grad_fn_is_lost(in_graph.call_function, is_one)
    if versions.has("an attribute that apply lacks is read"):
        methods: tuple[Any, ...] = (misc.GetAttrVariable, misc.CallMethodVariable)  # type: ignore[attr-defined]
        for method in methods:
            method.tp_getattro_impl = _only_what_apply_has(method.tp_getattro_impl, is_one)
    if versions.has("an operator that fails in a trace raises in the program"):
        utils._get_fake_value_impl = _broken_where_it_fails(utils._get_fake_value_impl, is_one, tell)
    raises = utils._wrap_graph_break_with_torch_runtime_err

    def breaks_or_raises(break_graph: Callable[[], Any]) -> Any:
        tx = InstructionTranslator.current_tx()
        if _may_break(tx, is_one):
            with _telling(tell, tx):
                break_graph()
        raises(break_graph)

    utils._wrap_graph_break_with_torch_runtime_err = breaks_or_raises  # type: ignore[assignment]
    convert_frame._compile = _frame_or_eager(convert_frame._compile, is_one, tell)


_told = weakref.WeakSet[Unsupported]()


@contextlib.contextmanager
def _telling(tell: Callable[[Left], None], tx: InstructionTranslator, lost: str = "") -> Iterator[None]:
    """Tells of a graph break that is raised in the block. `lost`: the Function whose backward it keeps."""
    try:
        yield
    except Unsupported as error:
        frame: Any = tx  # one of its base class
        while frame.parent is not None and _is_torchs(frame.f_code.co_filename):
            frame = frame.parent
        place = f"{frame.f_code.co_filename}:{frame.lineno} in {frame.f_code.co_name}"
        backend, name = _innermost(tx.output.compiler_fn), str(tx.output.root_tx.f_code.co_name)
        part: Literal["transform", "call"] = "transform" if runtime.transforms_active() else "call"
        tell(Left(backend, name, place, lost or str(error), part, bool(lost)))
        _told.add(error)
        raise


def _is_told(error: BaseException | None) -> bool:
    """Whether a graph break, or the one that led to it, was told."""
    while error is not None and not (isinstance(error, Unsupported) and error in _told):
        error = error.__cause__
    return error is not None


def _broken_where_a_grad_fn_is_lost(
    call: Callable[..., VariableTracker], is_one: Callable[[Any], bool]
) -> Callable[..., VariableTracker]:
    """Breaks the graph at the gradient, by torch.func, of an input of the graph that has a `grad_fn` outside."""

    @functools.wraps(call)
    def broken(
        self: TorchInGraphFunctionVariable,
        tx: InstructionTranslator,
        args: Sequence[VariableTracker],
        kwargs: dict[str, VariableTracker],
    ) -> VariableTracker:
        is_gradient = self.as_python_constant() is _autograd_grad and is_one(_innermost(tx.output.compiler_fn))
        if is_gradient and any(map(_has_lost, args[:1])):
            unimplemented(
                gb_type="_autograd_grad with lost grad_fn linkage",
                context="outputs lost autograd linkage during tracing",
                explanation="_autograd_grad() received tensors whose grad_fn was lost during tracing.",
                hints=["Compile the full transform instead of the function that it returned."],
            )
        return call(self, tx, args, kwargs)

    return broken


def _has_lost(outputs: VariableTracker) -> bool:
    """Whether one of Dynamo's tensors is an input of the graph, and has a `grad_fn` outside of it."""
    held = outputs.items if isinstance(outputs, BaseListVariable) else []
    nodes: list[torch.fx.Node] = [one.as_proxy().node for one in held if isinstance(one, TensorVariable)]
    given: list[torch.Tensor | None] = [getattr(node.meta.get("grapharg"), "example", None) for node in nodes]
    return any(one is not None and one.grad_fn is not None for one in given)


def _broken_where_it_fails(
    fake_value: Callable[..., Any], is_one: Callable[[Any], bool], tell: Callable[[Left], None]
) -> Callable[..., Any]:
    """Breaks the graph at an operator that fails on fake tensors.

    Since torch 2.14 such an operator raises RuntimeError in the traced program, which may catch it. Where it does not,
    Dynamo fails at the whole frame.
    """
    observed = exc.FakeTensorObservedException  # type: ignore[attr-defined]

    @functools.wraps(fake_value)
    def broken(node: Any, tx: InstructionTranslator, *args: Any) -> Any:
        try:
            return fake_value(node, tx, *args)
        except observed as error:
            if not _may_break(tx, is_one):
                raise
            said = f"Dynamo failed to run FX node with fake tensors: {error}"
        with _telling(tell, tx):
            unimplemented(gb_type="RuntimeError when making fake tensor call", context="", explanation=said, hints=[])

    return broken


def _only_what_apply_has(attribute: Callable[..., Any], is_one: Callable[[Any], bool]) -> Callable[..., Any]:
    """Raises AttributeError in the trace for an attribute that `Function.apply`, a built-in method, does not have.

    The wrapper that `jacfwd(Function.apply)` returns copies `__annotations__` if there are any. Since torch 2.14 Dynamo
    takes them to be there, and the code that it makes at a graph break reads them.
    """

    @functools.wraps(attribute)
    def known(self: Any, tx: InstructionTranslator, name: str) -> Any:
        of_function = isinstance(self.obj, misc.AutogradFunctionVariable)
        is_apply = of_function and "apply" in (getattr(self, "name", ""), getattr(self, "method_name", ""))
        if is_apply and not hasattr(self.obj.fn_cls.apply, name) and is_one(_innermost(tx.output.compiler_fn)):
            raise_observed_exception(AttributeError, tx)
        return attribute(self, tx, name)

    return known


def _may_break(tx: InstructionTranslator, is_one: Callable[[Any], bool]) -> bool:
    must_raise = tx.one_graph or utils._get_error_on_graph_break()
    return is_one(_innermost(tx.output.compiler_fn)) and bool(runtime.transforms_active() or not must_raise)


def _is_torchs(file: str) -> bool:
    return "/torch/" in file.replace("\\", "/")


def _innermost(compiler: Any) -> Any:
    found: Any = innermost_backend(compiler)
    return getattr(found, "compiler_fn", found)


def _frame_or_eager(
    compile_frame: Callable[..., Any], is_one: Callable[[Any], bool], tell: Callable[[Left], None]
) -> Callable[..., Any]:
    """Compiles a frame. If Dynamo fails at it, raises what makes Dynamo run it in eager.

    An operator that fails inside nested transforms leaves dispatch keys excluded, with which the transform would fail
    in eager too. Dynamo puts them back only where the outermost call ends.
    """
    signature = inspect.signature(compile_frame)

    @functools.wraps(compile_frame)
    def run(*args: Any, **kwargs: Any) -> Any:
        before = torch._C._dispatch_tls_local_exclude_set()
        try:
            return compile_frame(*args, **kwargs)
        except (*_OWN_ERRORS, Unsupported) as error:
            given = signature.bind(*args, **kwargs).arguments
            if "compiler_fn" not in given:  # somebody else's function stands for Dynamo's
                raise
            backend = _innermost(given["compiler_fn"])
            asked = getattr(given.get("convert_frame_box"), "error_on_graph_break", False)  # when it failed
            if given["one_graph"] or given["export"] or asked or not is_one(backend):
                raise
            is_break = isinstance(error, Unsupported)
            keeps = getattr(error, "frame_exec_strategy", None) is not None  # the programs it has: recompile limit
            if is_break and (keeps or _is_told(error) or _is_called_by_a_transform(given["code"])):
                raise
            name, place = given["code"].co_name, _place(error, given["code"])
            tell(Left(backend, name, place, str(error), "frame" if is_break else "function"))
            if is_break:
                raise
            raise Unsupported(str(error), "Dynamo failed") from error
        finally:
            left = torch._C._dispatch_tls_local_exclude_set() - before
            while left.raw_repr():
                key = left.highestPriorityTypeId()
                torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
                left = left.remove(key)

    return run


def _place(error: Exception, code: types.CodeType) -> str:
    """The line of the user's at which Dynamo failed. It makes its error of another, which knows the line."""
    for known in (error, error.__context__):
        lines = getattr(known, "real_stack", None) or ()
        for line in reversed(lines):
            if not _is_torchs(line.filename):
                return f"{line.filename}:{line.lineno} in {line.name}"
    return f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}"


def _is_called_by_a_transform(code: types.CodeType) -> bool:
    """Whether a transform inside of the program calls this code in eager, which was told."""
    running = dynamo.running_call()
    return (
        runtime.transforms_active() and running is not None and getattr(running.function, "__code__", code) is not code
    )


def _differentiates() -> bool:
    """Whether the trace is inside a transform that differentiates."""
    levels = torch._C._functorch.get_interpreter_stack() or ()
    return any(level.key() in _DIFFERENTIATING for level in levels)
