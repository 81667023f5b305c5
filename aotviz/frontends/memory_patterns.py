"""The programs of one graph from Dynamo: one for each way in which its arguments share memory.

Note [Aliasing is not guarded]
Dynamo guards which arguments are the same tensor. It has no guard for whether different tensors overlap, share a
storage without overlapping, or have separate storages. A program that was compiled for overlapping arguments checks
their memory layout itself. Another one that writes to an argument runs only if its arguments share no more memory than
those that it was compiled for. If no program matches a call, the same graph is compiled again, its recording gives the
reason, and all programs are kept.

Note [Further programs]
`torch._dynamo.config.recompile_limit` limits how often a graph is compiled. A call beyond the limit runs Dynamo's graph
in eager. So does a call whose compilation fails, a call inside a transform of torch.func or forward-mode
differentiation, and a call under a dispatch mode, a stance or a setting that forbids compiling again. Sizes that are
symbols in Dynamo's graph are symbols in further programs too, but in a ShapeEnv of their own, because Dynamo's guards
already exist by then. What these programs require of sizes is checked at each call.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotviz.frontends import compiling
from aotviz.ir import storages, symbolic_sizes, wrapper_subclasses
from aotviz.ir.forms import Request, Split
from aotviz.recording.guard_texts import ALSO, MOST_TOLD
from aotviz.runtime.call_differs import CallDiffers
from aotviz.runtime.lowered import Program
from aotviz.torch_private import dynamo, runtime, tensors
from aotviz.tracing import fakes, functional, overlap
from aotviz.tracing.shared_memory import root
from aotviz.tracing.views import layout

Inputs = Sequence[Any]  # of a call: the graph's own, without lifted tensors
AGAIN = " Compile again for this call."  # the end of a wrapper's messages


@dataclass(frozen=True)
class Known:
    """A program, and the calls that it is valid for."""

    function: Callable[[list[Any]], Any]
    same_memory_layout: Callable[[Inputs], bool] | None  # None: it does not matter, or the wrapper checks it
    sizes: fakes.SymbolGuards | None  # over all inputs, lifted ones included; None if Dynamo guards the sizes
    memory: Memory

    def holds(self, read: Callable[[], Sequence[Any]]) -> Callable[[Inputs], bool] | None:
        """What decides whether the program is valid for a call; None if it always is. `read` as in Patterns."""
        same_memory_layout, sizes = self.same_memory_layout, self.sizes
        if sizes is None:
            return same_memory_layout
        return lambda inputs: (
            (same_memory_layout is None or same_memory_layout(inputs)) and sizes.hold([*read(), *inputs])
        )


@dataclass(eq=False)
class Patterns:
    """The further programs of a graph, for calls that its first program does not match."""

    first: Known
    eager: Callable[..., Any]
    read: Callable[[], Sequence[Any]]  # gives the tensors that were lifted in front of a call's inputs
    compiled: Callable[[Inputs, tuple[str, ...]], Known]  # compiles the graph for a call, with reasons
    # Called if that fails, or there are too many programs. If it does not raise, the call runs in eager.
    failed: Callable[[Exception, Inputs, tuple[str, ...]], None]
    further: tuple[Known, ...] = ()  # the newest first; replaced, never edited
    in_eager: frozenset[Any] = frozenset()  # memory patterns for which compiling failed
    is_full: bool = False

    def run(self, inputs: Inputs, difference: str = "") -> Any:
        """Run a call that does not match the first program. `difference` is its wrapper's message, if the
        wrapper ran."""
        if runtime.transformed():
            return self.eager(*inputs)
        is_added = False
        while True:
            further = self.further
            for known in further:
                holds = known.holds(self.read)
                if holds is None or holds(inputs):
                    try:
                        return known.function([*self.read(), *inputs])
                    except CallDiffers:
                        continue
            if is_added or self.is_full or not self._may_compile(inputs):
                return self.eager(*inputs)
            with compiling.lock:
                if self.further is further:  # no other thread has compiled in the meantime
                    self._add(inputs, difference)
                    is_added = True

    def _may_compile(self, inputs: Inputs) -> bool:
        if any(map(fakes.is_fake, inputs)) or runtime.dispatched() or not dynamo.may_compile_again():
            return False
        return not self.in_eager or _places(inputs) not in self.in_eager

    def _add(self, inputs: Inputs, difference: str) -> None:
        reasons = self._reasons(inputs, difference)
        limit, count = dynamo.config.recompile_limit, 1 + len(self.further) + len(self.in_eager)
        try:
            if count >= limit:
                self.is_full = True
                raise TooManyPrograms(limit)
            self.further = (self.compiled(inputs, reasons), *self.further)
        except Exception as error:
            self.failed(error, inputs, reasons)
            self.in_eager |= {_places(inputs)}

    def _reasons(self, inputs: Inputs, difference: str) -> tuple[str, ...]:
        """For each program, the newest first, the reason why it does not match this call."""
        flat = [*self.read(), *inputs]
        told = []
        for known in (*self.further, self.first):
            said = difference if known is self.first else ""
            if known.sizes is not None and not known.sizes.hold(flat):
                told.append(known.memory.resized(flat) or f"the sizes do not fulfil {known.sizes.text}")
            else:
                told.append(known.memory.difference(flat) or said.removesuffix(AGAIN) or known.memory.elsewhere(flat))
        return tuple(told)


class TooManyPrograms(RuntimeError):
    """A graph has reached Dynamo's limit of programs for one function."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"it already has as many programs as torch._dynamo.config.recompile_limit allows, currently set to {limit}"
        )


