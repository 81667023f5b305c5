"""The backward of a compiled call, as compiled autograd captures it into its graph of the whole backward.

Compiled autograd makes one graph of a whole backward. For a Python Function, torch's lets Dynamo trace `backward`; the
only other kind that it knows is torch's own compiled calls. A call that aotviz compiled enters the graph as one
function, which Dynamo does not trace into. It runs the backward graph operator by operator, so that the compiler of the
whole backward can fuse these with their surroundings. As usual, nothing is computed from missing gradients
(`partial_backward.py`). A backward that cannot be part of another graph runs as compiled, between two graphs, and
Dynamo reports the reason for the graph break. For all that, torch's handling of Functions and hooks is changed for
nodes that are `Capturable`, and for no others.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

from aotviz.ir import effects, graphs
from aotviz.ir.forms import Split
from aotviz.ir.refusals import Refused
from aotviz.runtime import gradient_hooks
from aotviz.runtime.generators import Generators
from aotviz.runtime.lowered import LoweredSplit
from aotviz.runtime.partial_backward import Pattern, is_dynamic
from aotviz.torch_private import autograd_nodes as torchs
from aotviz.torch_private import runtime
from aotviz.torch_private.context import autocast_enabled
from aotviz.torch_private.dispatch import without_modes
from aotviz.torch_private.runtime import HAS_BOXED_GRADIENTS as BOXED
from aotviz.torch_private.runtime import skipped

Method = Callable[..., Any]

_ONE_NODE = "compiled autograd sees the whole call as one node, and hooks run before it"


class CapturedBackward:
    """How the backward of one program is captured."""

    def __init__(self, lowered: LoweredSplit) -> None:
        call = lowered.call
        self.name, self._why_beside = call.name, _why_beside(call, lowered.generators)
        self._checks = "it first checks what was written since" if call.kept_and_written or call.reshaped else ""
        self._may_be_random = not call.meta.deterministic and call.options.backend != "eager"
        self.partial, self._autocast = lowered.partial, call.meta.autocast
        self._is_wrapping = call.wrapping is not None
        self._heard = [(one.slots, call.called(one.ref)) for one in call.hooked_results]
        self._cut_at = tuple(lowered.cut.order) if lowered.cut is not None else ()
        self._inputs, self._together = len(call.outer.graph_inputs), call.outer.together
        self.tensors = [i for i, info in enumerate(call.outer.meta.input_info) if info.is_tensor]
        self._slots = [tangent.slot for tangent in call.outer.tangents]
        self.symbols = len(call.saved) - call.saved_tensor_count  # the last ones of the saved values are sizes
        self.varies = any(saved.varying_dims for saved in call.saved)
        self._modules: dict[Pattern, Any] = {}

    def sizes(self, node: Any) -> Sequence[int]:
        """The saved sizes of a call, given its node, followed by the shapes of results if they vary."""
        if self._why_beside:
            return ()
        shapes = getattr(node, "shapes", ())
        return [int(n) for n in (*getattr(node, "symbols", ()), *(n for shape in shapes for n in shape))]

    def refuse_parts(self, node: Any, came: Sequence[bool]) -> None:
        """Refuse a hook on a result, or `torch.autograd.grad` of one, that would get only a part of its gradient.
        `came` says for each result if it has a gradient."""
        asked = gradient_hooks.asked_for()
        listening = getattr(node, "hooked_results", ())
        for (slots, name), there in zip(self._heard, listening, strict=True):
            if any(came[slot] for slot in slots):
                if there.hears():
                    raise Refused("hook on a result", name, _ONE_NODE)
                if there.is_among(asked):
                    raise Refused("gradient of a result", name)

    def only_looks(self, node: Any, position: int) -> bool:
        """Whether the only hooks on a result are those by which a compiled call looks for the user's."""
        hooks = getattr(node, "hooks_of_results", ())
        return position in self._cut_at and bool(hooks) and not hooks[self._cut_at.index(position)].users()

    def taken(self, node: Any, came: Sequence[bool]) -> tuple[Sequence[bool], str]:
        """For each input, whether it gets a gradient; and why the backward runs as it is between two graphs, "" if
        `inside` is in the graph."""
        pattern, reached = self.pattern(came), [True] * self._inputs
        if not self._is_wrapping:
            reached = [result is not None for result in graphs.outputs(self.partial.part(pattern).module.graph)]
        return reached, self._why_not(node, pattern)

    def why_as_it_is(self, node: Any) -> str:
        """Why this run of the backward cannot be part of a larger graph; "" if nothing speaks against it."""
        if torch.is_grad_enabled():
            return "its gradients are differentiated again (create_graph=True)"
        if autocast_enabled():
            return "it runs under autocast, and its casts are already in its graph"
        if self._may_be_random and torch.are_deterministic_algorithms_enabled():
            return "it was compiled without deterministic algorithms"
        listening = zip(self._heard, getattr(node, "hooked_results", ()), strict=False)
        if any(slots and there.hears() for (slots, _), there in listening):
            return "a result of it, from which another result was computed, has a hook"
        return ""

    def _why_not(self, node: Any, pattern: Pattern) -> str:
        why = self._why_beside or self.why_as_it_is(node)
        if not why and any(0 < sum(pattern[i] for i in group) < len(group) for group in self._together):
            return "a custom autograd.Function receives gradients for only some of its results"
        return why

    def why_not_copied(self, node: Any, pattern: Pattern) -> str:
        """Why its graph for these gradients cannot be copied into a larger one; "" if it can."""
        return self._checks or self._why_not(node, pattern) or ("" if any(pattern) else "no gradient comes in")

    def pattern(self, came: Sequence[bool]) -> Pattern:
        """Which tangents come in. `came` says for each result if it has a gradient."""
        return tuple(came[slot] for slot in self._slots)

    @functools.cached_property
    def inside(self) -> Method:
        """The function that is a node of the graph."""
        partial, symbols = self.partial, self.symbols

        def backward(saved: Sequence[Any], sizes: Sequence[Any], gradients: Sequence[Any]) -> tuple[Any, ...]:
            tangents = [gradients[tangent.slot] for tangent in partial.tangents]
            pattern = tuple(tangent is not None for tangent in tangents)
            part = partial.part(pattern)
            rest = iter(sizes[symbols:])
            shapes = [[next(rest) for _ in tangent.size] for tangent in partial.tangents if is_dynamic(tangent)]
            arguments = partial.arguments(part, [*saved, *sizes[:symbols]], tangents, shapes)
            with runtime.AutocastDisabled() if self._autocast else contextlib.nullcontext():
                return tuple(self.module(pattern)(*arguments))

        return backward

    def module(self, pattern: Pattern) -> Any:
        """The graph for some of the gradients. Saved tensors may have other strides than in the trace, so views are
        reshapes."""
        module = self._modules.get(pattern)
        if module is None:
            module = self._modules[pattern] = graphs.copy(self.partial.part(pattern).module)
            for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
                node.target = torch.ops.aten.reshape.default
            module.recompile()
        return module


