"""What functionalization knows about a tensor after a function ran on it.

For a subclass, its parts are asked: these are the functional tensors that are written or replaced.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.multiprocessing.reductions import StorageWeakRef

from aotviz.ir import autograd_graph, wrapper_subclasses
from aotviz.ir.wrapper_subclasses import is_functional as is_functional
from aotviz.torch_private import autograd_nodes, functional_tensors
from aotviz.torch_private.dispatch import without_modes
from aotviz.torch_private.fake_tensors import FakeTensor
from aotviz.torch_private.functional_tensors import FunctionalTensor, FunctionalTensorMode
from aotviz.torch_private.operators import version
from aotviz.torch_private.tensors import base_of, set_write_counts, storage_key, write_count


def inner(tensor: torch.Tensor) -> torch.Tensor:
    """The fake tensor that holds the current value, all pending writes applied. For a subclass, one with such parts."""
    if isinstance(tensor, FunctionalTensor):
        return functional_tensors.applied(tensor)
    return wrapper_subclasses.mapped(tensor, inner) if wrapper_subclasses.is_subclass(tensor) else tensor


def stand_in(value: Any, empty: bool = False) -> Any:
    """An untraced fake with the same shape and strides, or an empty one. Unwrapping the functional tensor instead would
    apply its pending writes outside the trace and lose them."""
    if not isinstance(value, FunctionalTensor):
        return value
    with functional_tensors.held(value).fake_mode:
        if empty:
            return torch.empty(0, dtype=value.dtype, device=value.device)
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def wrapped(value: Any) -> Any:
    """A functional tensor around a fake one. For a subclass, one with functional parts. Other values are returned
    unchanged."""
    if not wrapper_subclasses.is_subclass(value):
        return FunctionalTensor.to_functional(value) if isinstance(value, torch.Tensor) else value
    return wrapper_subclasses.like_in_autograd(value, wrapper_subclasses.mapped(value, wrapped))


def storage(tensor: torch.Tensor) -> StorageWeakRef:
    """A key that tensors share if and only if they share memory."""
    return StorageWeakRef(tensor.untyped_storage())


def _elements(tensor: torch.Tensor) -> list[torch.Tensor]:
    return [part.elem for part in wrapper_subclasses.parts(tensor) if isinstance(part, FunctionalTensor)]


def data_mutated(tensor: torch.Tensor) -> bool:
    return any(map(functional_tensors.has_data_mutation, _elements(tensor)))


def metadata_mutated(tensor: torch.Tensor) -> bool:
    return any(map(functional_tensors.has_metadata_mutation, _elements(tensor)))


def make_room(tensor: torch.Tensor, size: Sequence[int]) -> None:
    """Called before `resize_` enlarges a functional tensor. Without this, its storage would become a "meta" storage, of
    which no view can be taken. Nothing else shares it: functionalization refuses to resize a tensor that has views."""
    count = math.prod(size)
    if isinstance(tensor, FunctionalTensor) and count > tensor.numel():
        with without_modes():
            functional_tensors.place_in(tensor, count + int(tensor.storage_offset()))


def storage_replaced(tensor: torch.Tensor) -> bool:
    """Whether `set_` gave a tensor another storage."""
    return any(map(functional_tensors.was_storage_changed, _elements(tensor)))


def held(tensor: torch.Tensor) -> torch.Tensor:
    """The fake tensor of a functional one; writes may be pending."""
    return functional_tensors.held(tensor) if isinstance(tensor, FunctionalTensor) else tensor


def hidden_from_autograd(tensor: torch.Tensor) -> bool:
    """Whether all writes, if any, went through `.data` or a detached alias."""
    return all(map(functional_tensors.hidden_from_autograd, _elements(tensor)))


def under_no_grad(tensor: torch.Tensor) -> bool:
    return all(map(functional_tensors.under_no_grad, _elements(tensor)))


def grad_fn(tensor: torch.Tensor) -> Any:
    """Its `grad_fn`, None for a stale view. Reading it may regenerate it, which needs the functional mode."""
    with FunctionalTensorMode():
        return autograd_graph.grad_fn(tensor)


def is_stale(tensor: torch.Tensor) -> bool:
    """As `autograd_graph.is_stale`."""
    with FunctionalTensorMode():
        return autograd_graph.is_stale(tensor)


@dataclass
class Before:
    """The state of an input when the call began."""

    version: int
    edge: GradientEdge | None
    part_versions: tuple[int, ...] = ()  # of a subclass: one per part

    @classmethod
    def of(cls, argument: Any) -> Before:
        if not isinstance(argument, torch.Tensor):
            return cls(0, None)
        return cls(version(argument), edge(argument), tuple(map(version, wrapper_subclasses.parts(argument))))


def edge(argument: Any) -> GradientEdge | None:
    """The gradient edge of a value that requires grad, or None."""
    if not isinstance(argument, torch.Tensor) or not argument.requires_grad:
        return None
    if argument.is_leaf and argument.is_inference():  # autograd ignores it, so it has no edge
        return None
    return get_gradient_edge(argument)


def is_view_with_history(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a view, requires grad, and is not a leaf. If its base does not require grad, a write that
    autograd does not see makes autograd replace its `grad_fn` by that of the base, which is None. A view of the leaf
    `torch.arange(6.).reshape(2, 3).requires_grad_()` is such a case, because that leaf is itself a view."""
    return base_of(tensor) is not None and tensor.requires_grad and not tensor.is_leaf


