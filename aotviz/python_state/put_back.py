"""What the user's Python looks like before a trace, and what of it is put back afterwards.

`kept` is the one entry. Under torch.compile Dynamo has captured the program's Python. Where the graph calls some of it
again, such as a custom operator, its tensors are looked for; modes and attributes of modules are put back. A function
that is traced as it is may also change its arguments, variables and generators.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch

from aotviz.ir.forms import Request
from aotviz.ir.refusals import Refused
from aotviz.ir.user_warnings import warn
from aotviz.python_state import leaks, randomness, user_objects, users_python
from aotviz.python_state.free_variables import Modules, reachable, references
from aotviz.torch_private import context, graph_modes, random_numbers
from aotviz.torch_private.modules import hooks_of


@contextlib.contextmanager
def kept(request: Request) -> Iterator[None]:
    """Undo what the traced function changes in Python objects.

    Raises:
        Refused: "argument is changed", "tensor is kept", "random state inside".
    """
    roots = (request.fn, request.root_module, *request.args, *request.kwargs.values())
    with contextlib.ExitStack() as kept:
        kept.enter_context(context.Surroundings().kept())
        kept.enter_context(graph_modes.put_back())
        if users_python.runs(request):
            kept.enter_context(leaks.undone(request.name, roots))
        kept.enter_context(_attributes_kept(request.root_module, request.name))
        if not request.is_graph:
            kept.enter_context(user_objects.unchanged(request.name, (), _seen_by_hooks(request)))
            kept.enter_context(_draws_kept(request))
        yield


def _seen_by_hooks(request: Request) -> Iterator[tuple[str, Any]]:
    """(name, value) of what hooks of modules, the function and its custom autograd Functions refer to: they may put a
    tensor there after the function has returned, or without it."""
    yield from request.references
    for module in request.root_module.modules() if request.root_module is not None else ():
        for hook in (hook for hooks in hooks_of(module) for hook in hooks.values()):
            yield from references(hook)
    for _, value in request.references:
        if inspect.isclass(value) and issubclass(value, torch.autograd.Function):
            yield from references(value.backward)


@contextlib.contextmanager
def _draws_kept(request: Request) -> Iterator[None]:
    """Refuse a function that draws from a random generator that it makes, or that seeds one that it reaches. A graph
    would use the same generator in every call, and each call would draw the numbers that follow. Also refuse an
    iterator as an argument, because a compiled call would not advance it.

    Raises:
        Refused: "random state inside", "argument is changed".
    """
    for name, value in request.arguments().items():
        if isinstance(value, Iterator):
            raise Refused("argument is changed", f"the iterator {name!r}", request.name)
    known = dict(_generators(request))
    own = [(path, value) for path, value in known.items() if value is not torch.default_generator]  # see `followed`
    with randomness.states_kept(own), randomness.met() as met:
        yield
    if met.keys() - set(map(random_numbers.identity, (torch.default_generator, *known.values()))):
        randomness.refuse("torch.Generator(), or uses a generator that it does not reach by a name")


def _generators(request: Request) -> Iterator[tuple[str, torch.Generator]]:
    """(path, generator) of those that a call can reach, including those in the user's modules and classes."""
    namespaces: set[int] = set()  # those already searched: each function of a model reaches `torch`
    for found in reachable(request.fn, request.arguments()):
        if isinstance(found.value, torch.Generator):
            yield found.path, found.value
        elif not isinstance(found.value, torch.Tensor) and id(found.value) not in namespaces:
            namespaces.add(id(found.value))
            own = ((f"{found.path}.{name}", held) for name, held in vars(found.value).items())
            yield from ((path, held) for path, held in own if isinstance(held, torch.Generator))


@contextlib.contextmanager
def _attributes_kept(root: torch.nn.Module | None, name: str) -> Iterator[None]:
    """Warn about what tracing assigns to attributes of modules, because a compiled call will not assign it again.

    Raises:
        Refused: a tensor is assigned, which later code would read.
    """
    if root is None:
        yield
        return
    held = user_objects.Attributes(root, "" if isinstance(root, Modules) else "self")
    try:
        yield
    except BaseException:
        held.restore()
        raise
    changes = held.changes()
    assigned = [change.path for change in changes if change.is_tensor]
    if assigned or held.mirrors:
        held.restore()
    if assigned:
        raise Refused("attribute is assigned", " and ".join(assigned), name)
    for change in changes:
        warn(
            f"{name} changes {change.path} from {change.before!r} to {change.now!r} while it runs; a compiled call "
            "does so only when it is compiled, and not in later calls",
        )
