"""Modules and tensors that a function refers to without taking them as arguments.

A module's parameters and buffers become inputs of the program, whether the module is what is compiled, or is named
in the function's closure or globals, or is the object that a method is bound to. Bare tensors, and modules that lie
in containers and objects, are found when a trace meets them (`reached.py`).
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.nn.parameter import UninitializedTensorMixin

from aotviz import reached
from aotviz.ir.forms import Request
from aotviz.ir.refusals import Refused
from aotviz.torch_private import functional, seeding
from aotviz.torch_private.attributes import Attributes, hooks_of
from aotviz.tracing import arguments, randomness

_PARALLEL = ("torch.nn.parallel.distributed", "torch.nn.parallel.data_parallel", "torch.distributed.fsdp")


class Captured(torch.nn.Module):
    """Holds the modules that a function refers to, under the names by which it does."""

    def __init__(self, modules: dict[str, torch.nn.Module]) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


def root_of(fn: Any) -> torch.nn.Module | None:
    """The module whose tensors are lifted for `fn`: itself, or a holder of those that it refers to."""
    if isinstance(fn, torch.nn.Module):
        return fn
    modules: dict[str, torch.nn.Module] = {}
    for name, value in references(fn):
        if isinstance(value, torch.nn.Module) and name not in modules:
            modules[name] = value
    return Captured(modules) if modules else None


def refuse_modules(root: torch.nn.Module) -> None:
    """Raise for a module whose tensors do not exist yet, or that does in Python what each call needs."""
    for path, module in root.named_modules():
        kind, name = type(module).__name__, path or "the module"
        if any(base.__module__.startswith(_PARALLEL) for base in type(module).__mro__):
            raise NotImplementedError(
                f"{name} is a {kind}, which prepares its processes in Python before each call, and a compiled call "
                f"would not: wrap the compiled module instead, {kind}(aotviz.compile(module)), or use "
                'torch.compile(module, backend="aotviz")'
            )
        for tensor_name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            if isinstance(tensor, UninitializedTensorMixin):
                raise NotImplementedError(
                    f"{tensor_name!r} of {name} ({kind}) has no shape until the first call: call the module once "
                    "before it is compiled"
                )


def references(fn: Any) -> Iterator[tuple[str, Any]]:
    """(name, value) of what a function refers to from outside: bound object or arguments, closure cells, globals."""
    if isinstance(fn, functools.partial):
        yield from ((f"args[{position}]", value) for position, value in enumerate(fn.args))
        yield from fn.keywords.items()
        yield from references(fn.func)
        return
    if isinstance(fn, torch.nn.Module):
        return
    if inspect.ismethod(fn):
        yield "self", fn.__self__
        fn = fn.__func__
    fn = inspect.unwrap(fn) if callable(fn) else fn
    code = getattr(fn, "__code__", None)
    if code is None:
        return
    for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # a variable that is assigned later
    used = (step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "STORE_GLOBAL"))
    for name in dict.fromkeys(used):  # not `co_names`, which holds the names of attributes too
        if name in fn.__globals__:
            yield name, fn.__globals__[name]


def outside(fn: Any) -> tuple[tuple[str, Any], ...]:
    """`references` of a function, or of what a module does when it is called."""
    return tuple(references(getattr(fn, "forward", fn)))


@contextlib.contextmanager
def names_kept(request: Request) -> Iterator[None]:
    """Refuse a function that assigns a tensor to a global or nonlocal variable, and give that its value back; and a
    module's hook that puts one into what it refers to, in the forward or in the backward.

    Raises:
        Refused: "argument is changed".
    """
    known = dict(request.references)
    try:
        with arguments.without_tensors(_in_reach_of_hooks(request), request.name):
            yield
    finally:
        assigned = [key for key, now in outside(request.fn) if functional.is_functional(now)]
        for key in assigned:
            _assign(getattr(request.fn, "forward", request.fn), key, known)
    if assigned:
        raise Refused("argument is changed", repr(assigned[0]), request.name)


def _in_reach_of_hooks(request: Request) -> Iterator[tuple[str, Any]]:
    """(name, value) of what modules' hooks, functions written in the function, and its autograd functions refer to."""
    for module in request.root.modules() if request.root is not None else ():
        for hook in (hook for hooks in hooks_of(module) for hook in hooks.values()):
            yield from references(hook)
    for name, value in request.references:
        yield name, value
        if inspect.isclass(value) and torch.autograd.Function in value.__mro__:
            custom: Any = value
            yield from references(custom.backward)
    fn = getattr(request.fn, "forward", request.fn)
    fn = inspect.unwrap(getattr(fn, "__func__", fn))
    for step in reached.steps(fn.__code__) if inspect.isfunction(fn) else ():
        if step.opname == "LOAD_GLOBAL" and step.argval in fn.__globals__:
            yield step.argval, fn.__globals__[step.argval]


def _assign(fn: Any, key: str, known: Mapping[str, Any]) -> None:
    """Give a variable outside of a function the value that it had."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(getattr(fn, "__func__", fn))
    if key in fn.__code__.co_freevars:
        cell = fn.__closure__[fn.__code__.co_freevars.index(key)]
        if key in known:
            cell.cell_contents = known[key]
        else:
            del cell.cell_contents
    elif key in known:
        fn.__globals__[key] = known[key]
    else:
        del fn.__globals__[key]


@contextlib.contextmanager
def draws_kept(request: Request) -> Iterator[None]:
    """Refuse a function that draws from a random generator that it makes, or that seeds one that it reaches: in a graph
    it would be one and the same at every call, and draw on. Refuse an iterator as an argument too, which would stay
    where it is.

    Raises:
        Refused: "random state inside", "argument is changed".
    """
    for name, value in request.arguments().items():
        if isinstance(value, Iterator):
            raise Refused("argument is changed", f"the iterator {name!r}", request.name)
    known = {place.path: place.value() for place in reached.generators(request.fn, request.arguments())}
    own = [(path, value) for path, value in known.items() if value is not torch.default_generator]  # see `followed`
    with seeding.states_kept(own, randomness.refuse), seeding.met() as met:
        yield
    if met.keys() - set(map(seeding.identity, (torch.default_generator, *known.values()))):
        randomness.refuse("torch.Generator(), or finds one that no name of its own leads to")


@contextlib.contextmanager
def attributes_kept(root: torch.nn.Module | None, name: str) -> Iterator[None]:
    """See what tracing assigns to attributes of modules, which a compiled call will not do again.

    Raises:
        NotImplementedError: a tensor is assigned; somebody would read it later.
    """
    if root is None:
        yield
        return
    held = Attributes(root, "" if isinstance(root, Captured) else "self")
    try:
        yield
    finally:
        changes = held.changes()
        assigned = [change.path for change in changes if change.is_tensor]
        if assigned or held.mirrors:
            held.restore()
    if assigned:
        raise NotImplementedError(
            f"{name} assigns a tensor to {' and '.join(assigned)} while it runs, which a compiled call would not do. "
            "Return it, or register a buffer and write into that (self.state.copy_(...))"
        )
    for change in changes:
        warnings.warn(
            f"{name} changes {change.path} from {change.before!r} to {change.now!r} while it runs; a compiled call "
            "does so only when it is compiled, and not in later calls",
            stacklevel=6,
        )
