"""With `debug=True`: does each call match what the program was compiled for, and leave memory as the function itself
would? (docs/design/system.md E4)

A compiled program trusts its caller: `aotviz.compile` and Dynamo guard their calls, `aot_function` leaves that to its
user. A call that does not match gives wrong numbers, or an error from inside a kernel. In debug mode the wrapper first
compares each argument with the traced one, and says which differs, and how.

The wrapper writes mutated inputs back after the graph ran. A missing or superfluous write changes no result of the call
itself, so nothing else would notice it. In debug mode the inputs of a call that writes are copied first, including the
storages that they share. After the wrapper, the function runs eagerly on the copies, from the same random state; then
each storage with a written input is compared with its copy as a whole.

For that the function runs once more, including what it does outside of tensors. Calls with effects (a printing
operator, a queue) are not checked. If random numbers are drawn, the written values are not compared either, because a
compiler may draw others; memory that the call must not change is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotviz.ir import effects, storages
from aotviz.ir.forms import GraphCall
from aotviz.ir.spelling import literal
from aotviz.ir.symbolic_sizes import SYMBOLIC, all_concrete
from aotviz.ir.wrapper_subclasses import is_subclass
from aotviz.runtime.codegen import Source
from aotviz.runtime.tensor_copies import copies
from aotviz.torch_private import tensors
from aotviz.tracing.fakes import is_fake

_TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 5e-2, torch.float64: 1e-9, torch.complex128: 1e-9}


def write_expectations(source: Source, call: GraphCall, variables: list[str]) -> None:
    """Write one check per flat input. `variables` are their expressions."""
    fact = "debug: compare the arguments with the traced ones"
    for variable, descriptor, example in zip(variables, call.descriptors, call.args, strict=True):
        check, name = source.use(expect), descriptor.name
        expected = source.bind(f"expected_{name}", expectation(example))
        source.line(f"{check}({variable}, {expected}, {literal(name)}, {literal(call.name)})", fact, name)


def expectation(example: Any) -> dict[str, Any]:
    """The fixed facts about an input: for a tensor also sizes and strides, unless symbolic; for other values
    the type."""
    if not isinstance(example, torch.Tensor):
        return {} if isinstance(example, SYMBOLIC) else {"type": type(example)}
    fixed = example.layout is torch.strided and all_concrete((*example.size(), *example.stride()))
    return {fact: read(example) for fact, read in _READ.items() if fixed or fact not in ("size", "stride")}


def expect(value: Any, facts: dict[str, Any], name: str, program: str) -> None:
    """Raise AssertionError, with the name of the input, if `value` differs from `facts`."""
    kind = facts.get("type")
    if kind is not None and isinstance(value, torch.Tensor):
        raise AssertionError(f"{program}: {name} was {kind.__name__} when compiled; this call has a tensor")
    freed = value is None and name.startswith("saved ")  # by a backward of other results; this one does not read it
    if kind is not None or not facts or freed:
        return
    if not isinstance(value, torch.Tensor):
        raise AssertionError(f"{program}: {name} was a tensor when compiled; this call has {type(value).__name__}")
    for fact, expected in facts.items():
        found = _READ[fact](value)
        if found == expected or (fact == "requires_grad" and not torch.is_grad_enabled()):
            continue
        if fact == "stride" and _same_order_of_elements(value, found, expected):
            continue
        raise AssertionError(
            f"{program}: {name} was compiled with {fact} {expected}; this call has {found}. Compile again "
            "for such calls, or let aotviz.compile guard them"
        )


def _same_order_of_elements(value: torch.Tensor, found: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    """Whether strides differ only in dimensions of size one."""
    pairs = zip(value.size(), found, expected, strict=True)
    return value.numel() == 0 or all(size == 1 or one == other for size, one, other in pairs)


_READ: dict[str, Callable[[torch.Tensor], Any]] = {
    "dtype": lambda value: value.dtype,
    "device": lambda value: value.device,
    "requires_grad": lambda value: value.requires_grad,
    "rank": lambda value: value.dim(),
    "size": lambda value: tuple(value.size()),
    "stride": lambda value: tuple(value.stride()),
}


class MemoryDiffers(AssertionError):
    """A compiled call left an input's memory in another state than the function does: a bug in aotviz."""


def write_comparison(source: Source, call: GraphCall, variables: list[str]) -> str:
    """Write the line that copies the inputs. Returns the line that compares, or "" if nothing can be compared."""
    infos = call.user_input_info.input_info
    written = tuple(i for i, info in enumerate(infos) if info.is_tensor and info.mutated)
    does_more = any(effects.has_effects(node.target) for node in call.graph_module.graph.nodes)
    if not written or does_more or not all(isinstance(value, (torch.Tensor, *_NUMBERS)) for value in call.args):
        return ""
    fn = source.bind("eager", call.fn)
    names = tuple(descriptor.name for descriptor in call.descriptors)
    about = f"{literal(call.name)}, {literal(names)}, {written}, {fn}"
    fact = "debug: run the function on copies of the inputs, and compare what both write"
    source.line(f"memory = {source.use(MemoryCheck)}({about}, [{', '.join(variables)}])", fact)
    return "memory.compare()"


_NUMBERS = (int, float, bool, complex, str, type(None), torch.SymInt, torch.SymFloat, torch.SymBool, torch.dtype)


def tolerance(dtype: torch.dtype) -> float:
    """The relative and absolute difference allowed between two results of one computation."""
    return _TOLERANCE.get(dtype, 2e-5)


