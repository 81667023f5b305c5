"""What a captured backward calls when it is replayed: hooks and accumulation, as autograd's engine does them.

Each is written to do what the engine does around the user's Python, errors included (torch/csrc/autograd/engine.cpp,
python_hook.cpp and accumulate_grad.h tell what that is).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotviz.ir.forms import Tangent
from aotviz.runtime.tangents import in_layout
from aotviz.torch_private import autograd_nodes as torchs
from aotviz.torch_private import backward_capture
from aotviz.torch_private.tensors import is_held_once, without_base

Hook = Callable[..., Any]
item = operator.getitem


def add(old: Any, new: Any) -> Any:
    """Two gradients of one tensor; each may be None. A sparse one is added to a dense one, whichever was first."""
    if old is None or new is None:
        return new if old is None else old
    if old.layout is not torch.strided and new.layout is torch.strided:
        old, new = new, old
    return old + new


def is_plain(gradient: Any) -> bool:
    """Whether it is a tensor like those that operators make: of no subclass, and strided."""
    return type(gradient) is torch.Tensor and gradient.layout is torch.strided


def accumulate_grad(variable: torch.Tensor, gradient: Any, has_post_hooks: bool = False, is_own: bool = False) -> Any:
    """Set or add to `variable.grad`, as an AccumulateGrad node does; None if no gradient comes in.

    `.grad` is read only now, since Python that ran before may have changed it. `is_own` is whether no other step reads
    `gradient`, which comes from a graph: it then becomes `variable.grad` itself, if it has the layout that autograd
    gives to gradients. Otherwise torch's own function copies it.
    """
    if gradient is None:
        return None
    old = variable.grad
    if (
        old is None
        and is_own
        and is_plain(gradient)
        and gradient.stride() == variable.stride()
        and is_held_once(gradient)
    ):
        variable.grad = without_base(gradient)
        return variable.grad
    (updated,) = backward_capture.bound_functions.get("AccumulateGrad")([gradient], variable, old, has_post_hooks)
    variable.grad = updated
    return updated


def gradient_of(variable: torch.Tensor) -> Any:
    """`.grad` of a leaf, right before the part that adds to it."""
    return variable.grad


def add_to_gradient(old: torch.Tensor, gradient: Any) -> torch.Tensor:
    """Add to a plain `variable.grad`, as an AccumulateGrad node does."""
    return old if gradient is None else old.add_(gradient)


def call_backward(node: Any, saved: Sequence[Any], is_tensor: Sequence[bool], *gradients: Any) -> tuple[Any, ...]:
    """The backward of a custom autograd.Function, with the tensors that the node saved.

    Args:
        is_tensor: for each input of the forward.

    Raises:
        RuntimeError: it did not return one gradient, or None, for each input; in autograd's words.
    """
    function: Any = torchs.function_of(node)
    given = [list(gradients)] if getattr(function, "boxed_grads_call", False) else gradients
    found = function.backward(torchs.Context(node, saved), *given)
    found = found if isinstance(found, tuple) else (found,)
    count, name = len(is_tensor), type(node).__name__
    if len(found) > count and all(one is None for one in found[count:]):
        found = found[:count]
    if len(found) != count:
        told = f"(expected {count}, got {len(found)})"
        raise RuntimeError(f"function {name} returned an incorrect number of gradients {told}")
    for position, (one, takes) in enumerate(zip(found, is_tensor, strict=True), 1):
        if one is not None and not takes:
            why = "but the corresponding forward input was not a Variable"
            raise RuntimeError(f"function {name} returned a gradient different than None at position {position}, {why}")
        if one is not None and not isinstance(one, torch.Tensor):
            raise RuntimeError(f"expected Variable or None (got {type(one).__name__})")
    takers = torchs.takers(node)
    taken = [one for one, takes in zip(found, is_tensor, strict=True) if takes]
    for index, (one, taker) in enumerate(zip(taken, takers, strict=True)):
        if one is None or taker is None:
            continue
        invalid = f"Function {name} returned an invalid gradient at index {index} -"
        if one.shape != taker.shape and not _expands(taker.shape, one.shape):
            told = f"got {[*one.shape]} but expected shape compatible with {[*taker.shape]}"
            raise RuntimeError(f"{invalid} {told}")
        if one.device != taker.device and one.dim():
            raise RuntimeError(f"{invalid} expected device {taker.device} but got {one.device}")
    return found


def _expands(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Whether `expand` turns one shape into the other."""
    pairs = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(size in (1, other) for size, other in pairs)


class Computed:
    """A function that only computes, under the name that it has in the graph."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.__name__, self._function = name, function

    def __call__(self, *given: Any) -> Any:
        return self._function(*given)


def laid_out(tangent: Tangent) -> Computed:
    """(a gradient, its shape) -> the gradient in the layout that a backward was traced with; zeros if it is missing."""

    def run(gradient: Any, shape: Sequence[int]) -> Any:
        if gradient is None:
            return torch.zeros(shape, dtype=tangent.dtype, device=tangent.device)
        return in_layout(gradient, tangent)

    return Computed(run, "laid_out")


def hold(function: Callable[[Any, Sequence[Any]], None]) -> Callable[..., None]:
    """(a compiled forward's node, its saved tensors): keeps what a later backward of its other results needs."""

    def hold(node: Any, *saved: Any) -> None:
        function(node, saved)

    return hold


def unpack(hook: Hook, packed: Any) -> torch.Tensor:
    """An unpack hook of `torch.autograd.graph.saved_tensors_hooks`."""
    found = hook(packed)
    if not isinstance(found, torch.Tensor):
        raise TypeError(
            f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(found).__name__}"
        )
    return found


