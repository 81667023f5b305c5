"""torch's side of capturing a whole backward. To import this loads Dynamo, which takes a while: it is done at the first
capture.

C++ binds the functions of its nodes once in a process, at the first capture of any kind. They are therefore kept where
torch's own compiled autograd keeps them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
import torch.fx as fx
from torch._dynamo import compiled_autograd as torchs
from torch._dynamo.compiled_autograd import AutogradCompilerInstance, Op, _disable, extract_bw_module
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from aotviz.torch_private import versions
from aotviz.torch_private.runtime import skipped

Method = Callable[..., Any]

call_cpp_hooks = torch._C._dynamo.compiled_autograd.call_cpp_tensor_pre_hooks
clear_captures = torch._C._dynamo.compiled_autograd.clear_cache
bound_functions = torchs.ops


def next_number() -> int:
    """torch's number for one more captured backward. `torch._dynamo.reset()` makes another counter."""
    return next(torchs.COMPILE_COUNTER)


@contextlib.contextmanager
def compiler(factory: Callable[[], Any] | None, dynamic: bool) -> Iterator[None]:
    """C++ gives backwards to what `factory` makes; with None, the engine runs them. The one before is put back."""
    prior = torch._C._dynamo.compiled_autograd.set_autograd_compiler(factory, dynamic)
    try:
        yield
    finally:
        torch._C._dynamo.compiled_autograd.set_autograd_compiler(*prior)


def accumulating(method: Method) -> Method:
    """`Capture.accumulate_grad`, as this release's C++ calls it: an older one does not pass the gradient that is added
    to, which is the variable's, and takes no result."""
    if versions.has("a capture is told what a gradient is added to"):
        return method

    @functools.wraps(method)
    def run(self: Any, variable: torch.Tensor, gradient: Any, has_post_hooks: bool) -> None:
        method(self, variable, variable.grad, gradient, has_post_hooks)

    return run


def switched_off() -> contextlib.AbstractContextManager[None]:
    """Around a replay: somebody else's compiler, if there is one, is off too."""
    return _disable() if torchs.compiled_autograd_enabled else contextlib.nullcontext()


def wrap_methods(
    node: Callable[[Method], Method], hook: Callable[[Method], Method], backward: Callable[[Method], Method]
) -> None:
    """Wrap the methods that it calls for each node, each hook on a tensor, and each backward of a Function."""
    kind: Any = AutogradCompilerInstance
    kind.set_node_origin = skipped(node(AutogradCompilerInstance.set_node_origin))
    kind.tensor_pre_hook = skipped(hook(AutogradCompilerInstance.tensor_pre_hook))
    kind.cpp_tensor_pre_hook = skipped(hook(AutogradCompilerInstance.cpp_tensor_pre_hook))
    kind.proxy_call_backward = skipped(backward(AutogradCompilerInstance.proxy_call_backward))


def stand_in(like: torch.Tensor | None) -> torch.Tensor:
    """A tensor without memory, which C++ takes for `like`."""
    if like is None:
        return torch.empty(0, device="meta")
    return torch.empty(like.shape, dtype=like.dtype, device="meta", requires_grad=like.requires_grad)


def is_pure(function: Any) -> bool:
    """Whether a function that C++ bound is autograd's own: it computes gradients, and does nothing besides."""
    return isinstance(function, Op) and not function.is_custom_function and function.__name__ != "AccumulateGrad"


@dataclass(frozen=True)
class TorchsBackward:
    """The backward of a forward that torch's own AOTAutograd compiled."""

    number: int
    module: fx.GraphModule
    prologue: Callable[..., Sequence[Any]]  # (saved tensors, sizes, other objects, gradients) -> the graph's inputs
    epilogue: Callable[..., Sequence[Any]]  # (the graph's results) -> one gradient per input of the forward


def torchs_backward(node: Any) -> TorchsBackward | None:
    """The backward of an autograd node, if it is one of torch's that only computes; None otherwise."""
    function = node._forward_cls
    prologue: Any = getattr(function, "_bw_prologue_fn", None)
    epilogue: Any = getattr(function, "_bw_epilogue_fn", None)
    number: Any = getattr(function, "_aot_id", None)
    if None in (prologue, epilogue, number) or torch.is_grad_enabled() or torch._C._is_any_autocast_enabled():
        return None
    metadata = function.metadata
    more = (
        function.maybe_subclass_metadata is not None,
        metadata.is_rng_op_functionalized,
        metadata.num_graphsafe_rng_states,
        metadata.num_backward_tokens,
    )
    module = None if any(more) else extract_bw_module(function)
    if not isinstance(module, fx.GraphModule):
        return None
    return TorchsBackward(number, module, prologue, epilogue)


class SizeSymbols:
    """Symbols for the sizes and numbers of a capture, and the nodes that they stand for."""

    def __init__(self) -> None:
        self._environment = ShapeEnv()
        self._nodes: dict[sympy.Symbol, Any] = {}

    def of(self, value: int | float, node: Any) -> Any:
        source = ConstantSource(node.name)
        make = self._environment
        found: Any
        if isinstance(value, int):
            found = make.create_unspecified_symint_and_symbol(value, source, DimDynamic.DYNAMIC)
        else:
            symbol = make.create_unspecified_symbol(value, source=source, dynamic_dim=DimDynamic.DYNAMIC)
            found = make.create_symfloatnode(symbol, hint=value, source=source)
        if isinstance(found, (torch.SymInt, torch.SymFloat)):
            self._nodes[found.node.expr] = node
        return found

    def node(self, value: Any, emit: Callable[..., Any]) -> Any:
        """The node for a symbol, or for an expression of several."""
        expression = value.node.expr
        known = self._nodes.get(expression)
        if known is None:
            symbols = sorted(expression.free_symbols, key=str)
            if not symbols:
                return int(expression) if isinstance(value, torch.SymInt) else float(expression)
            function = sympy.lambdify(symbols, expression, "math")
            known = self._nodes[expression] = emit(function, tuple(self._nodes[symbol] for symbol in symbols))
        return known
