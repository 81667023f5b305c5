"""What functionalisation knows about a tensor after a function ran on it.

A subclass is known by its parts: they are what is functional, written to, or replaced.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from aotviz.ir import wrapper_subclasses
from aotviz.torch_private import autograd_nodes, functional_tensors, modules, tensors
from aotviz.torch_private.dispatch import is_tracing, without_modes
from aotviz.torch_private.fake_tensors import FakeTensor
from aotviz.torch_private.functional_tensors import FunctionalTensor, FunctionalTensorMode
from aotviz.torch_private.tensors import base_of, set_write_counts, storage_key, write_count


def is_functional(value: Any) -> bool:
    """Whether the trace follows a tensor, or some part of it."""
    if wrapper_subclasses.is_subclass(value):
        return any(map(is_functional, wrapper_subclasses.parts(value)))
    return isinstance(value, FunctionalTensor)


def inner(tensor: Any) -> Any:
    """The fake tensor that holds the current value, all pending writes applied; of a subclass, one of such tensors."""
    if isinstance(tensor, FunctionalTensor):
        return functional_tensors.applied(tensor)
    return wrapper_subclasses.mapped(tensor, inner) if wrapper_subclasses.is_subclass(tensor) else tensor


def stand_in(value: Any, empty: bool = False) -> Any:
    """A fake tensor of the same place in memory, or an empty one, of which the trace knows nothing. To ask for the one
    inside would compute what is pending, and outside of the trace that is lost to it."""
    if not isinstance(value, FunctionalTensor):
        return value
    with functional_tensors.held(value).fake_mode:
        if empty:
            return torch.empty(0, dtype=value.dtype, device=value.device)
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def wrapped(tensor: Any) -> Any:
    """A functional tensor around a fake one; of a subclass, one with functional parts."""
    if not wrapper_subclasses.is_subclass(tensor):
        return FunctionalTensor.to_functional(tensor)
    return wrapper_subclasses.like_in_autograd(tensor, wrapper_subclasses.mapped(tensor, wrapped))


def storage(tensor: torch.Tensor) -> StorageWeakRef:
    """A key that tensors share if and only if they share memory."""
    return StorageWeakRef(tensor.untyped_storage())


def _elements(tensor: Any) -> list[Any]:
    return [part.elem for part in wrapper_subclasses.parts(tensor) if isinstance(part, FunctionalTensor)]


def _written(tensor: Any) -> list[Any]:
    """The parts that were written; all, if none was."""
    elements = _elements(tensor)
    return list(filter(functional_tensors.has_data_mutation, elements)) or elements


def data_mutated(tensor: Any) -> bool:
    return any(map(functional_tensors.has_data_mutation, _elements(tensor)))


def metadata_mutated(tensor: Any) -> bool:
    return any(map(functional_tensors.has_metadata_mutation, _elements(tensor)))


def make_room(tensor: Any, size: Sequence[int]) -> None:
    """Before `resize_` gives a functional tensor more elements: that would turn its storage into one on "meta", of
    which no view can be taken. Nothing shares it: of a tensor that was viewed, functionalisation refuses that."""
    count = math.prod(size)
    if isinstance(tensor, FunctionalTensor) and count > tensor.numel():
        with without_modes():
            functional_tensors.place_in(tensor, count + int(tensor.storage_offset()))


def storage_replaced(tensor: Any) -> bool:
    """Whether `set_` gave it another storage."""
    return any(map(functional_tensors.was_storage_changed, _elements(tensor)))


def storage_resized(tensor: Any) -> bool:
    return any(map(functional_tensors.was_storage_resized, _elements(tensor)))


def hidden_from_autograd(tensor: Any) -> bool:
    """Whether all writes went through `.data` or a detached alias."""
    return all(map(functional_tensors.hidden_from_autograd, _written(tensor)))


def under_no_grad(tensor: Any) -> bool:
    return all(map(functional_tensors.under_no_grad, _written(tensor)))


def grad_fn(tensor: torch.Tensor) -> Any:
    """Read under the functional mode, since a stale view regenerates its history when asked.

    None for a view that autograd refuses to give a history, since its base was written after it was taken.
    """
    with FunctionalTensorMode():
        try:
            return tensor.grad_fn
        except (RuntimeError, ValueError, IndexError):  # the last two where its base has another shape by now
            return None


def gradient_shape(tensor: torch.Tensor) -> Sequence[Any]:
    """The shape of what comes to a tensor's history as its gradient: its own, unless it was moved unseen since."""
    node = grad_fn(tensor)
    return tensor.shape if node is None else autograd_nodes.results(node)[tensor.output_nr].shape


