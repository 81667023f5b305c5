"""A backward that is cut in parts, for hooks on results from which other results of the same call were computed.

A compiled backward is one autograd node. With `return hidden, loss(hidden)`, the gradient of the loss flows through
`hidden` inside that node, where the engine calls no hooks. So if `hidden` has a hook, the part of the backward that
leads there runs first, and its result is added to the gradient from outside before the hook is called; the hook's
result continues through the rest. The parts are separate programs, compiled when first needed
(`Gradients.without_history`): a call whose results have no hooks only pays for one check in each backward.

Note [Where the cut is made]
The engine calls all hooks on all results of a node, then retains gradients, then returns those that were asked for, and
last calls the node's backward. So the sum is made by a hook of ours in front of the user's: users' hooks, `retain_grad`
and `torch.autograd.grad` all receive it from the engine. The results are ordered so that each comes after those that
were computed from it, and a hook of ours after the user's keeps the resulting gradients.

Note [No gradient from outside]
A hook cannot replace None by a gradient. If nothing came from outside, the user's hooks are called here, and the
gradient is retained here, as the engine would do. `torch.autograd.grad` cannot get this gradient.

Note [A view of a result]
If the caller gets a view of what the node returns (a linear layer's result, in three dimensions), the view has a node
of its own, which the engine reaches first and where it would call the hooks. These hooks wait (`Waiting`). They are
called here with the whole gradient when the gradient of the view's base has reached the node of the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from aotviz.ir import graphs
from aotviz.ir.forms import HookedResult, Split
from aotviz.ir.refusals import Refused
from aotviz.ir.view_and_mutation import ALIASES_OF_INTERMEDIATES, OutputType, Ref
from aotviz.runtime import gradient_hooks
from aotviz.runtime.double_backward import Gradients
from aotviz.runtime.gradient_hooks import HooksOfAResult, Listening
from aotviz.runtime.partial_backward import Parts
from aotviz.torch_private import autograd_nodes, dynamo
from aotviz.traced import does_nothing


class Alone(Protocol):
    """Gradients that are computed from some results only; see `Gradients`."""

    def without_history(
        self,
        ctx: Any,
        symbols: Sequence[Any],
        tangents: Sequence[Any],
        wholes: Mapping[Ref, Any] | None,
        wanted: Ref | None,
        hooked: str,
    ) -> tuple[Any, ...]: ...


@dataclass(frozen=True)
class Place:
    """A place where a backward can be cut."""

    position: int  # in `call.hooked_results`
    ref: Ref
    slot: int  # of the result, or of the tensor that it is a view of
    is_view: bool
    through: tuple[int, ...]  # slots of the results that were computed from it
    name: str


def places(call: Split) -> list[Place]:
    """The places where the backward of a call can be cut, each after those that it leads to."""
    found = []
    for position, one in enumerate(call.hooked_results):
        if one.slots and not why_whole(call, one):
            slot, is_view = _slots(call)[one.ref]
            found.append(Place(position, one.ref, slot, is_view, one.slots, str(call.outputs[one.ref.index])))
    return sorted(found, key=lambda place: len(place.through))


def why_whole(call: Split, one: HookedResult) -> str:
    """Why the backward cannot be cut at this tensor; "" if it can."""
    if call.wrapping is not None:
        return "the call works on tensor subclasses"
    if any(map(graphs.is_input_mutation, call.backward_module.graph.nodes)):
        return "a custom autograd.Function writes to its gradients there"
    slot, is_view = _slots(call).get(one.ref, (None, False))
    if slot is None:
        return "it is written in place or is one of several views of one tensor, and is regenerated after the call"
    if slot in one.slots and not is_view:
        return "the call changes its shape in place, and in eager its gradient has the old shape"
    return ""


def _slots(call: Split) -> dict[Ref, tuple[int, bool]]:
    """The slots of results that the caller gets as the node returns them, or that are the only view of a slot."""
    if call.wrapping is not None:  # its slots are parts of the results
        return {}
    known = {(slot.kind, slot.index): n for n, slot in enumerate(call.slots) if slot.differentiable}
    found = {Ref(kind, index): (n, False) for (kind, index), n in known.items() if kind == "output"}
    infos = call.meta.output_info
    bases = [info.base_index for info in infos if info.output_type in ALIASES_OF_INTERMEDIATES]
    for index, info in enumerate(infos):
        base = known.get(("base", -1 if info.base_index is None else info.base_index))
        is_first = info.output_type is OutputType.alias_of_intermediate_save_as_output and info.same_object_as is None
        if base is not None and is_first and bases.count(info.base_index) == 1:
            found[Ref("output", index)] = base, True
    return found


@dataclass(frozen=True, eq=False)
class Cut:
    """The places where the backward of one program can be cut."""

    places: tuple[Place, ...]
    tangents: tuple[int, ...]  # the slot of each
    order: tuple[int, ...]  # of the slots; see Note [Where the cut is made]
    gradients: Alone
    rest: Parts

    @classmethod
    def of(cls, call: Split, gradients: Gradients, rest: Parts) -> Cut:
        found = tuple(places(call))
        at = {place.slot: place for place in reversed(found)}
        others = {n for n, slot in enumerate(call.slots) if slot.differentiable} - set(at)
        order = *sorted(others), *sorted(at, key=lambda slot: len(at[slot].through))
        return cls(found, tuple(tangent.slot for tangent in call.tangents), order, gradients, rest)

    def node(self, out: Sequence[Any]) -> Any:
        """The node of a call that returned `out`, which checks for hooks from now on; None if it has no `grad_fn`."""
        node = out[self.order[0]].grad_fn
        if node is not None:
            node.cutting = None
            node.hooks_of_results = [HooksOfAResult.on(out[slot]) for slot in self.order]
            node.hooks_of_results[0].surround(self.look, self.keep)
        return node

    @dynamo.traced_as(does_nothing)
    def look(self, _gradient: Any) -> None:
        """Called first in each backward through the node, before the hooks on the first result: check the others for
        hooks."""
        node = autograd_nodes.current_node()
        if node is None or torch.compiler.is_compiling():  # compiled autograd runs the hooks itself
            return
        if node.cutting is not None:  # left by a backward that failed
            node.cutting.end()
            node.cutting = None
        asked = gradient_hooks.asked_for()
        hooks = dict(zip(self.order, node.hooks_of_results, strict=True))
        wanted = {}
        for place in self.places:
            one = node.hooked_results[place.position]
            if (place.is_view or one.hooks is hooks[place.slot]) and (one.hears() or (asked and one.is_among(asked))):
                wanted[place.slot] = place, one
        if wanted:
            node.cutting = Cutting(self, hooks, wanted, asked)

    @dynamo.traced_as(does_nothing)
    def keep(self, gradient: Any) -> None:
        """Called after the hooks on the first result."""
        node = autograd_nodes.current_node()
        if node is not None and node.cutting is not None and not torch.compiler.is_compiling():
            node.cutting.came[self.order[0]] = gradient

    # Prevents a warning by `torch.save`.
    look.__torch_unserializable__ = keep.__torch_unserializable__ = True  # type: ignore[attr-defined]

    def __call__(self, ctx: Any, symbols: Sequence[Any], gradients: Sequence[Any]) -> tuple[Any, ...]:
        """The results of a backward that has been cut. `gradients` are the incoming ones, one per tangent."""
        cutting = ctx.cutting
        ctx.cutting = None
        if cutting.asked:
            raise Refused("gradient of a result", cutting.asked[0])
        tangents = dict(zip(self.tangents, gradients, strict=True))
        found = self._run(cutting.name, ctx, symbols, tangents, cutting.given)
        self.rest.inputs.after_a_part(ctx, found)
        return tuple(found)

    def part(self, ctx: Any, cutting: Cutting, place: Place, gradient: Any) -> Any:
        """The gradient at one place, from those that have arrived so far. `gradient` is its own gradient from
        outside."""
        tangents = {**cutting.came, place.slot: None if place.is_view else gradient}
        symbols = getattr(ctx, "symbols", ())
        inside = self._run(place.name, ctx, symbols, tangents, cutting.given, place.ref)[0]
        return inside if not place.is_view or None in (inside, gradient) else gradient + inside

    def _run(
        self,
        name: str,
        ctx: Any,
        symbols: Sequence[Any],
        tangents: Mapping[int, Any],
        given: Mapping[int, tuple[Place, Any]],
        wanted: Ref | None = None,
    ) -> Sequence[Any]:
        present = [None if slot in given else tangents.get(slot) for slot in self.tangents]
        wholes = {place.ref: gradient for place, gradient in given.values()}
        return self.gradients.without_history(ctx, symbols, present, wholes, wanted, name)


class Cutting:
    """One backward that is cut. See Note [Where the cut is made]. All mappings are by slots."""

    def __init__(
        self,
        cut: Cut,
        hooks: Mapping[int, HooksOfAResult],
        wanted: Mapping[int, tuple[Place, Listening]],
        asked: Sequence[Any],
    ) -> None:
        self.cut, self.wanted = cut, wanted
        self.came: dict[int, Any] = {}  # gradients, after hooks
        self.given: dict[
            int, tuple[Place, Any]
        ] = {}  # where the backward has been cut, and the gradient to continue with
        self.asked: list[str] = []  # names of those that torch.autograd.grad asks for
        self._asked = asked
        self._surrounded = [(slot, known) for slot, known in hooks.items() if slot != cut.order[0]]
        for slot, known in self._surrounded:
            known.surround(partial(self._before, slot), partial(self._after, slot))
        autograd_nodes.at_end_of_backward(self.end)

    @property
    def name(self) -> str:
        """The result because of which the backward is cut."""
        return next(iter(self.given.values()))[0].name

    def end(self) -> None:
        """Leave the user's hooks as they were, and release the gradients."""
        for _, known in self._surrounded:
            known.alone()
        self.came, self.given = {}, {}

    def _before(self, slot: int, gradient: Any) -> Any:
        """The whole gradient to replace the one from outside; None to leave that unchanged."""
        place, listening = self.wanted.get(slot, (None, None))
        if place is None or listening is None:
            return None
        waiting = listening.hooks.waiting if place.is_view else None
        outside = waiting.came() if waiting is not None else gradient
        passed = any(self.came.get(other) is not None for other in place.through)
        if not passed and (waiting is None or outside is None):
            return None
        whole = self.cut.part(autograd_nodes.current_node(), self, place, outside) if passed else outside
        if whole is None:
            return None
        if passed and listening.is_among(self._asked):
            if outside is None:
                raise Refused("gradient of a result", place.name)
            self.asked.append(place.name)
        if waiting is None and gradient is not None:
            self.given[slot] = place, whole
            return whole
        self._hear_alone(place, listening, whole, outside, gradient)
        return None

    def _hear_alone(self, place: Place, listening: Listening, whole: Any, outside: Any, of_base: Any) -> None:
        """See Note [No gradient from outside] and Note [A view of a result]."""
        tensor: Any = listening.as_it_was()
        retains = tensor is not None and tensor.retains_grad
        heard, users = whole, listening.hooks.users().values()
        if place.is_view and outside is None and any(gradient_hooks.counts_gradients(one.hook) for one in users):
            raise Refused(
                "hook on a result", place.name, "register_multi_grad_hook needs a separate autograd node there"
            )
        for hook in users:
            result = hook(heard)
            heard = heard if result is None else result
        if not place.is_view:
            listening.hooks.heard_alone()
        if retains:
            if outside is not None:
                tensor.grad = listening.hooks.waiting.retained
            gradient_hooks.retain(tensor, heard)
        unseen = place.is_view and outside is None and of_base is not None  # the base's gradient passed no hook
        if heard is not outside and not unseen:
            self.given[place.slot] = place, heard

    def _after(self, slot: int, gradient: Any) -> None:
        if slot in self.given:
            place, whole = self.given[slot]
            gradient = whole if place.is_view or gradient is None else gradient
            self.given[slot] = place, gradient
        self.came[slot] = gradient
