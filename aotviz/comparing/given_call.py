"""The call that `verify` and `bisect` compare. It runs several times, first in eager, each time on fresh copies.

Copies share memory in the same way as the originals (`runtime/tensor_copies.py`). Modules are copied with their
parameters and buffers, and functions with the tensors and modules that they refer to.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
import types
from collections.abc import Mapping
from typing import Any

import torch

from aotviz.comparing.judging import Expectation, expect, judge
from aotviz.comparing.observed import Candidate, EagerRaised, Setup, Trial
from aotviz.python_state.free_variables import modules, references
from aotviz.runtime.tensor_copies import copies
from aotviz.torch_private import dynamo, pytree

_PLACE = re.compile(r'File "([^"]+)", line (\d+)')


def in_eager(fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, Trial, Expectation]:
    """The name of `fn`, its call as a program, and eager's results. Raises RuntimeError if eager fails, and TypeError
    for what `torch.compile` returned."""
    if dynamo.is_compiled(fn):
        raise TypeError("this is compiled already: pass the function or module that `torch.compile` was given")
    name = str(getattr(fn, "__name__", type(fn).__name__))
    program = trial_of(fn, args, kwargs)
    try:
        expected = expect(program, brief=True)
    except EagerRaised as error:
        raise RuntimeError(f"{name} fails in eager, so there is nothing to compare with: {error}") from error
    return name, program, expected


def refuse_unsteady(name: str, program: Trial, expected: Expectation) -> None:
    """Raise RuntimeError for a call that returns different results each time, e.g. because of a counter."""
    again = judge(program, Candidate("eager", lambda fn, _: fn), expected)
    if again.status == "wrong":
        first = next(d for d in again.differences if not d.soft)
        raise RuntimeError(
            f"{name} returns different results each time in eager, so there is nothing to compare with: {first}"
        )


def trial_of(fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Trial:
    """A call as a program that can be run many times, each time on fresh copies."""

    def build() -> Setup:
        new_fn, new_args, new_kwargs, held = fresh(fn, args, kwargs)
        return Setup(new_fn, new_args, new_kwargs, watch=held)

    return Trial(str(getattr(fn, "__name__", type(fn).__name__)), (build,), "")


def place(stack: str) -> str:
    """The innermost line of a stack, e.g. "model.py:12", or ""."""
    found = _PLACE.findall(stack)
    return f"{found[-1][0]}:{found[-1][1]}" if found else ""


def fresh(
    fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any], dict[str, torch.Tensor]]:
    """(fn, args, kwargs) as copies, and the copied parameters, buffers and captured tensors of `fn` by name.

    Raises:
        TypeError: an argument, or something that `fn` refers to, cannot be copied.
    """
    holders = {"": fn} if isinstance(fn, torch.nn.Module) else modules(fn)
    held = {
        (f"{path}.{name}" if path else name): tensor
        for path, module in holders.items()
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }
    held.update((name, value) for name, value in references(fn) if isinstance(value, torch.Tensor))
    leaves = [leaf for leaf in pytree.tree_flatten((args, dict(kwargs)))[0] if isinstance(leaf, torch.Tensor)]
    memo: dict[int, Any] = {id(original): copied for original, copied in copies([*held.values(), *leaves])}
    try:
        new_args, new_kwargs = copy.deepcopy((args, dict(kwargs)), memo)
        new_fn = _function(fn, memo)
    except Exception as error:
        raise TypeError(
            f"{getattr(fn, '__name__', type(fn).__name__)} cannot be run on copies, because one of its "
            f"arguments or something in its closure cannot be copied: {error}"
        ) from error
    return new_fn, new_args, new_kwargs, {name: memo[id(tensor)] for name, tensor in held.items()}


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