def shares_counter(alias: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Whether writes to an alias count as writes of the tensor: of `.detach()` they do, of `.data` they don't."""
    if alias.is_inference() or tensor.is_inference():
        return True  # nobody counts in a trace under inference mode; of the tensors outside, `.detach()` does
    count = write_count(alias)
    before = write_count(tensor)
    torch.autograd.graph.increment_version(alias)
    shared = write_count(tensor) != before
    set_write_counts((alias,), (count,))
    return shared


def counters(values: Sequence[Any]) -> tuple[int, ...]:
    """For each value, the first that counts writes with it: views of one tensor do, and what `.detach()` made of it.

    Only tensors over one storage are looked at; of stand-ins, all over one storage are taken to count together.

    >>> a = torch.ones(2)
    >>> counters([a, a.detach(), a.data, 3.0])
    (0, 0, 2, 3)
    """
    seen: dict[Any, list[int]] = {}
    found = []
    for index, value in enumerate(values):
        known = index
        if has_storage(value):
            others = seen.setdefault(storage_key(value), [])
            known = next((i for i in others if _count_together(value, values[i])), index)
            if known == index:
                others.append(index)
        found.append(known)
    return tuple(found)


def _count_together(one: torch.Tensor, other: torch.Tensor) -> bool:
    if isinstance(one, FakeTensor) or one is other or (base_of(one) is not None and base_of(one) is base_of(other)):
        return True
    return base_of(one) is other or base_of(other) is one or shares_counter(one, other)


def counting_apart(tensor: torch.Tensor) -> torch.Tensor:
    """A detached alias with a version counter of its own, which is not noted as what the function's `.data` gave."""
    alias: torch.Tensor = torch.Tensor.data.__get__(tensor)
    return alias


@contextlib.contextmanager
def attributes_noted(
    assign: Callable[[Any, Any], None],
    mark: Callable[[Any, bool, str], bool],
    note: Callable[[Any], None],
    leaf: Callable[[Any], bool],
) -> Iterator[None]:
    """Call `assign(tensor, value)` in the place of `tensor.data = value`, and `mark(tensor, on, method)` before
    `requires_grad_` and `detach_`, on functional tensors, inside. If `mark` returns True, it has done it already.
    `note` is called with what the attribute `.data` gives when it is read. `leaf` says of a tensor whether it stands
    for a leaf, though the trace gave it a history.

    No dispatcher hears of these: they replace what a tensor shows to the outside, and what it is to autograd.
    """
    data: Any = torch.Tensor.data
    requires_grad: Any = torch.Tensor.requires_grad
    grad_fn: Any = torch.Tensor.grad_fn
    is_leaf: Any = torch.Tensor.is_leaf

    def marked(tensor: Any, on: bool = True) -> Any:
        if not mark(tensor, bool(on), "requires_grad_"):
            torch.Tensor.requires_grad_(tensor, on)
        return tensor

    def detached(tensor: Any) -> Any:
        mark(tensor, False, "detach_")
        return torch.Tensor.detach_(tensor)

    def read(tensor: Any) -> Any:
        value = data.__get__(tensor)
        note(value)
        return value

    FunctionalTensor.data = property(read, assign)
    FunctionalTensor.requires_grad = property(requires_grad.__get__, marked)
    FunctionalTensor.requires_grad_ = marked
    FunctionalTensor.detach_ = detached
    FunctionalTensor.grad_fn = property(lambda tensor: None if leaf(tensor) else grad_fn.__get__(tensor))
    FunctionalTensor.is_leaf = property(lambda tensor: leaf(tensor) or is_leaf.__get__(tensor))
    try:
        yield
    finally:
        for name in ("data", "requires_grad", "requires_grad_", "detach_", "grad_fn", "is_leaf"):
            delattr(FunctionalTensor, name)


@contextlib.contextmanager
def swaps_noted(note: Callable[[], None]) -> Iterator[None]:
    """Call `note()` before `torch.utils.swap_tensors` of a functional tensor inside.

    It asks first for the weak references to both tensors, and would stop at those that the trace itself has.
    """

    def asked(tensor: Any) -> list[Any]:
        if not is_functional(tensor):
            return weakref.getweakrefs(tensor)
        note()
        return []

    torch.utils.weakref = types.SimpleNamespace(getweakrefs=asked)
    try:
        yield
    finally:
        torch.utils.weakref = weakref


@contextlib.contextmanager
def gradients_noted(kinds: Iterable[type], note: Callable[[Any], None]) -> Iterator[None]:
    """Call `note(tensor)` before `tensor.grad` of a functional tensor, or one of `kinds`, is read or assigned.

    `Module.to` reads it to convert it with the parameter. A trace refuses to convert that, and without a conversion
    nothing happens to the gradient either.
    """
    grad: Any = torch.Tensor.grad
    converts = modules.CONVERTS

    def noting(access: Callable[..., Any]) -> Callable[..., Any]:
        def noted(tensor: Any, *value: Any) -> Any:
            if not value and sys._getframe(1).f_code is converts:
                return None
            note(tensor)
            return access(tensor, *value)

        return noted

    noted = property(noting(grad.__get__), noting(grad.__set__), noting(grad.__delete__))
    changed = [kind for kind in {FunctionalTensor, *kinds} if "grad" not in vars(kind)]
    for kind in changed:
        kind.grad = noted
    try:
        yield
    finally:
        for kind in changed:
            del kind.grad


@contextlib.contextmanager
def questions_noted(asked: Callable[[Any, str], None], is_library: Callable[[str], bool]) -> Iterator[None]:
    """Call `asked(tensor, name)` where the user's code reads, of a functional tensor, what autograd keeps of the one
    that it stands for, and that a trace does not know: its version, its base, its place among the results of a node."""

    def asking(name: str, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def answer(tensor: Any) -> Any:
            if not is_library(sys._getframe(1).f_code.co_filename):
                asked(tensor, name)
            return read(tensor)

        return answer

    for name in tensors.KEPT_BY_AUTOGRAD:
        setattr(FunctionalTensor, name, property(asking(name, getattr(torch.Tensor, name).__get__)))
    for name in tensors.ASKED_OF_AUTOGRAD:
        setattr(FunctionalTensor, name, asking(f"{name}()", getattr(torch.Tensor, name)))
    try:
        yield
    finally:
        for name in (*tensors.KEPT_BY_AUTOGRAD, *tensors.ASKED_OF_AUTOGRAD):
            delattr(FunctionalTensor, name)


@contextlib.contextmanager
def attributes_of(stand_in: Callable[[Any], Any]) -> Iterator[None]:
    """A functional tensor has, besides its own, the Python attributes of what `stand_in` gives for it inside."""

    def held(tensor: Any, name: str) -> Any:
        found = getattr(stand_in(tensor), "__dict__", {})
        if name not in found:
            raise AttributeError(f"'Tensor' object has no attribute {name!r}")
        return found[name]

    FunctionalTensor.__getattr__ = held
    try:
        yield
    finally:
        del FunctionalTensor.__getattr__


def point_to(tensor: Any, value: Any) -> None:
    """What `tensor.data = value` does, said to functionalisation. It counts as no write."""
    count = None if tensor.is_inference() else write_count(tensor)  # nobody counts under inference mode
    with torch.no_grad():
        tensor.set_(value.detach())
    if count is not None:
        set_write_counts((tensor,), (count,))


@contextlib.contextmanager
def hook_registrations(take: Callable[..., Any], wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Call `take(tensor, method, *hook)` where a functional tensor is given a gradient hook inside, or told to retain
    its gradient. What it returns is the handle; where that is NotImplemented, the hook is registered on the tensor, and
    `wrap` makes the handle of torch's."""
    names = ("register_hook", "register_post_accumulate_grad_hook", "retain_grad")

    def taking(name: str, register: Any) -> Any:
        def call(tensor: Any, *hook: Any) -> Any:
            handle = take(tensor, name, *hook)
            return wrap(register(tensor, *hook)) if handle is NotImplemented else handle

        return call

    for name in names:
        setattr(FunctionalTensor, name, taking(name, getattr(torch.Tensor, name)))
    try:
        yield
    finally:
        for name in names:
            delattr(FunctionalTensor, name)


class _BeforeEachCall(TorchFunctionMode):
    def __init__(self, do: Callable[[], None]) -> None:
        super().__init__()
        self.do = do

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_tracing():  # else the trace itself calls it, below the mode
            self.do()
        return func(*args, **(kwargs or {}))


def before_each_call(do: Callable[[], None]) -> contextlib.AbstractContextManager[Any]:
    """Call `do` before each call of a function of torch inside."""
    return _BeforeEachCall(do)


class _KeepingHistories(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.autograd.grad:
            given = inspect.signature(func).bind(*args, **(kwargs or {}))
            given.arguments["retain_graph"] = True
            return func(*given.args, **given.kwargs)
        return func(*args, **(kwargs or {}))


def histories_kept() -> contextlib.AbstractContextManager[Any]:
    """What `torch.autograd.grad` goes through inside can be gone through again, as if it were always asked for that."""
    return _KeepingHistories()


def from_custom_function(node: Any) -> bool:
    """Whether an autograd node belongs to a user's `autograd.Function`."""
    return isinstance(node, BackwardCFunction)


def saved_by(node: Any) -> Sequence[Any]:
    """What such a Function gave to `save_for_backward`; nothing where that was written since."""
    try:
        return tuple(node.saved_tensors)
    except RuntimeError:
        return ()


def saved_tensors_of(node: Any) -> Iterator[torch.Tensor]:
    """What an autograd node saved, but for what was written or freed since, or is with hooks of the user's."""
    for held, name in autograd_nodes.saved(node, from_custom_function(node)):
        try:
            if any(getattr(one, "unpack_hook", one) is not None for one in _each(held())):
                continue  # or of a release that does not tell
            saved = getattr(node, name)
        except RuntimeError:
            continue
        yield from filter(torch.is_tensor, _each(saved))


def _each(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def has_storage(value: Any) -> bool:
    """Whether a value is a plain strided tensor."""
    return (
        isinstance(value, torch.Tensor) and value.layout is torch.strided and not wrapper_subclasses.is_subclass(value)
    )


def several_results(node: Any) -> bool:
    """Whether an autograd node belongs to a user's `autograd.Function` that returned more than one tensor."""
    return from_custom_function(node) and len(autograd_nodes.results(node)) > 1


def leaves_behind(nodes: Sequence[Any], limit: float = math.inf) -> list[torch.Tensor]:
    """The leaves that gradients reach from these nodes of autograd's graph, of which `limit` are looked at."""
    found = []
    seen: set[Any] = set()
    stack = list(nodes)
    while stack and len(seen) < limit:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        stack.extend(following for following, _ in node.next_functions)
    return found


def increment_version(tensors: Sequence[torch.Tensor]) -> None:
    """Count a write to each tensor. Those made in inference mode count nothing."""
    torch.autograd.graph.increment_version([t for t in tensors if not t.is_inference()])
