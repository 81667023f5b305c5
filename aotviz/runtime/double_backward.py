"""The backward of a program under `create_graph=True`: its gradients have a `grad_fn`.

It is compiled when first needed, once for each pattern of incoming gradients: which are present, and which require
grad. Note [What the new call takes] in tracing/second_order.py describes its inputs.

Note [Edges without tensors]
A second derivative flows on to the program's inputs, so the first backward must know their gradient edges. For a leaf,
the engine knows it. For another input, the forward keeps the edge and not the tensor, whose memory may be freed: the
backward then uses a placeholder with the same edge and shape, over one element.

Note [Results with a history]
It also flows on to results of the call. A result that the backward itself reads is saved, and autograd returns it with
its `grad_fn`. For another result, the caller may hold the tensor: tensors that can have hooks are in
`node.hooked_results`. If neither is available, the second derivative continues inside, to the inputs, and a hook on the
result is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch

from aotviz.ir.descriptors import PlainInput
from aotviz.ir.forms import AtHand, GradientRequest, Split
from aotviz.ir.refusals import Refused
from aotviz.ir.subclass_meta import PlainTensorMeta, SubclassCreationMeta, SubclassLayout
from aotviz.ir.view_and_mutation import Ref
from aotviz.runtime import edges
from aotviz.runtime.call_differs import WrittenSince
from aotviz.runtime.deferred_stages import DeferredStages, GradientProgram
from aotviz.runtime.tangents import Expected, as_tangent, in_layout, other_layout
from aotviz.runtime.unreached_inputs import UnreachedInputs
from aotviz.torch_private import autograd_nodes, runtime
from aotviz.torch_private.context import autocast_off
from aotviz.torch_private.tensors import write_count
from aotviz.tracing.saved_values import saved_results


def _can_require_grad(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


class Gradients:
    """The differentiable gradients of one program."""

    def __init__(self, call: Split, at_hand: AtHand, late: DeferredStages) -> None:
        self.name, self._options = call.name, call.options
        self._at_hand, self._late = at_hand, late
        self._saved_count, self._written_since = call.saved_tensor_count, WrittenSince(call)
        self._known: dict[Any, GradientProgram | Exception] = {}
        self._passed: dict[Any, Sequence[Ref]] = {}  # pattern -> results that a second derivative flows through
        outer = call.outer
        infos = outer.meta.input_info
        tensors = [i for i, info in enumerate(infos) if info.is_tensor]
        wanted = call.differentiated
        self._tangents = outer.tangents
        self._plans = () if call.wrapping is None else call.wrapping.meta.tangents
        self._count, self._slots = len(infos), len(outer.slots)
        self._unreached = UnreachedInputs(call)
        self.inputs = wanted  # the inputs that get a gradient, as autograd sees them
        self._names = [str(outer.graph_inputs[i]) for i in wanted]
        self._kept_names = [str(call.graph_inputs[i]) for i in call.kept]
        self.owners = _owners(call)  # the subclasses among the inputs whose parts are kept
        self._owner_names = [str(outer.graph_inputs[i]) for i in self.owners]
        self._heard = [(one.ref, call.called(one.ref)) for one in call.hooked_results] if call.wrapping is None else []
        self._results = {number: Ref("output", call.slots[number].index) for number in saved_results(call).values()}
        # For each differentiated input: the position of its edge in `next_functions` if it is a leaf, else None.
        self._leaf_at = [tensors.index(i) if infos[i].is_leaf else None for i in wanted]
        given = (outer.graph_inputs[i] for i in wanted)
        plain = [outer.args[one.index] if isinstance(one, PlainInput) else None for one in given]
        self._likes = [None if one is None else edges.unconnected(one) for one in plain]

    @property
    def origins(self) -> Mapping[str, str]:
        """As in AtHand."""
        return self._at_hand.origins

    def without_history(self, ctx: Any, symbols: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients while grad mode is off, by running the user's backwards again with only these tangents."""
        program = self._program(_without_history(tangents))
        if isinstance(program, Exception):
            raise Refused("result without a gradient", self.name, str(program))
        return self._gradients(ctx, program, [*self._unwritten(ctx, program), *symbols], tangents)

    def __call__(self, ctx: Any, symbols: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients, one per graph input. `symbols` are the saved numbers."""
        if runtime.batched():
            raise RuntimeError(
                f"{self.name}: a backward with create_graph=True inside vmap (is_grads_batched=True) is not supported. "
                "Loop over the gradients, or apply torch.func's transforms to the function."
            )
        came = tuple(None if tangent is None else bool(tangent.requires_grad) for tangent in tangents)
        layouts = tuple(other_layout(*pair) for pair in zip(tangents, self._plans, strict=False))
        program, saved, ends = self._going_on(ctx, came, layouts if any(layouts) else ())
        if isinstance(program, Exception):
            found = self._refused(ctx, tangents, program)
        else:
            found = self._gradients(ctx, program, [*saved, *symbols], tangents, ends, layouts=layouts)
        self._unreached.after_a_second(ctx, found)
        return found

    def cut(
        self,
        name: str,
        ctx: Any,
        symbols: Sequence[Any],
        tangents: Sequence[Any],
        wholes: Mapping[Ref, Any],
        wanted: Ref | None = None,
    ) -> Sequence[Any]:
        """The gradients of the inputs, or of the result `wanted` alone.

        `wholes` are final gradients of results (`runtime/cuts.py`); `name` is the user's name of the result with the
        hook.

        Raises:
            Refused: these gradients cannot be computed separately.
        """
        if runtime.batched():
            raise Refused("hook on a result", name, "it runs inside vmap, as with is_grads_batched=True")
        if torch.is_grad_enabled():
            why = "with create_graph=True, the hook would miss gradients of a second backward"
            raise Refused("hook on a result", name, why)
        tangents = [None if one is None else as_tangent(one, Expected(name, PlainTensorMeta(), ())) for one in tangents]
        program = self._program(_without_history(tangents), tuple(wholes), wanted)
        if isinstance(program, Exception):
            raise Refused("hook on a result", name, str(program))
        saved = [*self._unwritten(ctx, program), *symbols]
        return self._gradients(ctx, program, saved, tangents, wholes=tuple(wholes.values()))

    def _gradients(
        self,
        ctx: Any,
        program: Any,
        saved: Sequence[Any],
        tangents: Sequence[Any],
        ends: Sequence[torch.Tensor] = (),
        wholes: Sequence[Any] = (),
        layouts: Sequence[SubclassLayout | None] = (),
    ) -> tuple[Any, ...]:
        values = [*saved, *self._kept(ctx, program)]
        # The offsets of a jagged tensor stay the same object: torch names the ragged size after it.
        values = [v.detach() if isinstance(v, torch.Tensor) and _can_require_grad(v) else v for v in values]
        for tangent, expected, other in zip_longest(tangents, self._tangents, layouts):
            if tangent is not None:
                values.append(in_layout(tangent, expected) if other is None else tangent)
        values += [whole.contiguous() for whole in wholes]
        values += self._edges(ctx)
        values += ends
        with autocast_off():
            found = program.function(values)
        if program.of_a_result:
            return tuple(found) or (None,)
        result: list[Any] = [None] * self._count
        for position, gradient in zip(program.positions, found, strict=True):
            result[position] = gradient
        return tuple(result)

    def _going_on(
        self, ctx: Any, came: tuple[bool | None, ...], layouts: tuple[SubclassLayout | None, ...]
    ) -> tuple[Any, Sequence[torch.Tensor], Sequence[torch.Tensor]]:
        """The program or error for these tangents; the saved values; the results at which its derivative ends."""
        saved, written = self._left(ctx, came) if hasattr(ctx, "parted") else self._saved(ctx)
        held, hooked = self._held(ctx, saved)
        passed = self._passed.get((came, layouts), held)
        program = self._program(came, (), None, tuple(ref for ref in passed if ref in held), layouts)
        if isinstance(program, Exception):
            return program, (), ()
        if any(saved[i] is None and program.may_read(i) for i in written):
            _ = ctx.saved_tensors  # raises: a backward of other results freed it
        self._refuse_written(program, written)
        for ref, name in hooked.items():
            if ref in program.passed:
                raise Refused(
                    "hook on a result", name, "a second derivative would flow through it, and the caller has freed it"
                )
        self._passed[came, layouts] = program.passed
        self._known[came, (), None, program.ends, layouts] = program  # holding further results gives the same program
        return program, saved, [held[ref] for ref in program.ends]

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
            elif ref not in found and listening.hears():
                hooked[ref] = name
        return found, hooked

    def _program(self, *asked: Any) -> Any:
        """The program for a pattern of tangents and the other fields of a GradientRequest, or the error that prevented
        it."""
        known = self._known.get(asked)
        if known is None:  # no lock is held while it is traced: two threads may both do so, and one result is kept
            try:
                with autocast_off():
                    request = GradientRequest(self._options, self.name, self._at_hand, *asked)
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

    def _edges(self, ctx: Any) -> list[torch.Tensor]:
        """See Note [Edges without tensors]."""
        others = iter(getattr(ctx, "edges", ()))
        found = []
        for name, position, like in zip(self._names, self._leaf_at, self._likes, strict=True):
            if position is None:
                found.append(next(others).unpack())
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

    def _saved(self, ctx: Any) -> tuple[Sequence[Any], Sequence[int]]:
        """The saved tensors, and the positions of those that may have been written since."""
        if not self._saved_count:
            return (), ()
        try:
            return ctx.saved_tensors[: self._saved_count], ()
        except RuntimeError as error:
            found = self._written_since.others(ctx, error)
        for position in range(self._saved_count, len(found)):  # subclasses that the saved tensors are parts of
            if found[position] is None:
                raise self._written_since.at(position)
        packed = autograd_nodes.saved_with_hooks(ctx)
        values = [packed[i].data if one is None else one for i, one in enumerate(found[: self._saved_count])]
        return values, [i for i, one in enumerate(found[: self._saved_count]) if one is None]

    def _left(self, ctx: Any, came: tuple[bool | None, ...]) -> tuple[Sequence[Any], Sequence[int]]:
        """As `_saved`, after a backward of other results freed its part. See Note [One output after the other]."""
        gone, held = ctx.parted
        if any(one is not None and i in gone for i, one in enumerate(came)):
            _ = ctx.saved_tensors  # raises
        entries = held[: self._saved_count]
        values = [None if entry is None else entry[0] for entry in entries]
        return values, [i for i, entry in enumerate(entries) if entry is None or write_count(entry[0]) != entry[1]]

    def _unwritten(self, ctx: Any, program: GradientProgram) -> Sequence[Any]:
        """The saved tensors. Raises Refused if this program reads one that was written since."""
        saved, written = self._saved(ctx)
        self._refuse_written(program, written)
        return saved

    def _refuse_written(self, program: GradientProgram, written: Sequence[int]) -> None:
        for position in written:
            if program.may_read(position):
                raise self._written_since.at(position)

    def _kept(self, ctx: Any, program: GradientProgram) -> list[torch.Tensor]:
        kept, owners, versions = getattr(ctx, "kept", ((), (), ()))
        names = (*self._kept_names, *self._owner_names)
        first = len(self._at_hand.saved)
        for place, (name, tensor, version) in enumerate(zip(names, (*kept, *owners), versions, strict=True)):
            if write_count(tensor) != version and (place >= len(kept) or program.may_read(first + place)):
                raise Refused("written before the backward", name, self.name)
        return list(kept)


def _without_history(tangents: Sequence[Any]) -> tuple[bool | None, ...]:
    return tuple(None if tangent is None else False for tangent in tangents)


def kept(
    tensors: Sequence[torch.Tensor], owners: Sequence[torch.Tensor] = ()
) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor], list[int]]:
    """Tensors, the subclasses that some are parts of, and the current version of each."""
    return tensors, owners, [write_count(tensor) for tensor in (*tensors, *owners)]


def _owners(call: Split) -> list[int]:
    if call.wrapping is None:
        return []
    plans = call.wrapping.meta.inputs
    of_part = [i for i, plan in enumerate(plans) for _ in range(plan.count)]
    return list(dict.fromkeys(of_part[k] for k in call.kept if isinstance(plans[of_part[k]], SubclassCreationMeta)))