def tensor_pre_hook(gradients: Sequence[Any], hook: Hook) -> Sequence[Any]:
    """`Tensor.register_hook`, on the tensor of one gradient.

    Raises:
        TypeError, RuntimeError: the hook returned something else than a gradient like its own.
    """
    (gradient,) = gradients
    return (_one(hook, gradient, hook(gradient)),)


def pre_hook(gradients: Sequence[Any], hook: Hook) -> Sequence[Any]:
    """`Node.register_prehook`; errors as for `post_hook`."""
    return _all(hook, gradients, hook(tuple(gradients)))


def post_hook(results: Sequence[Any], gradients: Sequence[Any], hook: Hook) -> Sequence[Any]:
    """`Node.register_hook`.

    Raises:
        TypeError, RuntimeError: the hook returned something else than a tuple of as many gradients, each like its own.
    """
    return _all(hook, results, hook(tuple(results), tuple(gradients)))


def post_accumulate_grad_hook(hook: Hook, variable: torch.Tensor) -> torch.Tensor:
    """`Tensor.register_post_accumulate_grad_hook`. The engine calls it where no gradient came in, too.

    Raises:
        TypeError, RuntimeError: the hook returned something.
    """
    found = hook(variable)
    if found is not None:
        _one(hook, variable, found)
        raise RuntimeError("Tensor post accumulate grad hooks should return None.")
    return variable


def _all(hook: Hook, given: Sequence[Any], found: Any) -> Sequence[Any]:
    if found is None:
        return given
    if not isinstance(found, tuple):
        raise TypeError(f"expected tuple, but hook returned '{type(found).__name__}'")
    if len(found) != len(given):
        raise RuntimeError(
            f"hook '{_name(hook)}' has returned an incorrect number of values "
            f"(got {len(found)}, but expected {len(given)})"
        )
    return [new if new is None else _one(hook, old, new) for old, new in zip(given, found, strict=True)]


def _one(hook: Hook, given: Any, found: Any) -> Any:
    """What a hook returned in the place of `given`, as the engine checks it, in its words."""
    if found is None:
        return given
    if given is None:
        raise RuntimeError("can't replace a None gradient with a non-None value")
    if not isinstance(found, torch.Tensor):
        raise TypeError(f"expected Variable, but hook returned '{type(found).__name__}'")
    changed = f"hook '{_name(hook)}' has changed the"
    if found.type() != given.type():
        raise RuntimeError(f"{changed} type of value (was {given.type()} got {found.type()})")
    if found.is_cuda != given.is_cuda:
        raise RuntimeError(f"{changed} type of value")
    if found.shape != given.shape:
        raise RuntimeError(f"{changed} size of value")
    return found


def _name(hook: Hook) -> str:
    return getattr(hook, "__name__", "<unknown>")


def copy_slices_prologue(
    gradients: Sequence[Any],
    sizes: Sequence[int],
    strides: Sequence[int],
    offset: int,
    view_sizes: Sequence[int],
    view_strides: Sequence[int],
    view_offset: int,
) -> Sequence[Any]:
    """The first half of CopySlices, the node of a tensor of which a view was written: the gradient in the base's
    layout, and the part of it that was written, twice: C++ asks for the part itself, and for a copy for the node of the
    write."""
    whole = gradients[0].new_empty_strided(sizes, strides).copy_(gradients[0])
    part = whole.as_strided(view_sizes, view_strides, view_offset - offset)
    return whole, part, part.clone(memory_format=torch.contiguous_format)


def copy_slices_epilogue(
    needs_gradient: Sequence[bool], found: Sequence[Any], whole: Any, layout: Sequence[Any]
) -> Sequence[Any]:
    """The second half: the written part of the gradient becomes what the node of the write gave. `layout` is what the
    prologue was given."""
    results: list[Any] = [gradient if needed else None for gradient, needed in zip(found, needs_gradient, strict=True)]
    if needs_gradient[0]:
        _, _, offset, view_sizes, view_strides, view_offset = layout
        part = whole.new_zeros(view_sizes) if found[0] is None else found[0]
        results[0] = torch.as_strided_scatter(whole, part, view_sizes, view_strides, view_offset - offset)
    return results


CALLS_PYTHON = (call_backward, unpack, tensor_pre_hook, pre_hook, post_hook, post_accumulate_grad_hook)
IN_GRAPHS = (operator.getitem, add, copy_slices_prologue, copy_slices_epilogue)


def is_in_a_graph(target: Any) -> bool:
    """Whether a step can be part of a graph for the compiler: it calls no Python of the user's."""
    return target in IN_GRAPHS or isinstance(target, Computed)
