"""The one way in: what every door to the pipeline has in common while it traces a program of the user's.

One compilation runs at a time, and knows that it does. Whatever the traced function does to Python's objects is undone
afterwards, whether the trace ends or fails: attributes, variables, containers, random generators, and the tensors of
the trace that it put anywhere else.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from aotviz.frontends.requests import Modules
from aotviz.ir.forms import Request
from aotviz.ir.refusals import Refused
from aotviz.recorder import sessions
from aotviz.torch_private import functional, seeding
from aotviz.torch_private.attributes import Attributes, hooks_of
from aotviz.tracing import containers, leaks, randomness
from aotviz.tracing.outside import outside, plain_function, reachable, references

lock = threading.RLock()  # a trace changes modes of the process and swaps a module's tensors: one at a time


@contextlib.contextmanager
def tracing(request: Request) -> Iterator[None]:
    """Around the stages that trace the program of `request`.

    Raises:
        Refused: "argument is changed", "tensor is kept", "random state inside".
    """
    roots = (request.fn, request.root, *request.args, *request.kwargs.values())
    with lock, sessions.tracing(), contextlib.ExitStack() as kept:
        kept.enter_context(leaks.undone(request.name, roots))
        kept.enter_context(_attributes_kept(request.root, request.name))
        if not request.is_graph:
            kept.enter_context(_names_kept(request))
            kept.enter_context(_draws_kept(request))
        yield


@contextlib.contextmanager
def _names_kept(request: Request) -> Iterator[None]:
    """Refuse a function that assigns a tensor to a global or nonlocal variable, and give that its value back; and a
    module's hook that puts one into what it refers to, in the forward or in the backward.

    Raises:
        Refused: "argument is changed".
    """
    known = dict(request.references)
    try:
        with containers.without_tensors(_in_reach_of_hooks(request), request.name):
            yield
    finally:
        assigned = [key for key, now in outside(request.fn) if functional.is_functional(now)]
        for key in assigned:
            _assign(getattr(request.fn, "forward", request.fn), key, known)
    if assigned:
        raise Refused("argument is changed", repr(assigned[0]), request.name)


def _in_reach_of_hooks(request: Request) -> Iterator[tuple[str, Any]]:
    """(name, value) of what modules' hooks, the function, and its autograd functions refer to."""
    for module in request.root.modules() if request.root is not None else ():
        for hook in (hook for hooks in hooks_of(module) for hook in hooks.values()):
            yield from references(hook)
    for name, value in request.references:
        yield name, value
        if inspect.isclass(value) and torch.autograd.Function in value.__mro__:
            custom: Any = value
            yield from references(custom.backward)


def _assign(fn: Any, key: str, known: Mapping[str, Any]) -> None:
    """Give a variable outside of a function the value that it had."""
    fn = plain_function(fn)
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
def _draws_kept(request: Request) -> Iterator[None]:
    """Refuse a function that draws from a random generator that it makes, or that seeds one that it reaches: in a graph
    it would be one and the same at every call, and draw on. Refuse an iterator as an argument too, which would stay
    where it is.

    Raises:
        Refused: "random state inside", "argument is changed".
    """
    for name, value in request.arguments().items():
        if isinstance(value, Iterator):
            raise Refused("argument is changed", f"the iterator {name!r}", request.name)
    known = dict(_generators(request))
    own = [(path, value) for path, value in known.items() if value is not torch.default_generator]  # see `followed`
    with seeding.states_kept(own, randomness.refuse), seeding.met() as met:
        yield
    if met.keys() - set(map(seeding.identity, (torch.default_generator, *known.values()))):
        randomness.refuse("torch.Generator(), or finds one that no name of its own leads to")


def _generators(request: Request) -> Iterator[tuple[str, torch.Generator]]:
    """(path, generator) of those that a call leads to, also those in the user's modules and classes."""
    for found in reachable(request.fn, request.arguments()):
        if isinstance(found.value, torch.Generator):
            yield found.path, found.value
        elif not isinstance(found.value, torch.Tensor):
            own = ((f"{found.path}.{name}", held) for name, held in vars(found.value).items())
            yield from ((path, held) for path, held in own if isinstance(held, torch.Generator))


@contextlib.contextmanager
def _attributes_kept(root: torch.nn.Module | None, name: str) -> Iterator[None]:
    """See what tracing assigns to attributes of modules, which a compiled call will not do again.

    Raises:
        NotImplementedError: a tensor is assigned; somebody would read it later.
    """
    if root is None:
        yield
        return
    held = Attributes(root, "" if isinstance(root, Modules) else "self")
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
