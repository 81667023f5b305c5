"""The backward of a program under `create_graph=True`: its gradients have a `grad_fn`.

It is compiled when first needed, once for each pattern of incoming gradients: which are present, and which require
grad. Note [What the new call takes] in tracing/second_order.py describes its inputs.

Note [Edges without tensors]
A second derivative flows on to the program's inputs, so the first backward must know their gradient edges. For a leaf,
the engine knows it. For another input, the forward keeps the edge and not the tensor, whose memory may be freed: the
backward then uses a placeholder with the same edge and shape, over one element. A program that was compiled for a leaf
may be called with a tensor that has a `grad_fn`, unless it is a parameter.

Note [Results with a history]
It also flows on to results of the call. A result that the backward itself reads is saved, and autograd returns it with
its `grad_fn`. For another result, the caller may hold the tensor: tensors that can have hooks are in
`node.hooked_results`. If neither is available, the second derivative continues inside, to the inputs, and a hook on the
result is refused.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch

from aotviz.ir.descriptors import PlainInput
from aotviz.ir.forms import AtHand, GradientRequest, Split
from aotviz.ir.refusals import Refused
from aotviz.ir.subclass_meta import PlainTensorMeta, SubclassCreationMeta, SubclassLayout
from aotviz.ir.view_and_mutation import Ref
from aotviz.runtime import edges
from aotviz.runtime.deferred_stages import DeferredStages, GradientProgram
from aotviz.runtime.partial_backward import PartialBackward
from aotviz.runtime.tangents import Expected, as_tangent, in_layout, other_layout
from aotviz.torch_private import runtime
from aotviz.torch_private.context import autocast_off
from aotviz.torch_private.tensors import write_count
from aotviz.tracing.saved_values import saved_results


def _can_require_grad(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


class Gradients:
    """The differentiable gradients of one program."""

    def __init__(self, call: Split, at_hand: AtHand, late: DeferredStages, partial: PartialBackward) -> None:
        self.name, self._options = call.name, call.options
        self.at_hand, self._late, self._partial = at_hand, late, partial
        self._saved_count = call.saved_tensor_count
        self._known: dict[Any, GradientProgram | Exception] = {}
        self._passed: dict[Any, Sequence[Ref]] = {}  # pattern -> results that a second derivative flows through
        outer = call.outer
        infos = outer.meta.input_info
        tensors = [i for i, info in enumerate(infos) if info.is_tensor]
        wanted = call.differentiated
        self._tangents = outer.tangents
        self._plans = () if call.wrapping is None else call.wrapping.meta.tangents
        self._count, self._slots = len(infos), len(outer.slots)
        self.inputs = wanted  # the inputs that get a gradient, as autograd sees them
        self._names = [str(outer.graph_inputs[i]) for i in wanted]
        self.owners = _owners(call)  # the subclasses among the inputs whose parts are kept
        self._kept_names = [str(call.graph_inputs[i]) for i in call.kept]
        self._kept_names += [str(outer.graph_inputs[i]) for i in self.owners]
        self._kept_count = len(call.kept)
        self._heard: list[tuple[Ref, str]] = []  # the name of a result; "" for an argument, whose hooks are not checked
        for one in call.hooked_results if call.wrapping is None else ():
            self._heard.append((one.ref, call.called(one.ref) if one.slots or one.ref.kind == "output" else ""))
        self._results = {number: Ref("output", call.slots[number].index) for number in saved_results(call).values()}
        self._edge_at = list(map(tensors.index, wanted))  # for each of these inputs: its position in `next_functions`
        given = (outer.graph_inputs[i] for i in wanted)
        self._leaves = {i for i in wanted if infos[i].is_leaf}
        static = set(outer.meta.static_input_indices)
        # The inputs whose edge the forward keeps, those that were leaves if they no longer are.
        self.edged = [i for i in wanted if i not in static & self._leaves]
        self._likes = [edges.unconnected(outer.args[x.index]) if isinstance(x, PlainInput) else None for x in given]

    def __call__(self, ctx: Any, symbols: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients, one per graph input. `symbols` are the saved numbers."""
        if runtime.batched():
            raise RuntimeError(
                f"{self.name}: a backward with create_graph=True inside vmap (is_grads_batched=True) is not supported. "
                "Loop over the gradients, or apply torch.func's transforms to the function."
            )
        came = tuple(None if tangent is None else bool(tangent.requires_grad) for tangent in tangents)
        layouts = tuple(other_layout(*pair) for pair in zip(tangents, self._plans, strict=False))
        layouts = layouts if any(layouts) else ()
        saved = self._saved(ctx, tangents)
        held, hooked = self._held(ctx, saved)
        others = layouts, self._no_leaves(ctx)
        passed = self._passed.get((came, others), held)
        program = self._program(came, (), None, tuple(ref for ref in passed if ref in held), *others)
        if isinstance(program, Exception):
            found = self._refused(ctx, tangents, program)
        else:
            values = [*self._read(ctx, program, saved, symbols), *self._laid_out(tangents, layouts), *self._edges(ctx)]
            for ref, name in hooked.items():
                if ref in program.passed:
                    why = "a second derivative would flow through it, and the caller has freed it"
                    raise Refused("hook on a result", name, why)
            self._passed[came, others] = program.passed
            self._known[came, (), None, program.ends, *others] = program  # the same, whatever other results are held
            found = self._gradients(program, [*values, *(held[ref] for ref in program.ends)])
        self._partial.inputs.after_a_second(ctx, found)
        return found

    def without_history(
        self,
        ctx: Any,
        symbols: Sequence[Any],
        tangents: Sequence[Any],
        wholes: Mapping[Ref, Any] | None = None,
        wanted: Ref | None = None,
        hooked: str = "",
    ) -> tuple[Any, ...]:
        """The gradients while grad mode is off, by running the user's backwards again with only these tangents.

        If the backward is cut (`runtime/cuts.py`), `wholes` are final gradients of results, and `hooked` is the user's
        name of the result with the hook. If the gradient of the result `wanted` is asked for, it comes first, and
        alone.

        Raises:
            Refused: these gradients cannot be computed separately.
        """
        if hooked and runtime.batched():
            raise Refused("hook on a result", hooked, "it runs inside vmap, as with is_grads_batched=True")
        if hooked and torch.is_grad_enabled():
            why = "with create_graph=True, the hook would miss gradients of a second backward"
            raise Refused("hook on a result", hooked, why)
        if hooked:  # the hook is called before the wrapper has converted the gradients
            plain = Expected(hooked, PlainTensorMeta(), ())
            tangents = [None if one is None else as_tangent(one, plain) for one in tangents]
        given = wholes or {}
        came = tuple(None if one is None else False for one in tangents)
        program = self._program(came, tuple(given), wanted, (), (), self._no_leaves(ctx))
        if isinstance(program, Exception):
            rule, about = ("hook on a result", hooked) if hooked else ("result without a gradient", self.name)
            raise Refused(rule, about, str(program))
        values = self._read(ctx, program, self._saved(ctx, tangents), symbols)
        whole = [gradient.contiguous() for gradient in given.values()]
        return self._gradients(program, [*values, *self._laid_out(tangents), *whole, *self._edges(ctx)])

    def _gradients(self, program: GradientProgram, values: list[Any]) -> tuple[Any, ...]:
        with autocast_off():
            found = program.function(values)
        result: list[Any] = [None] * self._count
        for position, gradient in zip(program.positions, found, strict=True):
            result[position] = gradient
        return tuple(result)

    def _laid_out(self, tangents: Sequence[Any], layouts: Sequence[SubclassLayout | None] = ()) -> Iterator[Any]:
        for tangent, expected, other in zip_longest(tangents, self._tangents, layouts):
            if tangent is not None:
                yield in_layout(tangent, expected) if other is None else tangent

    def _saved(self, ctx: Any, tangents: Sequence[Any]) -> list[Any]:
        """As PartialBackward's."""
        pairs = zip(tangents, self._tangents, strict=True)
        return self._partial.saved(
            ctx, [tangent is not None for tangent, known in pairs for _ in known.parts or (known,)]
        )

    def _read(self, ctx: Any, program: GradientProgram, saved: list[Any], symbols: Sequence[Any]) -> list[Any]:
        """The values of the forward. Raises if one that the program reads was freed, or written since."""
        self._partial.refuse_lost(ctx, saved, program.may_read)
        tensors = enumerate(saved[: self._saved_count])
        values = [self._partial.unread(ctx, i) if one is None else one for i, one in tensors]
        values += symbols
        kept, count = list(getattr(ctx, "kept", ())), self._kept_count
        for place, (name, (tensor, version)) in enumerate(zip(self._kept_names, kept, strict=True)):
            if place < count and not program.may_read(len(values) + place):
                continue
            if tensor is None:
                raise RuntimeError(
                    f"Trying to backward through the graph a second time: an earlier backward of {self.name} without "
                    f"retain_graph=True freed {name!r}, which a second derivative needs."
                )
            if write_count(tensor) != version:
                raise Refused("written before the backward", name, self.name)
        values += [tensor for tensor, _ in kept[:count]]
        # The offsets of a jagged tensor stay the same object: torch names the ragged size after it.
        return [v.detach() if isinstance(v, torch.Tensor) and _can_require_grad(v) else v for v in values]

    def _held(self, ctx: Any, saved: Sequence[torch.Tensor]) -> tuple[dict[Ref, torch.Tensor], dict[Ref, str]]:
        """See Note [Results with a history]. Also returns the names of results that have hooks but are not
        available."""
        returned = {one.output_nr: one for one in saved if one is not None and one.grad_fn is ctx}
        found = {ref: returned[slot] for slot, ref in self._results.items() if slot in returned}
        hooked = {}
        for (ref, name), listening in zip(self._heard, getattr(ctx, "hooked_results", ()), strict=False):
            tensor = listening.held()
            if tensor is not None and tensor.requires_grad:
                found.setdefault(ref, tensor)
            elif name and ref not in found and listening.hears():
                hooked[ref] = name
        return found, hooked

    def _program(self, *asked: Any) -> Any:
        """The program for a pattern of tangents and the other fields of a GradientRequest, or the error that prevented
        it."""
        known = self._known.get(asked)
        if known is None:  # no lock is held while it is traced: two threads may both do so, and one result is kept
            try:
                with autocast_off():
                    request = GradientRequest(self._options, self.name, self.at_hand, *asked)
                    made: GradientProgram | Exception = self._late.gradients(request)
            except Exception as error:
                if self._options.debug and not isinstance(error, RuntimeError):
                    raise
                made = error
            known = self._known.setdefault(asked, made)
        return known

    def _refused(self, ctx: Any, tangents: Sequence[Any], error: Exception) -> tuple[Any, ...]:
        """The plain gradients, and an error that is raised, as in eager, only if they are differentiated."""
        incoming: list[Any] = [None] * self._slots
        for expected, tangent in zip(self._tangents, tangents, strict=True):
            incoming[expected.slot] = tangent
        plain = runtime.backward_without_history(ctx, incoming)
        history = [t for t in (*tangents, *self._edges(ctx)) if t is not None and t.requires_grad]
        return edges.delayed_error(plain, history, Refused("second derivative", self.name, str(error)))

    def _no_leaves(self, ctx: Any) -> tuple[int, ...]:
        """The inputs that are leaves in the trace, and have a `grad_fn` in this call."""
        return tuple(i for i in self._kept_edges(ctx) if i in self._leaves)

    def _kept_edges(self, ctx: Any) -> dict[int, Callable[[], torch.Tensor]]:
        """Those of the inputs that have a `grad_fn` in this call."""
        kept = zip(self.edged, getattr(ctx, "edges", ()), strict=False)
        return {i: edge for i, edge in kept if edge is not None}

    def _edges(self, ctx: Any) -> list[torch.Tensor]:
        """See Note [Edges without tensors]."""
        kept, found = self._kept_edges(ctx), []
        for i, name, position, like in zip(self.inputs, self._names, self._edge_at, self._likes, strict=True):
            if i in kept:
                found.append(kept[i]())
                continue
            node = ctx.next_functions[position][0]
            leaf = like() if node is None and like is not None else getattr(node, "variable", None)
            if leaf is None and torch.is_grad_enabled():
                raise RuntimeError(
                    f"{self.name} was compiled for a leaf {name!r} and called with a tensor that has a "
                    "grad_fn, so its gradients cannot be differentiated again. Compile it with such an input."
                )
            found.append(edges.result_like(*ctx.next_functions[position]) if leaf is None else leaf)
        return found


class Kept:
    """Inputs that only a second derivative needs, with the version that each had."""

    __slots__ = ("_held", "_versions")

    def __init__(self, *tensors: torch.Tensor) -> None:
        self._held: Sequence[Any] = tensors
        self._versions = list(map(write_count, tensors))

    def __iter__(self) -> Iterator[tuple[torch.Tensor | None, int]]:
        """The tensors with their versions; None for one that was freed."""
        held = (one() if isinstance(one, weakref.ref) else one for one in self._held)
        return zip(held, self._versions, strict=True)

    def free(self) -> None:
        """After a backward without `retain_graph`: hold them only as long as others do, as for saved tensors."""
        self._held = [one if isinstance(one, weakref.ref) else weakref.ref(one) for one in self._held]


def _owners(call: Split) -> list[int]:
    plans = () if call.wrapping is None else call.wrapping.meta.inputs
    subclasses = (i for i, plan in enumerate(plans) if isinstance(plan, SubclassCreationMeta))
    return [i for i in subclasses if not set(call.kept).isdisjoint(call.input_parts[i])]
