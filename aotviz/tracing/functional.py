"""What functionalization knows about a tensor after a function ran on it.

For a subclass, its parts are asked: these are the functional tensors that are written or replaced.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    """Whether the trace follows a tensor, or a part of it."""
    if wrapper_subclasses.is_subclass(value):
        return any(map(is_functional, wrapper_subclasses.parts(value)))
    return isinstance(value, FunctionalTensor)


def inner(tensor: Any) -> Any:
    """The fake tensor that holds the current value, all pending writes applied. For a subclass, one with such parts."""
    if isinstance(tensor, FunctionalTensor):
        return functional_tensors.applied(tensor)
    return wrapper_subclasses.mapped(tensor, inner) if wrapper_subclasses.is_subclass(tensor) else tensor


def stand_in(value: Any, empty: bool = False) -> Any:
    """An untraced fake with the same shape and strides, or an empty one. Unwrapping the functional tensor instead would
    apply its pending writes outside the trace and lose them."""
    if not isinstance(value, FunctionalTensor):
        return value
    with functional_tensors.held(value).fake_mode:
        if empty:
            return torch.empty(0, dtype=value.dtype, device=value.device)
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def wrapped(tensor: Any) -> Any:
    """A functional tensor around a fake one. For a subclass, one with functional parts."""
    if not wrapper_subclasses.is_subclass(tensor):
        return FunctionalTensor.to_functional(tensor)
    return wrapper_subclasses.like_in_autograd(tensor, wrapper_subclasses.mapped(tensor, wrapped))


def storage(tensor: torch.Tensor) -> StorageWeakRef:
    """A key that tensors share if and only if they share memory."""
    return StorageWeakRef(tensor.untyped_storage())


def _elements(tensor: Any) -> list[Any]:
    return [part.elem for part in wrapper_subclasses.parts(tensor) if isinstance(part, FunctionalTensor)]


def _written(tensor: Any) -> list[Any]:
    """The parts that were written, or all parts if none was."""
    elements = _elements(tensor)
    return list(filter(functional_tensors.has_data_mutation, elements)) or elements


def data_mutated(tensor: Any) -> bool:
    return any(map(functional_tensors.has_data_mutation, _elements(tensor)))


def metadata_mutated(tensor: Any) -> bool:
    return any(map(functional_tensors.has_metadata_mutation, _elements(tensor)))


def make_room(tensor: Any, size: Sequence[int]) -> None:
    """Called before `resize_` enlarges a functional tensor. Without this, its storage would become a "meta" storage, of
    which no view can be taken. Nothing else shares it: functionalization refuses to resize a tensor that has views."""
    count = math.prod(size)
    if isinstance(tensor, FunctionalTensor) and count > tensor.numel():
        with without_modes():
            functional_tensors.place_in(tensor, count + int(tensor.storage_offset()))


def storage_replaced(tensor: Any) -> bool:
    """Whether `set_` gave a tensor another storage."""
    return any(map(functional_tensors.was_storage_changed, _elements(tensor)))


def storage_resized(tensor: Any) -> bool:
    return any(map(functional_tensors.was_storage_resized, _elements(tensor)))


def hidden_from_autograd(tensor: Any) -> bool:
    """Whether all writes went through `.data` or a detached alias."""
    return all(map(functional_tensors.hidden_from_autograd, _written(tensor)))


def under_no_grad(tensor: Any) -> bool:
    return all(map(functional_tensors.under_no_grad, _written(tensor)))


def grad_fn(tensor: torch.Tensor) -> Any:
    """Read `grad_fn` under the functional mode, because reading it may regenerate it for a view whose base was written.

    None for a view whose `grad_fn` autograd refuses to compute, because its base was written after it was taken.
    """
    with FunctionalTensorMode():
        try:
            return tensor.grad_fn
        except (RuntimeError, ValueError, IndexError):  # the last two if its base has changed shape
            return None


def gradient_shape(tensor: torch.Tensor) -> Sequence[Any]:
    """The shape of the gradient that a tensor's `grad_fn` receives. It is the tensor's own, unless that
    changed unseen."""
    node = grad_fn(tensor)
    return tensor.shape if node is None else autograd_nodes.results(node)[tensor.output_nr].shape


def shares_counter(alias: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Whether a write to `alias` bumps the version counter of `tensor`: true of `.detach()`, false of `.data`."""
    if alias.is_inference() or tensor.is_inference():
        return True  # inference tensors have no version counter; the caller's aliases are like `.detach()`
    count = write_count(alias)
    before = write_count(tensor)
    torch.autograd.graph.increment_version(alias)
    shared = write_count(tensor) != before
    set_write_counts((alias,), (count,))
    return shared


def counters(values: Sequence[Any]) -> tuple[int, ...]:
    """For each value, the position of the first value that shares its version counter: views and `.detach()` do.

    Only tensors over one storage are compared. Fakes over one storage are assumed to share a counter.

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
    """`tensor.data`, without the record that `attributes_noted` makes of the user's own `.data`."""
    alias: torch.Tensor = torch.Tensor.data.__get__(tensor)
    return alias


@contextlib.contextmanager
def _added(kind: Any, attributes: Mapping[str, Any]) -> Iterator[None]:
    """Give a class attributes that it does not define itself."""
    for name, value in attributes.items():
        setattr(kind, name, value)
    try:
        yield
    finally:
        for name in attributes:
            delattr(kind, name)


