"""Gradient hooks on tensors that a compiled call takes or returns, and the tensors that a running backward asks for."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any
from weakref import ref

import torch

from aotviz.ir import autograd_graph
from aotviz.torch_private import autograd_nodes, dynamo
from aotviz.torch_private.autograd_nodes import current_backward, current_node, start_gradient_hooks
from aotviz.torch_private.tensors import base_of
from aotviz.traced import CallsHook

_BEFORE, _AFTER = "aotviz: before", "aotviz: after"  # keys of our own hooks


def listens(tensor: torch.Tensor) -> bool:
    """Whether a tensor has a gradient hook, or retains its gradient."""
    hooks = autograd_nodes.gradient_hooks(tensor)
    return bool(hooks.users() if isinstance(hooks, HooksOfAResult) else hooks) or tensor.retains_grad


def hooks_on(*tensors: torch.Tensor) -> list[Any]:
    """The current gradient hooks on these tensors and on their bases: for each that ever had one, a dict by number."""
    owners = (one for tensor in tensors for one in (tensor, base_of(tensor)) if one is not None)
    return [hooks for owner in owners if (hooks := autograd_nodes.gradient_hooks(owner)) is not None]


class OnlyGradients:
    """A gradient hook that is not called without a gradient, nor while it has to wait."""

    def __init__(self, hook: Any, waiting: Waiting | None = None) -> None:
        self.hook, self.waiting = hook, waiting
        self.heard_alone = False  # `runtime/cuts.py` has called it with the whole gradient; no other will come

    @dynamo.traced_as(CallsHook.__call__)
    def __call__(self, gradient: torch.Tensor | None) -> Any:
        if self.waiting is not None and self.waiting.waits:
            return None
        if gradient is not None:
            return self.hook(gradient)
        if counts_gradients(self.hook) and not self.heard_alone:
            _count_without_gradient(self.hook)
        self.heard_alone = False
        return None


def _codes(function: Any, name: str) -> set[CodeType]:
    """The code of the functions of that name inside a function."""

    def inside(code: CodeType) -> Iterator[CodeType]:
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield constant
                yield from inside(constant)

    return {code for code in inside(function.__code__) if code.co_name == name}


_COUNTING = _codes(torch.autograd.graph.register_multi_grad_hook, "inner_hook")


def counts_gradients(hook: Any) -> bool:
    """Whether a hook is one that `register_multi_grad_hook` puts on each tensor to count the gradients."""
    return getattr(hook, "__code__", None) in _COUNTING


def _count_without_gradient(hook: Any) -> None:
    """Tell such a hook that its tensor gets no gradient. It waits for all tensors whose nodes the engine executes, and
    the engine also executes nodes below a compiled backward that get no gradient."""
    cell = hook.__closure__[hook.__code__.co_freevars.index("fn")]
    users = cell.cell_contents

    def with_any(gradients: Sequence[torch.Tensor | None]) -> None:
        if any(gradient is not None for gradient in gradients):
            users(gradients)

    cell.cell_contents = with_any
    try:
        hook(None)
    finally:
        cell.cell_contents = users


class Waiting:
    """The gradient of a view of a result, from outside, while its hooks wait for the backward of the call.

    It is called as a hook on the view, before the user's. `retained` is the view's `.grad` before the engine adds to
    it.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = ref(tensor)
        self.waits = False
        self.gradient: torch.Tensor | None = None
        self.retained: torch.Tensor | None = None
        self._backward = -1

    def __call__(self, gradient: torch.Tensor | None) -> None:
        node: Any = current_node()
        while node is not None and not hasattr(node, "hooks_of_results"):
            node = node.next_functions[0][0] if node.next_functions else None
        self.waits = gradient is not None and node is not None and autograd_nodes.will_execute(node)
        if self.waits:
            tensor = self._tensor()
            self.gradient, self._backward = gradient, current_backward()
            self.retained = tensor.grad if tensor is not None and tensor.retains_grad else None

    def came(self) -> torch.Tensor | None:
        """The gradient that arrived in the running backward. The hooks stop waiting."""
        gradient = self.gradient if self._backward == current_backward() else None
        self.waits, self.gradient = False, None
        return gradient


