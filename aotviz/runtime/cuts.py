"""A backward cut in parts, for hooks on results that other results of the same call came from.

A compiled backward is one node of autograd's graph. With `return hidden, loss(hidden)`, the loss's gradient passes
`hidden` inside that node, where the engine has nobody to call. So when a hook on `hidden` is found, the part of the
backward that leads there runs first, and what comes out is added to what came from outside before the hook is called;
what the hook returns goes on through the rest. The parts are programs of their own, compiled when they are first
needed (`Gradients.cut`): a call whose results have no hooks pays for one look in each backward.

Note [Where the cut is made]
The engine calls all hooks on all results of a node, then retains gradients, then hands out those that were asked for,
and last calls the node's backward. So the sum is made by a hook of ours that stands before the user's: users' hooks,
`retain_grad` and `torch.autograd.grad` all get it from the engine. The results are taken in such an order that each
comes after those that were computed from it, and a hook of ours behind the user's keeps what came of their gradients.

Note [No gradient from outside]
A hook can't put a gradient in the place of None. Where nothing came from outside, the user's hooks are called from here
and the gradient is retained here, as the engine would. What `torch.autograd.grad` asks for it can't be given then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from aotviz.ir import graphs
from aotviz.ir.forms import Heard, Split
from aotviz.ir.metadata import OutputType, Ref
from aotviz.ir.refusals import Refused
from aotviz.runtime.double_backward import Gradients
from aotviz.runtime.partial_backward import PartialBackward
from aotviz.torch_private import gradient_hooks
from aotviz.torch_private.gradient_hooks import HooksOfAResult, Listening


def cuttable(call: Split) -> list[tuple[int, Heard]]:
    """Where the backward of a call can be cut: (slot, what is heard), each behind those that came from it."""
    slots = _slots(call)
    found = [(slots[one.ref], one) for one in call.heard if not why_whole(call, one)]
    return sorted(found, key=lambda pair: len(pair[1].slots))


def why_whole(call: Split, one: Heard) -> str:
    """Why the backward can't be cut where this is heard; empty where it can."""
    slot = _slots(call).get(one.ref)
    if call.wrapping is not None:
        return "the call works on tensors made of tensors"
    if any(map(graphs.is_input_mutation, call.backward_module.graph.nodes)):
        return "a custom autograd.Function writes to its gradients there"
    if slot is not None and slot in one.slots:
        return "the call gives it another shape in place, and in eager its gradient has the one from before"
    if slot is None:
        return "it is a view, or is written in place, and gradients leave the call by another way"
    return ""


def _slots(call: Split) -> dict[Ref, int]:
    """The results that the caller gets as the node of the call returns them."""
    found: dict[Ref, int] = {}
    if call.wrapping is not None:  # its slots are parts of the results
        return found
    for place, slot in enumerate(call.slots):
        if slot.kind == "output" and slot.differentiable and not slot.hidden:
            info = call.meta.output_info[slot.index]
            if info.made is None and info.output_type is not OutputType.alias_of_input and not info.new_leaf:
                found[Ref("output", slot.index)] = place
    return found


