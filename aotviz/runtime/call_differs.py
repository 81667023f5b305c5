"""Errors that the generated wrapper raises for a call that it was not compiled for.

A program may be valid only for calls whose arguments alias each other as they did when it was traced. The wrapper
checks this before it runs anything, so the caller can still run the original function, or compile again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch

from aotviz.ir import graphs
from aotviz.ir.forms import Emitter, SavedTensor, Slot, Split
from aotviz.ir.refusals import Refused
from aotviz.runtime.gradient_hooks import Listening, asked_for, listens
from aotviz.torch_private import autograd_nodes
from aotviz.torch_private.runtime import is_captured
from aotviz.torch_private.tensors import set_write_counts, write_count

WRITTEN = "modified by an inplace operation"  # in autograd's error


class CallDiffers(RuntimeError):
    """This call needs another program. Nothing has run yet."""


class InsideTransform(CallDiffers):
    """This call is inside a torch.func transform or forward-mode differentiation."""


def refuse_transforms(name: str) -> None:
    raise InsideTransform(
        f"{name} is compiled and is called inside a transform (vmap, grad, jvp, forward-mode "
        "differentiation), which cannot transform a compiled graph. Apply the transform to the original "
        "function and compile the result."
    )


def refuse(message: str) -> None:
    raise CallDiffers(message)


def check(emit: Emitter, differs: str, message: str, fact: str, subject: str) -> None:
    """Write the line that refuses a call if `differs`, an expression, holds. `message` says what has changed."""
    name = emit.bind("refuse", refuse)
    emit.line(f"if {differs}: {name}({f'{message} Compile again for this call.'!r})", fact, subject)


def check_same(
    emit: Emitter,
    names: Sequence[str],
    variables: Sequence[str],
    position: int,
    first: int,
    through_others: bool = False,
) -> None:
    """Write the line that refuses a call that does not pass the same tensor in these two places. `through_others`: it
    need not be mutated itself, but an input that shares its memory."""
    name = names[position]
    written = "its memory is written" if through_others else "one of them is mutated"
    message = (
        f"{name!r} and {names[first]!r} were the same tensor when this was compiled, and {written}; now they differ."
    )
    how = ", and its memory is written" if through_others else " and mutated"
    fact = f"the same tensor is passed twice{how}; this call must do the same"
    check(emit, f"{variables[position]} is not {variables[first]}", message, fact, name)


def refuse_hooks(
    heard: Sequence[Listening], passed: Sequence[tuple[int, str, Sequence[int], str]], gradients: Sequence[Any]
) -> None:
    """Refuse hooks on a result, or `torch.autograd.grad` of one, that would miss gradients which eager includes.

    `passed` has, for each such tensor: its position in `heard`, its name, the results whose gradients flow through it,
    and why the backward is not cut there.
    """
    asked = asked_for()
    for position, name, slots, why in passed:
        one = heard[position]
        hears = one.hears()
        if (hears or asked) and any(gradients[slot] is not None for slot in slots):
            if hears:
                raise Refused("hook on a result", name, why)
            if one.is_among(asked):
                raise Refused("gradient of a result", name)


def watch(node: Any, inputs: Sequence[tuple[Any, str]]) -> None:
    """Store on the node of a call the versions of inputs, with their names, as the call leaves them."""
    if node is not None:
        node.watched = [(ref(value), write_count(value), name) for value, name in inputs]


def refuse_written(watched: Sequence[tuple[Any, int, str]], call: str) -> None:
    """Refuse a backward if one of these inputs was written after the call."""
    for reference, version, name in watched:
        value = reference()
        if value is not None and write_count(value) != version:
            raise Refused("written before the backward", name, call)


def refuse_late_writes(ctx: Any, names: str) -> None:
    """Refuse a backward that writes these inputs, if it is to be differentiated or if only some gradients are asked
    for: in eager, what writes them may not run then."""
    nodes = [node for node, _ in ctx.next_functions if node is not None]
    if torch.is_grad_enabled() or not all(is_captured(node) or autograd_nodes.will_execute(node) for node in nodes):
        raise Refused("written by a backward", names)


def count_writes(tensors: Sequence[torch.Tensor], before: Sequence[int], writes: Sequence[int]) -> None:
    """Set the version counters of tensors to those before, plus the writes. Compiled code may not have counted its own
    write."""
    versions = tuple(version + count for version, count in zip(before, writes, strict=True))
    set_write_counts(tuple(tensors), versions)


@dataclass(frozen=True)
class WrittenSince:
    """Finds which tensor that a backward reads was written after the call. `error` is autograd's."""

    call: str
    subjects: tuple[str, ...]  # the user's names of the saved tensors

    @classmethod
    def of(cls, call: Split) -> WrittenSince:
        returned = graphs.outputs(call.forward_module.graph)[: len(call.slots)]
        slots = {graphs.owner(node): slot for slot, node in zip(call.slots, returned, strict=True)}
        nodes = {node.name: node for node in call.forward_module.graph.nodes}
        saved = call.saved[: call.saved_tensor_count]
        return cls(call.name, tuple(_subject(one, slots.get(graphs.owner(nodes.get(one.name)))) for one in saved))

    def __call__(self, ctx: Any, error: RuntimeError) -> RuntimeError:
        if WRITTEN not in str(error):
            return error
        saved = enumerate(autograd_nodes.saved_with_hooks(ctx))
        position = next((place for place, one in saved if _is_written(one, str(error))), None)
        return error if position is None else self.at(position)

    def others(self, ctx: Any, error: RuntimeError) -> list[Any]:
        """The saved tensors, with None for those that may have been written after the call. Raises if they can't be had
        one by one."""
        if WRITTEN not in str(error):
            raise error
        packed = autograd_nodes.saved_with_hooks(ctx)
        if not all(hasattr(saved, "unpack") for saved in packed):  # older releases
            raise self(ctx, error) from None
        return list(map(_unwritten, packed))

    def at(self, position: int) -> Refused:
        """The refusal if it is the saved tensor at this position."""
        known = position < len(self.subjects)  # the subclasses that they are parts of follow after them
        return Refused("written before the backward", self.subjects[position] if known else "an input", self.call)