class HooksOfAResult(dict[Any, Any]):
    """The hooks on one result of a call, in the order in which the engine calls them.

    The engine calls the hooks on each result of a node, even on results without a gradient; users' hooks are not called
    then. Our own hooks may come before and after them (`runtime/cuts.py`).

    If the caller changes the result in place (`y.t_()`) before the first hook, the hook belongs to the new node. Torch
    registers it there only if no hooks existed before, so a second dict of hooks is started.
    """

    __slots__ = ("__weakref__", "_moved", "_node", "_registered", "_tensor", "waiting")

    def __init__(self, tensor: torch.Tensor, waiting: Waiting | None = None) -> None:
        super().__init__()
        self.waiting = waiting  # for a view of a result
        self._tensor, self._node = ref(tensor), _number(tensor)
        self._moved: dict[Any, Any] | None = None
        self._registered = False  # whether a user's hook was ever registered

    @staticmethod
    def on(tensor: torch.Tensor, waits: bool = False) -> Any:
        """The hooks of a tensor. If none was registered yet and it has a `grad_fn`, this starts them, as its first hook
        would."""
        hooks = autograd_nodes.gradient_hooks(tensor)
        if hooks is None and autograd_graph.grad_fn(tensor) is not None:
            hooks = HooksOfAResult(tensor, Waiting(tensor) if waits else None)
            start_gradient_hooks(tensor, hooks)
        return hooks

    def _of_its_new_node(self) -> dict[Any, Any] | None:
        """The hooks of the tensor's new `grad_fn`, if it has one, and no hook was ever registered with the first."""
        tensor = self._tensor()
        if self._moved is None and not self._registered and tensor is not None and _number(tensor) != self._node:
            self._moved = OrderedDict()  # handles keep a weak reference to it
            start_gradient_hooks(tensor, self._moved)
        return self._moved

    def __contains__(self, key: Any) -> bool:
        return super().__contains__(key) or (self._moved is not None and key in self._moved)

    def __delitem__(self, key: Any) -> None:
        if self._moved is not None and key in self._moved:
            del self._moved[key]
        else:
            super().__delitem__(key)

    def __setitem__(self, key: Any, hook: Any) -> None:
        moved = self._of_its_new_node()
        if moved is not None:
            moved[key] = hook
            return
        self._registered = True
        if self.waiting is not None and not self:
            super().__setitem__(_BEFORE, self.waiting)
        hook = hook.hook if isinstance(hook, OnlyGradients) else hook
        super().__setitem__(key, OnlyGradients(hook, self.waiting))
        last = self.pop(_AFTER, None)
        if last is not None:
            super().__setitem__(_AFTER, last)

    def surround(self, before: Callable[[Any], Any], after: Callable[[Any], Any]) -> None:
        """Call these hooks before and after the users', even for None, until `alone`."""
        users = self.users()
        self.clear()
        super().__setitem__(_BEFORE, before)
        self.update(users)
        super().__setitem__(_AFTER, after)

    def heard_alone(self) -> None:
        """Note that the users' hooks have received the running backward's gradient, and none comes from outside."""
        for hook in self.users().values():
            hook.heard_alone = True

    def alone(self) -> None:
        """Undo `surround`."""
        self.pop(_BEFORE, None)
        self.pop(_AFTER, None)

    def users(self) -> dict[Any, Any]:
        """The hooks that users registered."""
        return {key: hook for key, hook in self.items() if isinstance(key, int)}


def _number(tensor: torch.Tensor) -> int | None:
    node = autograd_graph.grad_fn(tensor)
    return None if node is None else autograd_nodes.number(node)


def hear_only_gradients(*results: torch.Tensor) -> None:
    """Do not call hooks on results of one call if only another result gets a gradient."""
    for result in results:
        HooksOfAResult.on(result)