def attributes_noted(
    assign: Callable[[Any, Any], None],
    mark: Callable[[Any, bool, str], bool],
    note: Callable[[Any], None],
    leaf: Callable[[Any], bool],
) -> contextlib.AbstractContextManager[None]:
    """Intercept attributes and methods of functional tensors that no dispatcher sees.

    Args:
        assign: called as `assign(tensor, value)` instead of `tensor.data = value`.
        mark: called as `mark(tensor, on, method)` before `requires_grad_` and `detach_`; returns True if it has already
            done what the method does.
        note: called with each value that `tensor.data` returns.
        leaf: whether a tensor is the caller's leaf, though the trace gave it a `grad_fn`.
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

    noted = {
        "data": property(read, assign),
        "requires_grad": property(requires_grad.__get__, marked),
        "requires_grad_": marked,
        "detach_": detached,
        "grad_fn": property(lambda tensor: None if leaf(tensor) else grad_fn.__get__(tensor)),
        "is_leaf": property(lambda tensor: leaf(tensor) or is_leaf.__get__(tensor)),
    }
    return _added(FunctionalTensor, noted)


@contextlib.contextmanager
def swaps_noted(note: Callable[[], None]) -> Iterator[None]:
    """Call `note()` before `torch.utils.swap_tensors` of a functional tensor.

    That function first checks the weak references to both tensors, and would fail because of the trace's own.
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
    """Call `note(tensor)` before `tensor.grad` of a functional tensor, or of one of `kinds`, is read or assigned.

    `Module.to` reads it in order to convert it together with the parameter. It gets None: a trace refuses to convert a
    parameter, and without a conversion nothing happens to the gradient either.
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


def questions_noted(
    asked: Callable[[Any, str], None], is_library: Callable[[str], bool]
) -> contextlib.AbstractContextManager[None]:
    """Call `asked(tensor, name)` where the user's code reads state of a functional tensor that a trace does not know.
    Autograd keeps it for the caller's tensor: its version, its base, its number among the outputs of a node."""

    def asking(name: str, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def answer(tensor: Any) -> Any:
            if not is_library(sys._getframe(1).f_code.co_filename):
                asked(tensor, name)
            return read(tensor)

        return answer

    kept = {n: property(asking(n, getattr(torch.Tensor, n).__get__)) for n in tensors.KEPT_BY_AUTOGRAD}
    methods = {n: asking(f"{n}()", getattr(torch.Tensor, n)) for n in tensors.ASKED_OF_AUTOGRAD}
    return _added(FunctionalTensor, {**kept, **methods})


def attributes_of(stand_in: Callable[[Any], Any]) -> contextlib.AbstractContextManager[None]:
    """Let a functional tensor have the Python attributes of `stand_in(tensor)` besides its own."""

    def held(tensor: Any, name: str) -> Any:
        found = getattr(stand_in(tensor), "__dict__", {})
        if name not in found:
            raise AttributeError(f"'Tensor' object has no attribute {name!r}")
        return found[name]

    return _added(FunctionalTensor, {"__getattr__": held})


def point_to(tensor: Any, value: Any) -> None:
    """`tensor.data = value`, in a way that functionalization sees. It does not bump the version counter."""
    count = None if tensor.is_inference() else write_count(tensor)
    with torch.no_grad():
        tensor.set_(value.detach())
    if count is not None:
        set_write_counts((tensor,), (count,))


def hook_registrations(take: Callable[..., Any], wrap: Callable[[Any], Any]) -> contextlib.AbstractContextManager[None]:
    """Call `take(tensor, method, *hook)` where the function registers a gradient hook or calls `retain_grad`. Its
    result is the handle. If that is NotImplemented, the hook is registered on the functional tensor, and `wrap`
    converts torch's handle."""
    names = ("register_hook", "register_post_accumulate_grad_hook", "retain_grad")

    def taking(name: str, register: Any) -> Any:
        def call(tensor: Any, *hook: Any) -> Any:
            handle = take(tensor, name, *hook)
            return wrap(register(tensor, *hook)) if handle is NotImplemented else handle

        return call

    return _added(FunctionalTensor, {name: taking(name, getattr(torch.Tensor, name)) for name in names})


class BeforeEachCall(TorchFunctionMode):
    """Calls `do` before each call of a torch function."""

    def __init__(self, do: Callable[[], None]) -> None:
        super().__init__()
        self.do = do

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_tracing():  # otherwise the trace itself is the caller
            self.do()
        return func(*args, **(kwargs or {}))


class RetainingGraphs(TorchFunctionMode):
    """Calls `torch.autograd.grad` always with `retain_graph=True`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.autograd.grad:
            given = inspect.signature(func).bind(*args, **(kwargs or {}))
            given.arguments["retain_graph"] = True
            return func(*given.args, **given.kwargs)
        return func(*args, **(kwargs or {}))


def from_custom_function(node: Any) -> bool:
    """Whether an autograd node belongs to a user's `autograd.Function`."""
    return isinstance(node, BackwardCFunction)


def saved_by(node: Any) -> Sequence[Any]:
    """What a custom Function passed to `save_for_backward`, or nothing if one of these tensors was written since."""
    try:
        return tuple(node.saved_tensors)
    except RuntimeError:
        return ()


def saved_tensors_of(node: Any) -> Iterator[torch.Tensor]:
    """What an autograd node saved, except tensors that were written or freed since, or were packed by the
    user's hooks."""
    for held, name in autograd_nodes.saved(node, from_custom_function(node)):
        try:
            if any(getattr(one, "unpack_hook", one) is not None for one in _each(held())):
                continue  # packed, or this release does not tell
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
    """The leaves that gradients reach from these autograd nodes. At most `limit` nodes are visited."""
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
    """Bump the version counter of each tensor. Inference tensors have none."""
    torch.autograd.graph.increment_version([t for t in tensors if not t.is_inference()])
