"""What is recorded, or refused, of a tensor's attributes, hooks and swaps while the function runs (`user_calls.py`)."""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from aotviz.ir.refusals import Refused
from aotviz.ir.wrapper_subclasses import is_subclass
from aotviz.python_state import leaks
from aotviz.torch_private import dynamo
from aotviz.torch_private.tensors import base_of
from aotviz.torch_private.tracers import swapped
from aotviz.tracing import functional, late_writes, pure_hooks, registered_hooks, replay
from aotviz.tracing.arguments import Arguments
from aotviz.tracing.events import Marked, TracedHook
from aotviz.tracing.open_trace import OpenTrace


class RunListener:
    """Adds to the ledger of one run."""

    def __init__(self, given: Arguments, opened: OpenTrace) -> None:
        self.given, self.program, self.ledger, self.graph = given, given.program, opened.ledger, opened.graph
        pairs = zip(self.program.args, given.args, strict=True)
        self._leaves = {id(a): a for was, a in pairs if isinstance(a, torch.Tensor) and a.requires_grad and was.is_leaf}
        self._hook_numbers = itertools.count()
        self._together: dict[Any, Any] = {}  # call of `register_multi_grad_hook` -> its handle
        leaks.exclude_from_search(self, "given", "program")

    def python_attribute(self, tensor: torch.Tensor, name: str) -> Any:
        """An attribute that the user set on an argument: the fake that the argument was made from has it."""
        position = self.given.position(tensor) if self.ledger.open else None
        found = {} if position is None else getattr(self.program.args[position], "__dict__", {})
        if name not in found:
            raise AttributeError(f"'Tensor' object has no attribute {name!r}")
        return found[name]

    def assign_data(self, tensor: torch.Tensor, value: Any) -> None:
        """`tensor.data = value`, allowed if no other result shares the memory of `value`."""
        if self.ledger.is_itself(tensor, value):
            return
        fresh = functional.is_functional(value) and not is_subclass(tensor)
        fresh = fresh and self.ledger.origin(self.ledger.number(value)) is None
        alike = isinstance(value, torch.Tensor) and (value.dtype, value.device) == (tensor.dtype, tensor.device)
        position = self.given.position(tensor)
        if position is None:
            looked = base_of(tensor) is not None and tensor.requires_grad
        else:
            looked = functional.has_another_history(tensor, self.given.edges[position])
        if not fresh or not alike or looked or any(value is argument for argument in self.given.args):
            known = position is not None and position < len(self.program.names)
            raise Refused("data is assigned", self.program.name(position or 0) if known else "an intermediate")
        self.ledger.leave(tensor)
        with swapped(self.ledger, open=False):
            functional.point_to(tensor, value)
        self.ledger.assign(tensor, position is not None)

    def mark(self, tensor: torch.Tensor, on: bool, method: str) -> bool:
        """Called before `requires_grad_` and `detach_`. A leaf argument is not a leaf in the trace, and is detached
        there."""
        if self.ledger.open and tensor.requires_grad != on:
            after = next(iter(reversed(self.graph.nodes)), None)
            self.ledger.add(Marked(self.ledger.numbered(tensor), on, method, after))
        position = self.given.position(tensor)
        if method == "detach_" and position in self.program.known.as_views:
            raise Refused("requires_grad changes", self.program.name(position), "off")
        if on or position is None or method == "detach_" or not self.program.args[position].is_leaf:
            return False
        torch.Tensor.detach_(tensor)
        return True

    def is_leaf(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is an argument that is the caller's leaf, though the trace gave it a `grad_fn`."""
        return self.ledger.open and self._leaves.get(id(tensor)) is tensor

    def read_data(self, value: Any) -> None:
        self.ledger.read_data.add(self.ledger.numbered(value))

    def resize_storage(self, tensor: torch.Tensor | None, size: Any) -> None:
        if tensor is None:
            raise Refused("storage is resized", "a tensor that is no argument")
        if not self.ledger.open:
            raise Refused("storage is resized", "a tensor, in a backward")
        self.ledger.resize_storage(tensor, size, next(iter(reversed(self.graph.nodes))))

    def storage_size(self, tensor: torch.Tensor) -> int:
        """The size in bytes that the function reads. Each call must begin with the same size."""
        ledger, root = self.ledger, self.ledger.numbered(self.ledger.owner(tensor))
        own = ledger.storages.get(root)  # an argument's
        alike = {root} if own is None else {one for one, storage in ledger.storages.items() if storage == own}
        sizes = [event.size for event in ledger.resized_storages if event.tensor in alike]
        if not sizes:
            ledger.read_sizes[root] = ledger.size_before(root)
        return sizes[-1] if sizes else ledger.size_before(root)

    def weak_references(self, tensor: torch.Tensor) -> list[Any]:
        """What `swap_tensors` asks for, and first: the trace's own weak references would make it fail."""
        if not functional.is_functional(tensor):
            return weakref.getweakrefs(tensor)
        if self.ledger.open:
            raise Refused("tensors are swapped", "torch.utils.swap_tensors")
        return []

    def ask(self, tensor: torch.Tensor, name: str) -> None:
        """Refuse that the function reads state of an argument, or of a view of one, that no trace knows and no guard
        checks."""
        if not self.ledger.open or self.program.is_graph:
            return
        of_itself = name in ("retains_grad", "output_nr")
        position = self.given.position(tensor if of_itself else self.ledger.owner(tensor))
        if position is not None and not (of_itself and self.program.args[position].is_leaf):
            raise Refused("state of a tensor", self.program.name(position), name)

    def use_gradient(self, tensor: torch.Tensor) -> None:
        """Refuse `.grad` of an argument: a trace does not receive it, and would read None.

        Dynamo reads it in passing when it traces the branches of a `torch.cond`.
        """
        position = self.given.position(tensor)
        if self.ledger.open and position is not None and dynamo.compile_id() is None:
            raise Refused("gradient of an argument", self.program.name(position))

    def differentiate(self, inputs: Sequence[Any]) -> bool:
        """Note the arguments whose gradient the function asks for: in eager, their hooks are called then. Returns
        whether the trace needs the graph once more."""
        found = map(self.given.position, inputs or ())
        if self.ledger.open:
            self.ledger.differentiated.update(position for position in found if position is not None)
        return self.ledger.open and self.program.known.retains_graph

    def receive(self, inputs: Sequence[Any], gradients: Sequence[Any]) -> None:
        """Refuse the gradient of a leaf whose shape a metadata op changed before: eager's has the new shape."""
        for tensor, gradient in zip(inputs, gradients, strict=False):
            position = self.given.position(tensor) if self.ledger.open and gradient is not None else None
            if position is None or not self.program.args[position].is_leaf:
                continue
            if gradient.shape != tensor.shape:
                *_, moved = self.ledger.metadata_ops(self.ledger.number(tensor))
                raise replay.refused(moved, self.program.name(position))

    def take_hook(self, tensor: torch.Tensor, method: str, *hook: Any) -> Any:
        """Record or trace a hook that the function registers; see tracing/registered_hooks.py. Returns its handle."""
        together = registered_hooks.registered_together()
        if together is not None and self.ledger.open:
            key, tensors, *arguments = together
            if key not in self._together:
                self._together[key] = self._take(tensors, "register_multi_grad_hook", tuple(arguments))
            return self._together[key]
        handle = self._take((tensor,), method, hook)
        if handle is not NotImplemented:
            return handle
        handle = getattr(torch.Tensor, method)(tensor, *hook)
        if not self.ledger.open or handle is None or self.program.is_graph:
            return handle
        return registered_hooks.Handle(self.ledger, handle.remove)  # later the hook would still be in the graph

    def _take(self, tensors: tuple[Any, ...], method: str, hook: tuple[Any, ...]) -> Any:
        number = next(self._hook_numbers)
        if not self.ledger.open:
            return NotImplemented
        several, first = method == "register_multi_grad_hook", tensors[0]
        accumulates = method == "register_post_accumulate_grad_hook"
        fits = several or (first.requires_grad and (first.is_leaf or not accumulates))
        positions = [self.given.position(tensor) for tensor in tensors]
        pairs = zip(positions, map(self.ledger.numbered, tensors), strict=True)
        waits = [t for place, t in pairs if place is None or registered_hooks.is_written(self.ledger, t)]
        why = ""
        if waits and not self.program.is_graph:
            why = "it is called with several gradients at once" if several else pure_hooks.why_not(*hook)
        position = next((one for one in positions if one is not None), len(self.program.names))
        name = self.program.name(position) if position < len(self.program.names) else "a tensor that it creates"
        if fits and (not waits or number in self.program.known.deferred_hooks):
            return registered_hooks.defer(self.ledger, tensors, method, hook, name, why)
        if fits:
            self.ledger.traced_hooks += [TracedHook(number, one, len(self.ledger.events), why) for one in waits]
        # A hook on several tensors makes the run useless, so its handle need not work.
        return registered_hooks.Handle(self.ledger, lambda: None) if several else NotImplemented

    def call_module_hook(self, hook: Any) -> None:
        """Refuse a backward hook of a module that cannot be traced: its tensors do not leave the graph."""
        if self.ledger.open and self.program.with_gradients and not self.program.is_graph and torch.is_grad_enabled():
            why = pure_hooks.why_not(hook, of_a_module=True)
            if why:
                raise Refused("hook that depends on the call", "a module (register_full_backward_hook)", why)

    @contextmanager
    def checkpointed(self) -> Iterator[None]:
        """Around a checkpointed region: warn of its writes, which eager repeats in the backward."""
        before = late_writes.values_now(self.given.args)
        yield
        names = ", ".join(map(self.program.name, late_writes.changed(self.given.args, before)))
        if names:
            warnings.warn(
                f"a checkpointed region writes {names}. Eager writes it a second time, when the backward "
                "recomputes the region; the compiled function writes it once",
                stacklevel=1,
            )