def _subject(saved: SavedTensor, slot: Slot | None) -> str:
    """The user's name of a saved tensor."""
    if slot is not None:
        return str(slot.descriptor)
    lines = [line.strip() for line in saved.stack.splitlines() if line.strip(" ^~")]  # no lines that underline others
    return f"the result of `{lines[-1]}`" if lines and not saved.is_view else saved.producer


def refuse_reshaped(ctx: Any, leaves: Sequence[tuple[int, str]]) -> None:
    """Refuse `torch.autograd.grad` of a leaf that the call reshapes in place.

    `leaves` are (position among the tensors that are passed, name).
    """
    for position, name in leaves:
        if is_captured(ctx.next_functions[position][0]):
            raise Refused("gradient of a leaf that is reshaped", name)


def refuse_hooked(tensor: torch.Tensor, name: str) -> None:
    """Refuse the call if the gradient of this argument, for which the function asks, would go through a hook."""
    if listens(tensor):
        raise Refused("argument with a hook", name)


def refuse_hooked_alias(names: str) -> None:
    raise Refused("hook on an alias", names)


def refuse_deterministic(name: str) -> None:
    raise RuntimeError(
        f"{name} was compiled while torch.use_deterministic_algorithms was off, but its backward runs while "
        "it is on. Turn it on before the call, so that the call is compiled with deterministic algorithms."
    )


def refuse_inference(name: str) -> None:
    """Raise what eager raises."""
    raise RuntimeError(
        f"Inplace update to inference tensor outside InferenceMode is not allowed: {name!r}. Make a clone to get a "
        "normal tensor before updating it in place."
    )


def _unwritten(saved: Any) -> Any:
    """A saved tensor; None if it may have been written since."""
    try:
        return saved.unpack()
    except RuntimeError as error:
        if WRITTEN in str(error):
            return None
    return saved.data if write_count(saved.data) == 0 else None  # the node's own result: nothing else unpacks it


def _is_written(saved: Any, error: str) -> bool:
    if not hasattr(saved, "unpack"):  # older releases: the message has the tensor's type, sizes and version
        tensor = saved.data
        version = f"is at version {write_count(tensor)};"
        return f"[{tensor.type()} {list(tensor.shape)}]" in error and version in error
    return _unwritten(saved) is None