def known(program: Program, request: Request, lifted: int, sizes: fakes.SymbolGuards | None = None) -> Known:
    """The entry for a program. `lifted` is the number of inputs before the graph's own."""
    flat = [*(value for *_, value in request.named), *request.args]
    names = tuple(descriptor.name for descriptor in program.call.descriptors)
    return Known(program.function, separation(program, flat, lifted), sizes, Memory(flat, names))


class Memory:
    """How the arguments of a compiled call share memory. Holds no reference to them."""

    def __init__(self, flat: Sequence[Any], names: tuple[str, ...]) -> None:
        self.names = names
        self._inside = tuple(
            name + path
            for name, value in zip(names, flat, strict=True)
            for path, part in wrapper_subclasses.parts_by_path(value)
            if _with_memory(part)
        )
        self._shapes = _shapes(flat)
        self._places = _neighbours(flat)

    def difference(self, flat: Sequence[Any]) -> str:
        """Which arguments now share memory differently, in the wording that explain/guard_failures.py reads."""
        now = _neighbours(flat)
        told = [
            f"{self._inside[one]} and {self._inside[other]} were {before} and are {after}"
            for one, other in itertools.combinations(sorted({*self._places, *now}), 2)
            if (before := _relation(self._places, one, other)) != (after := _relation(now, one, other))
        ]
        return ALSO.join(told[:MOST_TOLD])

    def resized(self, flat: Sequence[Any]) -> str:
        """Which sizes have changed."""
        told = [
            f"{self.names[i]}.shape[{k}] changed from {was} to {size}"
            for i, shape in _shapes(flat).items()
            for k, (was, size) in enumerate(zip(self._shapes.get(i, ()), shape, strict=False))
            if was != size
        ]
        return ALSO.join(told[:MOST_TOLD])

    def elsewhere(self, flat: Sequence[Any]) -> str:
        """The message for arguments that share memory as before."""
        names = " and ".join(self._inside[i] for i in sorted(_neighbours(flat))) or "arguments"
        return f"{names} do not overlap in memory as they did when this was compiled"


def _shapes(flat: Sequence[Any]) -> dict[int, tuple[int, ...]]:
    """The shape of each tensor that is not a subclass: the sizes of a subclass need not be numbers, as in jagged
    tensors."""
    plain = (
        (i, one)
        for i, one in enumerate(flat)
        if isinstance(one, torch.Tensor) and not wrapper_subclasses.is_subclass(one)
    )
    return {i: tuple(map(symbolic_sizes.hint, one.shape)) for i, one in plain}


_Place = tuple[Any, int, tuple[int, int]]  # (storage, which tensor, its half-open range of bytes)


def _neighbours(flat: Sequence[Any]) -> dict[int, _Place]:
    """The place of each tensor that shares its storage with another; a number stands for the storage."""
    held = [part for value in flat for part in _with_memory(value)]
    keys = list(map(tensors.storage_key, held))
    count, numbers = Counter(keys), {key: n for n, key in enumerate(dict.fromkeys(keys))}
    first: dict[int, int] = {}
    return {
        i: (numbers[key], first.setdefault(id(one), i), _span(one))
        for i, (key, one) in enumerate(zip(keys, held, strict=True))
        if count[key] > 1
    }