def listening_before(tensor: torch.Tensor) -> tuple[Any, bool]:
    """The hooks on a tensor before a call that changes it in place, None if there are none, and whether it retains its
    gradient. Hooks that are registered later are added to these, and stay with them on the `grad_fn` that it had."""
    return autograd_nodes.gradient_hooks(tensor), tensor.retains_grad


class Listening:
    """Tells whether a tensor has a gradient hook, even if the tensor is freed: its hooks outlive it."""

    __slots__ = ("_node", "hooks", "hooks_before", "retained_before", "tensor")

    def __init__(self, tensor: torch.Tensor, waits: bool = False, before: tuple[Any, bool] = (None, False)) -> None:
        self.tensor, self._node = ref(tensor), _number(tensor)
        self.hooks_before, self.retained_before = before
        self.hooks = HooksOfAResult.on(tensor, waits)

    def hears(self) -> bool:
        """Whether a hook was registered, or the gradient retained, since the call."""
        hooks = self.hooks
        stay = self.hooks_before is not None and hooks is self.hooks_before
        if hooks and not stay and (not isinstance(hooks, HooksOfAResult) or hooks.users()):
            return True
        tensor = self.as_it_was()
        if tensor is None or self.hooks is None:
            return tensor is not None and listens(tensor)
        return tensor.retains_grad and not self.retained_before

    def as_it_was(self) -> torch.Tensor | None:
        """The tensor, if it still has the same hooks; with another `grad_fn`, it has others."""
        tensor = self.tensor()
        if tensor is None or self.hooks is None:
            return tensor
        return tensor if autograd_nodes.gradient_hooks(tensor) is self.hooks else None

    def is_among(self, asked: Sequence[Any]) -> bool:
        """Whether it is one of these tensors or gradient edges."""
        tensor = self.as_it_was()
        if tensor is None:
            return False
        place = (autograd_graph.grad_fn(tensor), tensor.output_nr)
        return any(one is tensor or (isinstance(one, tuple) and one[:2] == place) for one in asked)

    def held(self) -> torch.Tensor | None:
        """The tensor, if it still has the same `grad_fn`."""
        tensor = self.as_it_was()
        return tensor if tensor is not None and _number(tensor) == self._node else None


def asked_for() -> Sequence[Any]:
    """The tensors or gradient edges whose gradients the running backward returns. Empty if it accumulates into `.grad`
    of leaves, or runs in another thread than its caller."""
    frame: Any = sys._getframe(1)
    for _ in range(6):
        if frame is None:
            break
        if frame.f_code is autograd_nodes.RUN_BACKWARD:
            if frame.f_locals["kwargs"].get("accumulate_grad"):  # gradients go to `.grad`
                return ()
            found: Sequence[Any] = frame.f_locals["args"][3]  # after the gradients, and what to keep
            return found
        frame = frame.f_back
    return ()


def retain(tensor: torch.Tensor, gradient: torch.Tensor) -> None:
    """Accumulate into `.grad` as the engine does for a tensor that retains its gradient."""
    if tensor.grad is None:
        tensor.grad = gradient.detach().clone(memory_format=torch.contiguous_format)
    else:
        tensor.grad = tensor.grad + gradient


def spare_hooks(tensors: Sequence[torch.Tensor], more: Sequence[Any]) -> None:
    """Until the running backward ends, call the hooks on these tensors only with gradients, not with None. `more` are
    results of `hooks_on`."""
    changed = []
    for hooks in (*hooks_on(*tensors), *more):
        for key, hook in list(hooks.items()):
            if isinstance(key, int) and not isinstance(hook, OnlyGradients):
                hooks[key] = OnlyGradients(hook)
                changed.append((hooks, key))

    def restore() -> None:
        for hooks, key in changed:
            if isinstance(hooks.get(key), OnlyGradients):
                hooks[key] = hooks[key].hook

    if changed:
        autograd_nodes.at_end_of_backward(restore)
