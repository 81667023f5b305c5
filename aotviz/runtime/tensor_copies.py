"""Copies of tensors that are related to each other as the originals are.

Tensors over one storage share one in the copy, views are views of the copied base, leaves stay leaves, and a tensor
with a `grad_fn` gets a new one: it is computed from a new leaf.
"""

from __future__ import annotations

from typing import Any

import torch

from aotviz.ir.storages import capacity, dense, reinterpreted
from aotviz.ir.wrapper_subclasses import is_subclass
from aotviz.torch_private import tensors


def copies(originals: list[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(tensor, copy) for each of `originals` and for their bases.

    >>> x = torch.zeros(4)
    >>> found = {id(a): b for a, b in copies([x[:2], x[1:], x])}
    >>> found[id(x)].fill_(1); [len(b) for b in found.values()]
    tensor([1., 1., 1., 1.])
    [4, 2, 3]
    """
    done: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    storages: dict[Any, torch.UntypedStorage] = {}
    bases = [base for base in map(tensors.base_of, originals) if base is not None]
    roots = [t for t in (*bases, *originals) if tensors.base_of(t) is None]
    for tensor in sorted(roots, key=lambda t: t.grad_fn is None):  # computed tensors create the shared storages
        if id(tensor) not in done:
            done[id(tensor)] = tensor, _root(tensor, storages)
    for tensor in originals:
        base = tensors.base_of(tensor)
        if id(tensor) not in done and base is not None:
            done[id(tensor)] = tensor, _view(tensor, done[id(base)][1])
    for original, copied in done.values():
        if original.is_leaf and original.grad is not None:
            copied.grad = original.grad.detach().clone()
    return list(done.values())


def _root(tensor: torch.Tensor, storages: dict[Any, torch.UntypedStorage]) -> torch.Tensor:
    if tensor.layout is not torch.strided or is_subclass(tensor) or tensor.device.type == "meta":
        made = tensor.detach().clone()
        return made.requires_grad_(tensor.requires_grad) if tensor.is_leaf else made.requires_grad_().clone()
    key = tensors.storage_key(tensor)
    if tensor.grad_fn is not None and key not in storages:
        if dense(tensor):
            grown = _over(tensor, tensor.untyped_storage().clone()).requires_grad_().clone()
        else:  # a clone would close the gaps, so the whole storage is cloned
            flat = tensor.detach().as_strided((capacity(tensor),), (1,), 0).clone().requires_grad_()
            grown = flat.clone().as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        storages[key] = grown.untyped_storage()
        return grown
    if key not in storages:
        storages[key] = tensor.untyped_storage().clone()
    made = _over(tensor, storages[key])
    if isinstance(tensor, torch.nn.Parameter):
        made = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
        made.__dict__.update(tensor.__dict__)
        return made
    return made.requires_grad_(tensor.requires_grad)


def _over(tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    """A tensor in `storage` with the layout that `tensor` has in its own."""
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    size = storage.nbytes()
    made.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    if storage.nbytes() != size:
        storage.resize_(size)  # the original's memory was freed, so free the copy's too
    return tensors.with_bits(made, tensor)


def _view(tensor: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    tracked = tensor.grad_fn is not None
    with torch.set_grad_enabled(tracked or not base.requires_grad):
        whole = base if base.dtype == tensor.dtype else reinterpreted(base, tensor.dtype)
        made = whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        made = tensors.with_bits(made, tensor)
    return made.requires_grad_() if tensor.requires_grad and not made.requires_grad else made