def _why_beside(call: Split, generators: Generators | None) -> str:
    """Why the backward of a program cannot be part of a larger graph; "" if it can."""
    nodes = call.backward_module.graph.nodes
    if call.wrapping is not None:
        return "it works on tensor subclasses"
    if generators is not None:
        return "it recomputes random numbers of the forward"
    if any(effects.has_effects(node.target) for node in nodes):
        return "it has side effects"
    if any(map(graphs.is_input_mutation, nodes)):
        return "it writes to an incoming gradient or an input"
    if not all(isinstance(saved.value, (int, torch.SymInt)) for saved in call.saved[call.saved_tensor_count :]):
        return "it reads a value that is neither a tensor nor a size"
    return ""


class Capturable(torch.autograd.Function):
    """A Function whose backward compiled autograd captures as `captured` says."""

    captured: CapturedBackward

    @staticmethod
    @skipped  # the backward may run inside a compiled function, where Dynamo would trace this frame
    def _compiled_autograd_key(ctx: Any) -> tuple[int, ...]:
        """The key of a graph of compiled autograd. Each backward reads it before anything is captured."""
        _install()
        kind: Any = torchs.function_of(ctx)
        other = kind.__base__  # another number, for a backward that must run as it is
        number = torchs.number_of(other if kind.captured.why_as_it_is(ctx) else kind)
        return (number, *kind.captured.sizes(ctx))


def capturable(lowered: LoweredSplit) -> type[torch.autograd.Function]:
    """The base class of one program's Function."""
    return type("Function", (Capturable,), {"captured": CapturedBackward(lowered)})


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
            reached, why = kind.captured.taken(node, came)
        given, gradients = self.to_proxy(saved), self.to_proxy(inputs)
        if why:
            run: Any = torch.compiler.disable(as_compiled, reason=why)
            arguments: tuple[Any, ...] = (self.hooks_proxy[position], given, gradients)
        else:
            run = torch.compiler.allow_in_graph(kind.captured.inside)
            arguments = (given, [self.to_proxy(size) for size in torchs.sizes_of(node)], gradients)
        results = self.fx_tracer.create_proxy("call_function", run, arguments, {})
        with disable_proxy_modes_tracing():
            made = [
                torch.empty(about[3], dtype=about[2], layout=about[0], device=about[1]) if about and there else None
                for about, there in zip(metadatas, reached, strict=True)
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