def _relation(places: dict[int, _Place], one: int, other: int) -> str:
    """How two arguments share memory, in the wording that explain/guard_failures.py reads."""
    first, second = places.get(one), places.get(other)
    if first is None or second is None or first[0] != second[0]:
        return "in separate storages"
    if first[1] == second[1]:
        return "one tensor"
    (begin, end), (start, last) = first[2], second[2]
    return "apart in one storage" if end <= start or last <= begin else "overlapping views of one storage"


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Like `overlap.span`; an empty range for a tensor without elements."""
    where = overlap.hinted(layout(tensor))
    if 0 in where.size:
        return where.offset * tensor.element_size(), where.offset * tensor.element_size()
    return overlap.span(where, tensor.dtype)


def _places(inputs: Inputs) -> Any:
    """A key that is equal for calls whose arguments share memory, and are views, in the same way."""
    held = [part for value in inputs for part in _with_memory(value)]
    first: dict[Any, int] = {}
    where = (
        (first.setdefault(tensors.storage_key(one), i), layout(one), storages.has_no_root(one))
        for i, one in enumerate(held)
    )
    return *where, _kinship(held)


def _kinship(values: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For each tensor, the first whose `grad_fn` has the same `root`, and the first with the same version counter."""
    roots, first = list(map(root, values)), dict[int, int]()
    return tuple(first.setdefault(id(one), i) for i, one in enumerate(roots)), functional.counters(values)


def separation(program: Program, flat: Sequence[Any], lifted: int) -> Callable[[Inputs], bool] | None:
    """A function that tells whether the inputs of a call share no more memory than `flat`, those of the compiled call.

    None if that does not matter: there is only one input that is passed at each call, or none of them is written, and
    none of their storages is resized.
    """
    call = program.call
    facts = call.user_input_info
    static = set(facts.static_input_indices)
    keys = {i: [functional.storage(p) for p in _with_memory(v)] for i, v in enumerate(call.args) if i not in static}
    passed = [i for i, found in keys.items() if found]
    infos = [facts.input_info[i] for i in passed]
    writes_late = isinstance(program.lowered.call, Split) and program.lowered.call.late_writes
    if len(passed) < 2 or not (writes_late or any(info.mutates_data or info.resizes_storage for info in infos)):
        return None
    count = Counter(key for i in passed for key in keys[i])
    single = [i for i in passed if all(count[key] == 1 for key in keys[i])]
    alone = [i for i in single if not wrapper_subclasses.is_subclass(call.args[i])]
    made = [i for i in single if i not in alone]  # subclasses whose parts share no storage with another input
    others = [i for i in passed if i not in single and not wrapper_subclasses.is_subclass(call.args[i])]
    # Overlapping inputs were replaced by a synthetic base; the wrapper checks their layout itself.
    free = [i for i in others if call.descriptors[i] in call.graph_inputs]
    tensor = [i if first is None else first for i, first in enumerate(call.duplicate_of)]  # the number of each
    pairs = [(i, j) for i in free for j in others if tensor[i] != tensor[j]]
    where = {i: overlap.hinted(layout(call.args[i])) for i in others}
    kinship = _kinship([flat[i] for i in others])

    def apart(passed: Inputs) -> bool:
        inputs = [*[None] * lifted, *passed] if lifted else passed
        addresses = [address for i in alone if (address := inputs[i].untyped_storage().data_ptr())]
        if made:
            inside = (p.untyped_storage().data_ptr() for i in made for p in _with_memory(inputs[i]))
            addresses += filter(None, inside)
        seen = set(addresses)
        if len(seen) != len(addresses):
            return False
        if not others:
            return True
        if any(inputs[i].untyped_storage().data_ptr() in seen for i in others):
            return False
        return _kinship([inputs[i] for i in others]) == kinship and all(
            _disjoint(inputs[i], inputs[j]) or (layout(inputs[i]) == where[i] and layout(inputs[j]) == where[j])
            for i, j in pairs
        )

    return apart


def _disjoint(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the byte ranges of two tensors do not overlap."""
    if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr() or not (one.numel() and other.numel()):
        return True
    (first, end), (second, last) = storages.span(one), storages.span(other)
    return end <= second or last <= first


def _with_memory(value: Any) -> list[torch.Tensor]:
    """The tensors that hold the memory of an argument: itself, or its parts."""
    return [p for p in wrapper_subclasses.parts(value) if isinstance(p, torch.Tensor) and p.layout is torch.strided]
