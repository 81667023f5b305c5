"""Fresh copies of a call's inputs, so that one call can be run many times and each run starts from the same state.

What is copied together stays together: tensors over one storage share one in the copy, views stay views of the copy of
their base, leaves stay leaves, and a tensor with a history gets a history of its own: it is computed from a leaf that
nobody holds. Modules are copied with their parameters and buffers, and functions with what they close over.
"""

from __future__ import annotations

import copy
import functools
import inspect
import types
from collections.abc import Mapping
from typing import Any

import torch

from aotviz import captured
from aotviz.torch_private import pytree, tensors


def fresh(
    fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any], dict[str, torch.Tensor]]:
    """(fn, args, kwargs) as copies, and the copied parameters, buffers and captured tensors of `fn` by name.

    Raises:
        TypeError: an argument, or something that `fn` holds, can't be copied.
    """
    modules = _modules(fn)
    held = {
        (f"{path}.{name}" if path else name): tensor
        for path, module in modules.items()
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }
    held.update((name, value) for name, value in captured.references(fn) if isinstance(value, torch.Tensor))
    leaves = [leaf for leaf in pytree.tree_flatten((args, dict(kwargs)))[0] if isinstance(leaf, torch.Tensor)]
    memo: dict[int, Any] = {}
    for original, copied in copies([*held.values(), *leaves]):
        memo[id(original)] = copied
    try:
        new_args, new_kwargs = copy.deepcopy((args, dict(kwargs)), memo)
        new_fn = _function(fn, memo)
    except Exception as error:
        raise TypeError(
            f"{getattr(fn, '__name__', type(fn).__name__)} can't be run on copies, because something that it takes or "
            f"holds can't be copied: {error}"
        ) from error
    return new_fn, new_args, new_kwargs, {name: memo[id(tensor)] for name, tensor in held.items()}


def _modules(fn: Any) -> dict[str, torch.nn.Module]:
    if isinstance(fn, torch.nn.Module):
        return {"": fn}
    return {name: value for name, value in captured.references(fn) if isinstance(value, torch.nn.Module)}


def _function(fn: Any, memo: dict[int, Any]) -> Any:
    """`fn` over copies of what it refers to. `copy.deepcopy` takes a function for a constant, so it is made anew."""
    if isinstance(fn, functools.partial):
        return functools.partial(
            _function(fn.func, memo), *copy.deepcopy(fn.args, memo), **copy.deepcopy(fn.keywords, memo)
        )
    if inspect.ismethod(fn):
        return types.MethodType(fn.__func__, copy.deepcopy(fn.__self__, memo))
    if not isinstance(fn, types.FunctionType):
        return copy.deepcopy(fn, memo)
    names = {name for name, value in captured.references(fn) if isinstance(value, (torch.nn.Module, torch.Tensor))}
    if not names:
        return fn
    cells = []
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        cells.append(types.CellType(copy.deepcopy(cell.cell_contents, memo)) if name in names else cell)
    scope = {**fn.__globals__, **{n: copy.deepcopy(fn.__globals__[n], memo) for n in names if n in fn.__globals__}}
    made = types.FunctionType(fn.__code__, scope, fn.__name__, fn.__defaults__, tuple(cells))
    made.__kwdefaults__ = fn.__kwdefaults__
    return made


def copies(originals: list[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(tensor, its copy) for each of `originals` and for the bases that they are views of.

    >>> x = torch.zeros(4)
    >>> found = {id(a): b for a, b in copies([x[:2], x[1:], x])}
    >>> found[id(x)].fill_(1); [len(b) for b in found.values()]
    tensor([1., 1., 1., 1.])
    [4, 2, 3]
    """
    done: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    storages: dict[Any, torch.UntypedStorage] = {}
    bases = [base for base in map(tensors.base, originals) if base is not None]
    roots = [t for t in (*bases, *originals) if tensors.base(t) is None]
    for tensor in sorted(roots, key=lambda t: t.grad_fn is None):  # a history makes the storage that others share
        if id(tensor) not in done:
            done[id(tensor)] = tensor, _root(tensor, storages)
    for tensor in originals:
        base = tensors.base(tensor)
        if id(tensor) not in done and base is not None:
            done[id(tensor)] = tensor, _view(tensor, done[id(base)][1])
    for original, copied in done.values():
        if original.is_leaf and original.grad is not None:
            copied.grad = original.grad.detach().clone()
    return list(done.values())


def _root(tensor: torch.Tensor, storages: dict[Any, torch.UntypedStorage]) -> torch.Tensor:
    if tensor.layout is not torch.strided or tensors.inside(tensor) or tensor.device.type == "meta":
        made = tensor.detach().clone()
        return made.requires_grad_(tensor.requires_grad) if tensor.is_leaf else made.requires_grad_().clone()
    key = tensors.storage_key(tensor)
    if tensor.grad_fn is not None and key not in storages:
        if tensors.dense(tensor):
            grown = _over(tensor, tensor.untyped_storage().clone()).requires_grad_().clone()
        else:  # a clone would close the gaps: so all of the storage is cloned, and a part of it taken
            flat = tensor.detach().as_strided((tensors.capacity(tensor),), (1,), 0).clone().requires_grad_()
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
    """A tensor that lies in `storage` as `tensor` lies in its own."""
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    size = storage.nbytes()
    made.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    if storage.nbytes() != size:
        storage.resize_(size)  # the original's memory was freed, so the copy's is
    return tensors.with_bits(made, tensor)


def _view(tensor: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    tracked = tensor.grad_fn is not None
    with torch.set_grad_enabled(tracked or not base.requires_grad):
        whole = base if base.dtype == tensor.dtype else tensors.reinterpreted(base, tensor.dtype)
        made = whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        made = tensors.with_bits(made, tensor)
    return made.requires_grad_() if tensor.requires_grad and not made.requires_grad else made
