"""The backward of a program under `create_graph=True`: gradients that have a history of their own.

Compiled when it is first asked for, once for each pattern of incoming gradients: which of them came in at all, and
which of them have a history. What such a program takes stands in Note [What the new call takes] (tracing).

Note [Edges without tensors]
A second derivative flows on to the program's inputs, past the program, so their places in autograd's graph must be
known to the first backward. Of a leaf, the engine knows where it is. Of another input the forward keeps the place and
not the tensor, whose memory may be freed: a stand-in that has the same place and shape, over one element.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotviz.ir import graphs
from aotviz.ir.forms import Split
from aotviz.torch_private import runtime
from aotviz.torch_private.context import autocast_off


class Gradients:
    """Differentiable gradients of one program. `compile` turns a request into a program; the pipeline sets it."""

    def __init__(self, call: Split, request: Callable[[tuple[bool | None, ...]], Any]) -> None:
        self.name = call.name
        self.compile: Callable[[Any], Any] = _not_settled
        self._request = request
        self._layouts = [(t.size, t.stride, t.order) for t in call.tangents]
        self._known: dict[tuple[bool | None, ...], Any] = {}
        self._lock = threading.Lock()
        infos = call.meta.input_info
        gradients = graphs.outputs(call.backward_module.graph)
        tensors = [i for i, info in enumerate(infos) if info.is_tensor]
        wanted = [i for i, gradient in enumerate(gradients) if gradient is not None]
        if call.wrapping is not None:  # the graph's inputs are parts, of which autograd keeps no history
            wanted = []
        self._count, self._slots = len(gradients), len(call.slots)
        self._slot_of = [tangent.slot for tangent in call.tangents]
        self._debug = call.options.debug
        self.inputs = wanted  # the graph inputs that a gradient goes to
        self._names = [str(call.graph_inputs[i]) for i in wanted]
        self._kept_names = [str(call.graph_inputs[i]) for i in call.kept]
        # Of each input that is differentiated: where the engine has its edge if it is a leaf, else None.
        self._leaf_at = [tensors.index(i) if infos[i].is_leaf else None for i in wanted]

    def __call__(self, ctx: Any, values: list[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients, one per graph input. `values` are the saved ones, tensors first."""
        if runtime.batched():
            raise RuntimeError(
                f"{self.name}: a backward with create_graph=True inside vmap (is_grads_batched=True) is not supported. "
                "Loop over the gradients, or apply torch.func's transforms to the function."
            )
        present = tuple(None if tangent is None else bool(tangent.requires_grad) for tangent in tangents)
        program = self._program(present)
        if isinstance(program, Exception):
            return self._refused(ctx, tangents, program)
        values += self._kept(ctx)
        values = [value.detach() if isinstance(value, torch.Tensor) else value for value in values]
        for tangent, layout in zip(tangents, self._layouts, strict=True):
            if tangent is not None:
                values.append(runtime.in_layout(tangent, *layout))
        values += self._edges(ctx)
        with autocast_off():
            found = program.function(values)
        result: list[Any] = [None] * self._count
        for position, gradient in zip(program.lowered.forward.positions, found, strict=True):
            result[position] = gradient
        return tuple(result)

    def _program(self, present: tuple[bool | None, ...]) -> Any:
        """The program for a pattern of tangents, or the error that says why there is none."""
        with self._lock:
            known = self._known.get(present)
            if known is None:
                try:
                    with autocast_off():
                        known = self.compile(self._request(present))
                except Exception as error:
                    if self._debug and not isinstance(error, RuntimeError):
                        raise
                    known = error
                self._known[present] = known
            return known

    def _refused(self, ctx: Any, tangents: Sequence[Any], error: Exception) -> tuple[Any, ...]:
        """The gradients as they are, and an error that comes, as eager's does, only if they are differentiated."""
        incoming: list[Any] = [None] * self._slots
        for slot, tangent in zip(self._slot_of, tangents, strict=True):
            incoming[slot] = tangent
        plain = runtime.backward_without_history(ctx, incoming)
        history = [t for t in (*tangents, *self._edges(ctx)) if t is not None and t.requires_grad]
        message = f"{self.name} can't be differentiated a second time: {error}"
        return runtime.delayed_error(plain, history, message)

    def _edges(self, ctx: Any) -> list[torch.Tensor]:
        """See Note [Edges without tensors]."""
        others = iter(getattr(ctx, "edges", ()))
        found = []
        for name, position in zip(self._names, self._leaf_at, strict=True):
            if position is None:
                found.append(next(others).unpack())
                continue
            node = ctx.next_functions[position][0]
            leaf = getattr(node, "variable", None)
            if leaf is None:
                raise RuntimeError(
                    f"{self.name} was compiled for a leaf {name!r} and called with the result of a computation; its "
                    "gradients can't be differentiated then. Compile it for such a call."
                )
            found.append(leaf)
        return found

    def _kept(self, ctx: Any) -> list[torch.Tensor]:
        kept, versions = getattr(ctx, "kept", ((), ()))
        for name, tensor, version in zip(self._kept_names, kept, versions, strict=True):
            if tensor._version != version:
                raise RuntimeError(
                    f"{name!r} was modified in place after {self.name} took it; the second derivative needs it as it "
                    "was. Clone it before it is modified."
                )
        return list(kept)


def kept(tensors: Sequence[torch.Tensor]) -> tuple[Sequence[torch.Tensor], list[int]]:
    """Tensors, and how often each has been written so far."""
    return tensors, [tensor._version for tensor in tensors]


def _not_settled(request: Any) -> Any:
    raise RuntimeError(f"{request.call.name}: this program was not tied to a pipeline, so it has no second derivative")
