"""How torch's compiled autograd captures the backward of a compiled call.

Compiled autograd makes one graph of a whole backward. For a Python Function it lets Dynamo trace `backward`; the only
other kind that it knows is torch's own compiled calls. A call that aotviz compiled enters the graph as one function,
which Dynamo does not trace into, and whose operators the compiler of the graph sees. For that, torch's handling of
Functions and hooks is changed for nodes that are `Capturable`, and for no others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.fx as fx
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

from aotviz.ir.forms import Tangent
from aotviz.torch_private import autograd_nodes as torchs
from aotviz.torch_private.dispatch import without_modes
from aotviz.torch_private.runtime import HAS_BOXED_GRADIENTS as BOXED
from aotviz.torch_private.runtime import skipped

Method = Callable[..., Any]
Run = Callable[..., Sequence[Any]]  # called with (saved tensors, sizes, gradients), or (node, saved, gradients)


@dataclass(frozen=True)
class Taken:
    """How one backward enters the graph."""

    run: Run
    reached: Sequence[bool]  # one per input of the call: whether it gets a gradient
    why_beside: str = ""  # why `run` is called between two graphs, with the node itself; "" if it is in the graph


@dataclass(frozen=True)
class Inlined:
    """The graph of one backward, to be copied into a larger graph."""

    name: str  # of the program that it belongs to
    module: fx.GraphModule
    sources: Sequence[tuple[str, int]]  # per placeholder: ("saved" | "tangent", position)
    symbols: int  # how many of the saved values, the last ones, are sizes
    tangents: Sequence[Tangent]
    tensors: Sequence[int]  # the inputs of the forward that are tensors
    hold: Callable[[Any, Sequence[Any]], None] | None  # keeps, given (node, saved tensors), what other gradients need


class Backward(Protocol):
    """The backward of one program."""

    name: str  # of the program
    varies: bool  # sizes of its saved tensors are symbolic

    def sizes(self, node: Any) -> Sequence[int]:
        """The saved numbers of a call, given its node."""
        ...

    def why_as_it_is(self, node: Any) -> str:
        """Why this run of the backward cannot be part of a larger graph; "" if nothing speaks against it."""
        ...

    def only_looks(self, node: Any, position: int) -> bool:
        """Whether the only hooks on a result are those by which a compiled call looks for the user's."""
        ...

    def refuse_parts(self, node: Any, came: Sequence[bool]) -> None:
        """Refuse hooks that would receive only a part of a gradient. `came` says for each result if it has a
        gradient."""
        ...

    def taken(self, node: Any, came: Sequence[bool]) -> Taken:
        """How torch's compiled autograd captures it for this set of gradients."""
        ...

    def inlined(self, node: Any, came: Sequence[bool]) -> Inlined | str:
        """Its graph for this set of gradients, or why it must run as it is."""
        ...


class Capturable(torch.autograd.Function):
    """A Function whose backward compiled autograd captures as `captured` says."""

    captured: Backward

    @staticmethod
    @skipped  # the backward may run inside a compiled function, where Dynamo would trace this frame
    def _compiled_autograd_key(ctx: Any) -> tuple[int, ...]:
        """The key of a graph of compiled autograd. Each backward reads it before anything is captured."""
        _install()
        kind: Any = torchs.function_of(ctx)
        other = kind.__base__  # another number, for a backward that must run as it is
        number = torchs.number_of(other if kind.captured.why_as_it_is(ctx) else kind)
        return (number, *kind.captured.sizes(ctx))


def capturable(captured: Backward) -> type[torch.autograd.Function]:
    """The base class of one program's Function."""
    return type("Function", (Capturable,), {"captured": captured})


def sizes_vary(node: Any) -> bool:
    """Whether it is the backward of a compiled forward, ours or torch's, that saves tensors of symbolic sizes."""
    if not isinstance(node, torch.autograd.function.BackwardCFunction):
        return False
    function = torchs.function_of(node)
    return function.captured.varies if issubclass(function, Capturable) else torchs.has_marked_sizes(function)


@functools.cache
def _install() -> None:
    from aotviz.torch_private.backward_capture import wrap_methods  # loads compiled autograd, which is in use here

    wrap_methods(_noting_the_node, _where_a_gradient_comes, _as_captured)


def _noting_the_node(otherwise: Method) -> Method:
    """Called first for each node, even if the node does not run because only its incoming gradient is wanted."""

    @functools.wraps(otherwise)
    def set_node_origin(self: Any, *given: Any) -> Any:
        self.aotviz_node = given[-1] if isinstance(given[-1], torch.autograd.function.BackwardCFunction) else None
        return otherwise(self, *given)

    return set_node_origin


def _where_a_gradient_comes(otherwise: Method) -> Method:
    """A hook on a tensor. Torch fails on a None gradient, which its own nodes never pass to a tensor with hooks. Ours
    do if no gradient reaches an input, and eager does not call its hooks then."""

    @functools.wraps(otherwise)
    def captured(self: Any, inputs: list[Any], number: int, position: int) -> Any:
        kind: Any = object if self.aotviz_node is None else torchs.function_of(self.aotviz_node)
        if issubclass(kind, Capturable):
            kind.captured.refuse_parts(self.aotviz_node, [gradient is not None for gradient in inputs])
        return inputs if inputs[position] is None else otherwise(self, inputs, number, position)

    return captured


def _as_captured(otherwise: Method) -> Method:
    """The backward of a Python Function."""

    @functools.wraps(otherwise)
    def proxy_call_backward(
        self: Any, inputs: Any, metadatas: Any, saved: Any, position: int, node: Any, *others: Any
    ) -> Any:
        kind: Any = torchs.function_of(node)
        if not issubclass(kind, Capturable):
            return otherwise(self, inputs, metadatas, saved, position, node, *others)
        came = [gradient is not None for gradient in inputs]
        with without_modes():
            kind.captured.refuse_parts(node, came)
            taken = kind.captured.taken(node, came)
        given, gradients = self.to_proxy(saved), self.to_proxy(inputs)
        if taken.why_beside:
            run: Any = torch.compiler.disable(taken.run, reason=taken.why_beside)
            arguments: tuple[Any, ...] = (self.hooks_proxy[position], given, gradients)
        else:
            run = torch.compiler.allow_in_graph(taken.run)
            arguments = (given, [self.to_proxy(size) for size in torchs.sizes_of(node)], gradients)
        results = self.fx_tracer.create_proxy("call_function", run, arguments, {})
        with disable_proxy_modes_tracing():
            made = [
                torch.empty(about[3], dtype=about[2], layout=about[0], device=about[1]) if about and there else None
                for about, there in zip(metadatas, taken.reached, strict=True)
            ]
            self.bind_objects_to_proxies(made, results)
        return tuple(made)

    return proxy_call_backward


def as_compiled(node: Any, saved: Sequence[Any], gradients: Sequence[Any]) -> tuple[Any, ...]:
    """Run the backward as the engine would. The saved tensors are given, because the graph has already
    unpacked them."""
    context = node if torch.is_grad_enabled() else torchs.Context(node, saved)
    found: tuple[Any, ...] = torchs.function_of(node).backward(context, *([list(gradients)] if BOXED else gradients))
    return found
