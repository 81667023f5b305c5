"""What a traced function does with tensors that no dispatcher sees: attributes such as `.data`, hooks, swaps.

While it runs, the class of functional tensors itself has the attributes and methods concerned, and some parts of torch
are replaced. They tell a `RunListener`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from aotviz.ir.refusals import Refused
from aotviz.ir.user_code import is_library
from aotviz.torch_private import backward_engine, dynamo, modules, operators, tensors
from aotviz.torch_private.context import Surroundings
from aotviz.torch_private.functional_tensors import FunctionalTensor
from aotviz.torch_private.tracers import swapped
from aotviz.tracing.run_listener import RunListener


@contextlib.contextmanager
def told(by: RunListener, subclasses: Iterable[type]) -> Iterator[None]:
    """Tell `by` what runs inside. Uses of `.grad`, and whether one is a leaf, are told for `subclasses` too."""
    attributes = {**_autograd_state(by), **_questions(by), **_hooks(by)}
    attributes["__getattr__"] = lambda tensor, name: by.python_attribute(tensor, name)
    attributes["untyped_storage"], of_storages = _storages(by)
    with contextlib.ExitStack() as stack:
        stack.enter_context(swapped(FunctionalTensor, **attributes))
        stack.enter_context(swapped(torch.UntypedStorage, **of_storages))
        of_leaves = {"grad": _gradient(by), **{name: attributes[name] for name in ("grad_fn", "is_leaf")}}
        for kind in {FunctionalTensor, *subclasses}:
            if "grad" not in vars(kind):
                stack.enter_context(swapped(kind, **of_leaves))
        stack.enter_context(swapped(torch.utils, weakref=types.SimpleNamespace(getweakrefs=by.weak_references)))
        stack.enter_context(swapped(torch.utils.hooks.BackwardHook, __init__=_start_of_module_hooks(by)))
        stack.enter_context(backward_engine.asking(by.differentiate, by.receive))
        stack.enter_context(_modes_restored())
        yield


def _autograd_state(by: RunListener) -> dict[str, Any]:
    plain: Any = torch.Tensor

    def marked(tensor: torch.Tensor, on: bool = True) -> Any:
        # `scan` turns it on for its initial values while it traces its function, and off again.
        passing = operators.of_an_operator(sys._getframe(1).f_code)
        if passing or not by.mark(tensor, bool(on), "requires_grad_"):
            plain.requires_grad_(tensor, on)
        return tensor

    def detached(tensor: torch.Tensor) -> Any:
        by.mark(tensor, False, "detach_")
        return plain.detach_(tensor)

    def read(tensor: torch.Tensor) -> Any:
        value = plain.data.__get__(tensor)
        by.read_data(value)
        return value

    return {
        "data": property(read, by.assign_data),
        "requires_grad": property(plain.requires_grad.__get__, marked),
        "requires_grad_": marked,
        "detach_": detached,
        "grad_fn": property(lambda tensor: None if by.is_leaf(tensor) else plain.grad_fn.__get__(tensor)),
        "is_leaf": property(lambda tensor: by.is_leaf(tensor) or plain.is_leaf.__get__(tensor)),
    }


def _gradient(by: RunListener) -> Any:
    """`Module.to` reads `.grad` in order to convert it together with the parameter. It gets None: a trace refuses to
    convert a parameter, and without a conversion nothing happens to the gradient either."""
    grad: Any = torch.Tensor.grad

    def telling(access: Callable[..., Any]) -> Callable[..., Any]:
        def used(tensor: torch.Tensor, *value: Any) -> Any:
            if not value and sys._getframe(1).f_code is modules.CONVERTS:
                return None
            by.use_gradient(tensor)
            return access(tensor, *value)

        return used

    return property(telling(grad.__get__), telling(grad.__set__), telling(grad.__delete__))


def _questions(by: RunListener) -> dict[str, Any]:
    """Autograd keeps this state for the caller's tensor: its version, its base, its number among a node's outputs."""

    def asking(name: str, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def answer(tensor: torch.Tensor) -> Any:
            if not is_library(sys._getframe(1).f_code.co_filename):
                by.ask(tensor, name)
            return read(tensor)

        return answer

    kept = {n: property(asking(n, getattr(torch.Tensor, n).__get__)) for n in tensors.KEPT_BY_AUTOGRAD}
    return {**kept, **{n: asking(f"{n}()", getattr(torch.Tensor, n)) for n in tensors.ASKED_OF_AUTOGRAD}}


def _storages(by: RunListener) -> tuple[Callable[[Any], Any], dict[str, Any]]:
    """`untyped_storage` of tensors, and the methods of storages that depend on the size. That of a functional tensor is
    not the caller's."""
    plain: Any = torch.UntypedStorage
    resize, size, thread = plain.resize_, plain.nbytes, threading.get_ident()
    noted: dict[int, Any] = {}  # key of a storage -> the first tensor that was asked for it

    def note(tensor: torch.Tensor) -> Any:
        storage = torch.Tensor.untyped_storage(tensor)
        noted.setdefault(tensors.key_of(storage), tensor)
        return storage

    def resized(storage: Any, to: Any) -> Any:
        tensor = noted.get(tensors.key_of(storage))
        ours = threading.get_ident() == thread and not is_library(sys._getframe(1).f_code.co_filename)
        if tensor is None and (storage.device.type == "meta" or not ours):
            return resize(storage, to)
        by.resize_storage(tensor, to)
        return storage

    def read(storage: Any) -> Any:
        tensor = noted.get(tensors.key_of(storage))
        return size(storage) if tensor is None else by.storage_size(tensor)

    return note, {"resize_": resized, "nbytes": read, "size": read}


def _hooks(by: RunListener) -> dict[str, Any]:
    def taking(name: str) -> Any:
        return lambda tensor, *hook: by.take_hook(tensor, name, *hook)

    return {name: taking(name) for name in ("register_hook", "register_post_accumulate_grad_hook", "retain_grad")}


def _start_of_module_hooks(by: RunListener) -> Callable[..., None]:
    start: Any = torch.utils.hooks.BackwardHook.__init__

    def started(self: Any, module: Any, hooks: Sequence[Any], pre_hooks: Sequence[Any]) -> None:
        for hook in (*hooks, *pre_hooks):
            by.call_module_hook(hook)
        start(self, module, hooks, pre_hooks)

    return started


@contextlib.contextmanager
def _modes_restored() -> Iterator[None]:
    """Refuse a function that leaves another mode or default than it found, which no graph would do again."""
    before = Surroundings()
    yield
    changed = sorted({*before.changed(), *dynamo.changed_defaults()})
    if changed:
        raise Refused("mode is changed", " and ".join(changed))