@dataclass(frozen=True)
class _Memory:
    """A storage, its copy, and what both held before the call."""

    storage: torch.UntypedStorage
    copy: torch.UntypedStorage
    before: torch.UntypedStorage
    dtype: torch.dtype  # for the comparison
    places: tuple[tuple[str, torch.Tensor], ...]  # (name, an alias with the original layout) of each input in it


class MemoryCheck:
    """Created before a call from its flat inputs; `compare` is called after it.

    Args:
        program: the name of the compiled function.
        names: one per flat input.
        written: positions of the flat inputs that the function writes.
        fn: takes the flat inputs and runs in eager.
        values: the flat inputs.
    """

    def __init__(
        self, program: str, names: Sequence[str], written: Sequence[int], fn: Callable[..., Any], values: Sequence[Any]
    ) -> None:
        self.program, self.fn = program, fn
        self.modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        self.memory: list[_Memory] = []
        plain = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor) and _has_memory(value)]
        if any(isinstance(value, torch.Tensor) and is_fake(value) for value in values):
            return  # nothing is written
        with torch.inference_mode(False), torch.enable_grad():
            found = copies([value for value in values if isinstance(value, torch.Tensor)])
        copied = {id(original): made for original, made in found}
        self.inputs = [copied.get(id(value), value) for value in values]
        self.random = _random_state()
        for key in dict.fromkeys(tensors.storage_key(values[i]) for i in written if i in plain):
            over = [i for i in plain if tensors.storage_key(values[i]) == key]
            first = next(i for i in over if i in written)
            storage, copy = values[first].untyped_storage(), self.inputs[first].untyped_storage()
            places = tuple((names[i], _alias(values[i])) for i in over)
            dtype = next((dtype for i in over if _is_rounded(dtype := values[i].dtype)), torch.uint8)
            self.memory.append(_Memory(storage, copy, copy.clone(), dtype, places))

    def compare(self) -> None:
        """Raise MemoryDiffers, with the name of the input, if memory differs from eager."""
        if not self.memory:
            return
        drawn_before, self_state = self.random, _random_state()
        grad, inference = self.modes
        try:
            _set_random_state(drawn_before)
            with torch.inference_mode(inference), torch.set_grad_enabled(grad):
                self.fn(*self.inputs)
            drew = any(not torch.equal(a, b) for a, b in zip(drawn_before, _random_state(), strict=True))
        except Exception as error:
            warnings.warn(
                f"debug: what {self.program} writes could not be compared, because the function raised on copies of "
                f"its inputs: {type(error).__name__}: {error}",
                stacklevel=3,
            )
            return
        finally:
            _set_random_state(self_state)
        for one in self.memory:
            self._compare(one, drew)

    def _compare(self, one: _Memory, drew: bool) -> None:
        sizes = one.storage.nbytes(), one.copy.nbytes()
        listed = " and ".join(name for name, _ in one.places)
        if sizes[0] != sizes[1]:
            raise MemoryDiffers(
                f"{self.program}: the storage of {listed} has {sizes[0]} bytes after the call; in eager, {sizes[1]}"
            )
        now, eager = _elements(one.storage, one.dtype), _elements(one.copy, one.dtype)
        wrong = ~_close(now, eager, tolerance(one.dtype))
        if drew and one.before.nbytes() == sizes[0]:
            wrong &= _close(eager, _elements(one.before, one.dtype), 0.0)
        if not bool(wrong.any()):
            return
        k = int(wrong.nonzero()[0])
        names = [name for name, place in one.places if _touches(place, wrong, one.dtype)]
        subject = " and ".join(names) or f"memory next to {listed}, in the same storage,"
        raise MemoryDiffers(
            f"{self.program}: {subject} differs from eager after the call: element {k} of its storage is "
            f"{now[k].item()}, in eager {eager[k].item()}; {int(wrong.sum())} elements differ. Please report "
            "this"
        )


def _has_memory(value: torch.Tensor) -> bool:
    return value.layout is torch.strided and not is_subclass(value) and value.device.type != "meta"


def _alias(value: torch.Tensor) -> torch.Tensor:
    """An alias that keeps the layout of a tensor even if the call changes it."""
    return tensors.without_bits(value.detach()).as_strided(value.shape, value.stride(), value.storage_offset())


def _is_rounded(dtype: torch.dtype) -> bool:
    """Whether results of this dtype may differ slightly; others are compared byte by byte."""
    return (dtype.is_floating_point or dtype.is_complex) and dtype.itemsize > 1


def _close(one: torch.Tensor, other: torch.Tensor, near: float) -> torch.Tensor:
    return torch.isclose(one, other, near, near, equal_nan=True) if _is_rounded(one.dtype) else one == other


def _elements(storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.Tensor:
    """A whole storage as a flat tensor. Bytes after the last whole element are left out."""
    with torch.inference_mode(False), torch.no_grad():
        whole = torch.empty(0, dtype=dtype, device=storage.device)
        return whole.set_(storage, 0, (storage.nbytes() // dtype.itemsize,), (1,))


def _touches(place: torch.Tensor, wrong: torch.Tensor, dtype: torch.dtype) -> bool:
    if not place.numel():
        return False
    if place.dtype.itemsize == dtype.itemsize:
        return bool(wrong.as_strided(place.shape, place.stride(), place.storage_offset()).any())
    first, end = storages.span(place)
    return bool(wrong[first // dtype.itemsize : -(-end // dtype.itemsize)].any())


def _random_state() -> list[torch.Tensor]:
    on_gpu = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *on_gpu]


def _set_random_state(states: Sequence[torch.Tensor]) -> None:
    torch.set_rng_state(states[0])
    if states[1:]:
        torch.cuda.set_rng_state_all(list(states[1:]))
