"""Fresh copies of a call's inputs, so that each of several runs starts from the same state.

Copies share memory in the same way as the originals (`runtime/tensor_copies.py`). Modules are copied with their
parameters and buffers, and functions with the tensors and modules that they refer to.
"""

from __future__ import annotations

import copy
import functools
import inspect
import types
from collections.abc import Mapping
from typing import Any

import torch

from aotviz.runtime.tensor_copies import copies
from aotviz.torch_private import pytree
from aotviz.tracing.outside import modules, references


def fresh(
    fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any], dict[str, torch.Tensor]]:
    """(fn, args, kwargs) as copies, and the copied parameters, buffers and captured tensors of `fn` by name.

    Raises:
        TypeError: an argument, or something that `fn` refers to, cannot be copied.
    """
    holders = _modules(fn)
    held = {
        (f"{path}.{name}" if path else name): tensor
        for path, module in holders.items()
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }
    held.update((name, value) for name, value in references(fn) if isinstance(value, torch.Tensor))
    leaves = [leaf for leaf in pytree.tree_flatten((args, dict(kwargs)))[0] if isinstance(leaf, torch.Tensor)]
    memo: dict[int, Any] = {}
    for original, copied in copies([*held.values(), *leaves]):
        memo[id(original)] = copied
    try:
        new_args, new_kwargs = copy.deepcopy((args, dict(kwargs)), memo)
        new_fn = _function(fn, memo)
    except Exception as error:
        raise TypeError(
            f"{getattr(fn, '__name__', type(fn).__name__)} cannot be run on copies, because one of its "
            f"arguments or something in its closure cannot be copied: {error}"
        ) from error
    return new_fn, new_args, new_kwargs, {name: memo[id(tensor)] for name, tensor in held.items()}


def _modules(fn: Any) -> dict[str, torch.nn.Module]:
    if isinstance(fn, torch.nn.Module):
        return {"": fn}
    return modules(fn)


def _function(fn: Any, memo: dict[int, Any]) -> Any:
    """A copy of `fn` that refers to copies. `copy.deepcopy` would return the function itself."""
    if isinstance(fn, functools.partial):
        return functools.partial(
            _function(fn.func, memo), *copy.deepcopy(fn.args, memo), **copy.deepcopy(fn.keywords, memo)
        )
    if inspect.ismethod(fn):
        return types.MethodType(fn.__func__, copy.deepcopy(fn.__self__, memo))
    if not isinstance(fn, types.FunctionType):
        return copy.deepcopy(fn, memo)
    names = {name for name, value in references(fn) if isinstance(value, (torch.nn.Module, torch.Tensor))}
    if not names:
        return fn
    cells = []
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        cells.append(types.CellType(copy.deepcopy(cell.cell_contents, memo)) if name in names else cell)
    scope = {**fn.__globals__, **{n: copy.deepcopy(fn.__globals__[n], memo) for n in names if n in fn.__globals__}}
    made = types.FunctionType(fn.__code__, scope, fn.__name__, fn.__defaults__, tuple(cells))
    made.__kwdefaults__ = fn.__kwdefaults__
    return made
