"""What a trace can know of each input, as text, and of how inputs share memory.

Sizes are those of the fake tensors that Dynamo made: numbers, or expressions of symbols. The values of symbols in the
current call are left out, and so are the values of tensors. Two lists of texts are returned: one text for each input,
and one for each storage or autograd relation that inputs share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotviz.cache import bypasses
from aotviz.cache.canonical import Program, Symbols
from aotviz.ir import storages, symbolic_sizes, wrapper_subclasses
from aotviz.torch_private import distributed, script_objects, tensors
from aotviz.torch_private.fake_tensors import FakeTensor
from aotviz.tracing import functional

_KINDS: dict[type, str] = {torch.Tensor: "", torch.nn.Parameter: " parameter"}


@dataclass(frozen=True)
class Input:
    """A flat input. `like` has its sizes with symbols; `numbers` are dimensions that are symbols although `like` has
    numbers there."""

    value: Any
    like: Any
    is_static: bool
    numbers: tuple[int, ...] | None = None


def texts(inputs: Sequence[Input], symbols: Symbols, program: Program) -> tuple[str, str]:
    """(a line for each input, a line for each relation between inputs).

    Raises:
        Uncacheable: an input is an object of which nothing is known.
    """
    return "\n".join(_text(one, symbols, program) for one in inputs), "\n".join(_relations(inputs))


def _text(one: Input, symbols: Symbols, program: Program) -> str:
    value = one.value
    static = " static" if one.is_static else ""
    if isinstance(value, torch.Tensor):
        return _tensor(value, one.like, symbols, program, one.numbers) + static
    if symbolic_sizes.is_symbolic(value):
        return f"{type(value).__name__} {symbols.text(value)}"
    if one.numbers:
        return f"{type(value).__name__} {_duck(value)}"
    is_object = script_objects.is_object(value) or script_objects.is_stand_in(value)
    if is_object and not distributed.is_shared(script_objects.real(value)):
        raise bypasses.OBJECT(f"an input is {bypasses.kind_of(value)}, whose content is not known")
    return f"{type(value).__name__} {program.value(value)}{static}"


def _tensor(value: Any, like: Any, symbols: Symbols, program: Program, numbers: tuple[int, ...] | None) -> str:
    kind = type(value)
    if wrapper_subclasses.is_subclass(value):
        parameter = " parameter" if isinstance(value, torch.nn.Parameter) else ""
        return _subclass(value, like, symbols, program) + parameter
    name = _KINDS.get(kind)
    if name is None and not isinstance(value, FakeTensor):
        name = f" {program.kind(kind)}"
    if isinstance(value, FakeTensor) and isinstance(value, torch.nn.Parameter):
        name = " parameter"
    if value.layout is not torch.strided:
        return f"{value.dtype} {tuple(value.shape)} {value.layout} on {value.device}{name or ''}"
    where, autograd = _where(value, like, symbols, numbers), "".join(_autograd(value))
    number = getattr(like, "item_memo", None)  # of a float that Dynamo passes as a tensor
    item = f" holds {symbols.text(number)}" if symbolic_sizes.is_symbolic(number) else ""
    return f"{value.dtype} {where} on {value.device}{name or ''}{autograd}{item}"


def _where(value: Any, like: Any, symbols: Symbols, numbers: tuple[int, ...] | None = None) -> str:
    """The layout of `value`, with the symbols of `like`."""
    text = symbols.text

    def told(now: Any, alike: Any) -> str:
        return repr(now) if type(alike) is int and type(now) is int else text(alike)

    pairs = enumerate(zip(value.shape, like.shape, strict=True))
    size = ", ".join([_duck(now) if numbers and i in numbers else told(now, alike) for i, (now, alike) in pairs])
    stride = ", ".join(map(told, value.stride(), like.stride()))
    offset = told(value.storage_offset(), like.storage_offset())
    return f"({size}) strides ({stride})" + (f" from {offset}" if offset != "0" else "")


def _duck(number: int) -> str:
    """A size that becomes a symbol: equal sizes become one symbol, and 0 and 1 remain numbers."""
    return repr(number) if number in (0, 1) else f"symbol of {number}"


def _autograd(value: Any) -> Iterator[str]:
    if value.requires_grad:
        yield " requires grad" if value.is_leaf else " requires grad, has a grad_fn"
    elif not value.is_leaf:
        yield " no leaf"
    if value.is_inference():
        yield " inference tensor"
    if value.is_conj():
        yield " conjugate"
    if value.is_neg():
        yield " negative"
    if value.is_quantized:
        yield " quantized"
    base = tensors.base_of(value)
    if base is not None:
        yield " view"


def _subclass(value: Any, like: Any, symbols: Symbols, program: Program) -> str:
    names, context = wrapper_subclasses.anatomy(value)
    alike = like if type(like) is type(value) else value
    parts = []
    for name in names:
        held, part = wrapper_subclasses.attribute(value, name), getattr(alike, name, None)
        if isinstance(held, torch.Tensor):
            parts.append(f"{name}: {_tensor(held, part, symbols, program, None)}")
        else:
            parts.append(f"{name}: {program.value(held)}")
    where = ", ".join(_size(n, symbols) for n in (*alike.size(), *alike.stride()))
    kind, own = program.kind(type(value)), tensors.own_hash(value)
    known = program.value(context) if own is None else f"hash {own}"
    return f"{value.dtype} {kind} ({where}) {known} {{{'; '.join(parts)}}}{''.join(_autograd(value))}"


def _size(number: Any, symbols: Symbols) -> str:
    return "ragged" if wrapper_subclasses.ragged(number) else symbols.text(number)


def _relations(inputs: Sequence[Input]) -> Iterator[str]:
    """How inputs share memory and autograd history, and how they lie in their storages."""
    found = [(i, part, one) for i, one in enumerate(inputs) for part in _with_memory(one.value)]
    by_storage: dict[Any, list[int]] = defaultdict(list)
    for place, (_, part, _) in enumerate(found):
        by_storage[tensors.storage_key(part)].append(place)
    for number, places in enumerate(by_storage.values()):
        several = len(places) > 1
        for place in places:
            i, part, one = found[place]
            base = tensors.base_of(part)
            size = _capacity(part, one.like)
            if not several and base is None and not size:
                continue
            told = [f"input {i} in storage {number}{size}"]
            if base is not None:
                told.append(_base(base, found, several or _is_static(one.like)))
            if several:
                told.append(f"at {_hinted(part)}")
                first = next(p for p in places if found[p][1] is part)
                told.append(f"the same tensor as number {first}" if first != place else f"number {place}")
            yield ", ".join(told)
        if several:
            yield f"storage {number}: version counters {functional.counters([found[p][1] for p in places])}"
    bases = [(tensors.base_of(part), i) for i, part, _ in found]
    seen: dict[int, list[int]] = defaultdict(list)
    for base, i in bases:
        if base is not None:
            seen[id(base)].append(i)
    yield from (f"inputs {places} have one base" for places in seen.values() if len(places) > 1)


def _is_static(like: Any) -> bool:
    """Whether all sizes of an input are numbers."""
    return symbolic_sizes.all_concrete((*getattr(like, "shape", ()),))


def _base(base: Any, found: Sequence[tuple[int, Any, Input]], is_static: bool) -> str:
    position = next((f" = input {i}" for i, part, _ in found if part is base), "")
    grad = (" requires grad" if base.requires_grad else "") + ("" if base.is_leaf else " has a grad_fn")
    inference = " inference" if base.is_inference() else ""
    where = f" {_hinted(base)}" if is_static else ""
    return f"view of {base.dtype}{where}{grad}{inference}{position}"


def _hinted(tensor: Any) -> str:
    """The layout in this call: a trace decides by it which inputs overlap."""
    hint = symbolic_sizes.hint
    size, stride = tuple(map(hint, tensor.shape)), tuple(map(hint, tensor.stride()))
    return f"{size} {stride} {hint(tensor.storage_offset())}"


def _capacity(part: Any, like: Any) -> str:
    """The bytes of a storage that is larger than its tensor; "" if the tensor fills it."""
    if part.layout is not torch.strided:
        return ""
    held = part.untyped_storage().nbytes()
    held = symbolic_sizes.hint(held) if symbolic_sizes.is_symbolic(held) else held
    if all(map(symbolic_sizes.is_concrete, part.shape)):
        end = storages.span(part)[1] if part.numel() else 0
    else:
        end = symbolic_sizes.hint(part.numel()) * part.element_size()
    if held == end:
        return ""
    return f" of {held} bytes" if _is_static(like) else " with more bytes"


def _with_memory(value: Any) -> list[Any]:
    """The strided tensors that hold the memory of an input."""
    if not isinstance(value, torch.Tensor):
        return []
    return [part for part in wrapper_subclasses.parts(value) if part.layout is torch.strided]