def has_another_history(argument: Any, was: GradientEdge | None) -> bool:
    """Whether an argument has a gradient edge that differs from `was`, the one before the call."""
    now = edge(argument)
    return now is not None and (was is None or tuple(now)[:2] != tuple(was)[:2])


def shares_counter(alias: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Whether a write to `alias` bumps the version counter of `tensor`: true of `.detach()`, false of `.data`."""
    if alias.is_inference() or tensor.is_inference():
        return True  # inference tensors have no version counter; the caller's aliases are like `.detach()`
    count = write_count(alias)
    before = write_count(tensor)
    torch.autograd.graph.increment_version(alias)
    shared = write_count(tensor) != before
    set_write_counts((alias,), (count,))
    return shared


def counters(values: Sequence[Any]) -> tuple[int, ...]:
    """For each value, the position of the first value that shares its version counter: views and `.detach()` do.

    Only tensors over one storage are compared. Fakes over one storage are assumed to share a counter.

    >>> a = torch.ones(2)
    >>> counters([a, a.detach(), a.data, 3.0])
    (0, 0, 2, 3)
    """
    seen: dict[Any, list[int]] = {}
    found = []
    for index, value in enumerate(values):
        known = index
        if has_storage(value):
            others = seen.setdefault(storage_key(value), [])
            known = next((i for i in others if _count_together(value, values[i])), index)
            if known == index:
                others.append(index)
        found.append(known)
    return tuple(found)


def _count_together(one: torch.Tensor, other: torch.Tensor) -> bool:
    if isinstance(one, FakeTensor) or one is other or (base_of(one) is not None and base_of(one) is base_of(other)):
        return True
    return base_of(one) is other or base_of(other) is one or shares_counter(one, other)


def point_to(tensor: torch.Tensor, value: Any) -> None:
    """`tensor.data = value`, in a way that functionalization sees. It does not bump the version counter."""
    count = None if tensor.is_inference() else write_count(tensor)
    with torch.no_grad():
        tensor.set_(value.detach())
    if count is not None:
        set_write_counts((tensor,), (count,))


def is_copy_slices(node: Any) -> bool:
    """Whether an autograd node is that of a tensor of which a view was written."""
    return node is not None and node.name().endswith("CopySlices")


def saved_tensors_of(node: Any) -> Iterator[torch.Tensor]:
    """What an autograd node saved, except tensors that were written or freed since, or were packed by the
    user's hooks."""
    for held, name in autograd_nodes.saved(node, autograd_graph.from_custom_function(node)):
        try:
            if any(getattr(one, "unpack_hook", one) is not None for one in _each(held())):
                continue  # packed, or this release does not tell
            saved = getattr(node, name)
        except RuntimeError:
            continue
        yield from filter(torch.is_tensor, _each(saved))


def _each(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def is_plain(value: Any) -> bool:
    """Whether it is a functional tensor and no subclass around some."""
    return is_functional(value) and not wrapper_subclasses.is_subclass(value)


def has_storage(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether a value is a plain strided tensor."""
    strided = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return strided and not wrapper_subclasses.is_subclass(value)


def nodes_below(output: Any) -> set[Any]:
    """The autograd nodes that a gradient of `output` (a functional tensor) reaches after its `grad_fn`."""
    first = grad_fn(output)
    return set(autograd_graph.nodes_behind([first])) - {first}


def increment_version(tensors: Sequence[torch.Tensor]) -> None:
    """Bump the version counter of each tensor. Inference tensors have none."""
    torch.autograd.graph.increment_version([t for t in tensors if not t.is_inference()])