class Cut:
    """The places where the backward of one program can be cut."""

    def __init__(self, call: Split, gradients: Gradients, rest: PartialBackward) -> None:
        self.gradients, self.rest = gradients, rest
        self.places = [(slot, call.heard.index(one)) for slot, one in cuttable(call)]
        self.through = {slot: one.slots for slot, one in cuttable(call)}
        self.names = {slot: str(call.slots[slot].descriptor) for slot in self.through}
        self.tangents = {tangent.slot: position for position, tangent in enumerate(call.tangents)}
        others = {slot for slots in self.through.values() for slot in slots} - set(self.through)
        self.order = [*sorted(others), *self.through]

    def node(self, out: Sequence[Any]) -> Any:
        """The node of a call that returned `out`, which from now on looks for hooks; None if it has no history."""
        node = out[self.order[0]].grad_fn
        if node is not None:
            node.cutting = None
            node.hooks_of_results = [HooksOfAResult.on(out[slot]) for slot in self.order]
            node.hooks_of_results[0].surround(self.look, self.keep)
        return node

    def look(self, _gradient: Any) -> None:
        """Called first in each backward through the node, before the hooks on the first result: do others have any?"""
        node = gradient_hooks.current_node()
        if node is None:  # compiled autograd runs the hooks by themselves
            return
        if node.cutting is not None:  # of a backward that failed
            node.cutting.end()
            node.cutting = None
        asked = gradient_hooks.asked_for()
        hooks = dict(zip(self.order, node.hooks_of_results, strict=True))
        wanted = {}
        for slot, position in self.places:
            one = node.heard[position]
            if one.hooks is hooks[slot] and (one.hears() or (asked and one.is_among(asked))):
                wanted[slot] = one
        if wanted:
            node.cutting = Cutting(self, hooks, wanted, asked)

    def keep(self, gradient: Any) -> None:
        """Called behind the hooks on the first result."""
        node = gradient_hooks.current_node()
        if node is not None and node.cutting is not None:
            node.cutting.came[self.order[0]] = gradient

    # They are no reason for a warning of `torch.save`.
    look.__torch_unserializable__ = keep.__torch_unserializable__ = True  # type: ignore[attr-defined]

    def __call__(self, ctx: Any, symbols: Sequence[Any], gradients: Sequence[Any]) -> tuple[Any, ...]:
        """What the backward returns after it has been cut. `gradients` are those that came in, one per tangent."""
        cutting = ctx.cutting
        ctx.cutting = None
        if cutting.asked:
            raise Refused("gradient of a result", self.names[cutting.asked[0]])
        given = dict(zip(self.tangents, gradients, strict=True)) | cutting.alone
        name, places = self.names[cutting.given[0]], self._positions(cutting.given)
        found = self.gradients.cut(name, ctx, symbols, list(given.values()), places)
        self.rest.spare_hooks(ctx, found)
        return tuple(found)

    def part(self, ctx: Any, cutting: Cutting, gradients: Mapping[int, Any], slot: int) -> Any:
        """The gradient at one result, of those that came in; by slots, all of which have come to."""
        incoming = [gradients.get(place) for place in self.tangents]
        symbols = getattr(ctx, "symbols", ())
        given, wanted = self._positions(cutting.given), self.tangents[slot]
        return self.gradients.cut(self.names[slot], ctx, symbols, incoming, given, wanted)[0]

    def _positions(self, slots: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted(self.tangents[slot] for slot in slots))


class Cutting:
    """One backward that is cut. See Note [Where the cut is made]."""

    def __init__(
        self, cut: Cut, hooks: Mapping[int, HooksOfAResult], wanted: Mapping[int, Listening], asked: Sequence[Any]
    ) -> None:
        self.cut, self.hooks, self.wanted = cut, hooks, wanted
        self.came: dict[int, Any] = {}  # slot -> its gradient, after hooks
        self.alone: dict[int, Any] = {}  # those of them that the engine knows nothing of
        self.given: list[int] = []  # slots at which the backward has been cut
        self.asked: list[int] = []  # those of them that torch.autograd.grad asks for
        self._asked = asked
        self._surrounded = [(slot, known) for slot, known in hooks.items() if slot != cut.order[0]]
        for slot, known in self._surrounded:
            known.surround(partial(self._before, slot), partial(self._after, slot))
        gradient_hooks.at_end_of_backward(self.end)

    def end(self) -> None:
        """Leave the user's hooks as they were, and hold on to no gradient."""
        for _, known in self._surrounded:
            known.alone()
        self.came, self.alone = {}, {}

    def _before(self, slot: int, gradient: Any) -> Any:
        """The whole gradient in place of what came from outside; None to leave that as it is."""
        listening = self.wanted.get(slot)
        if listening is None or all(self.came.get(other) is None for other in self.cut.through[slot]):
            return None
        node = gradient_hooks.current_node()
        whole = self.cut.part(node, self, {**self.came, slot: gradient}, slot)
        if whole is None:
            return None
        asked = listening.is_among(self._asked)
        if gradient is None and asked:
            raise Refused("gradient of a result", self.cut.names[slot])
        if asked:
            self.asked.append(slot)
        self.given.append(slot)
        if gradient is not None:
            return whole
        self.alone[slot] = _heard_alone(self.hooks[slot], listening, whole)
        return None

    def _after(self, slot: int, gradient: Any) -> None:
        self.came[slot] = self.alone.get(slot, gradient)


def _heard_alone(hooks: HooksOfAResult, listening: Listening, gradient: torch.Tensor) -> torch.Tensor:
    """See Note [No gradient from outside]."""
    for hook in hooks.users().values():
        result = hook(gradient)
        gradient = gradient if result is None else result
    tensor = listening.as_it_was()
    if tensor is not None and tensor.retains_grad:
        gradient_hooks.retain(tensor, gradient)
    return gradient
