"""Compute the memory sizes of a recorded graph's values, and format an amount of memory as text."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from aotviz.recording.schema import NONE, GraphSnapshot, ValueRecord

LONGEST = 1000  # characters of a symbolic size that are read
_HIGHEST = 8  # exponent that is computed: a text may come from a stranger


def _power(base: int, exponent: int) -> int:
    if not 0 <= exponent <= _HIGHEST or abs(base) >> 63:
        raise OverflowError
    return int(base**exponent)


_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_FUNCTIONS: Mapping[str, Callable[..., int]] = {
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Max": max,
    "Min": min,
    "max": max,  # in Inductor's code
    "min": min,
    "CeilToInt": math.ceil,
    "TruncToInt": math.trunc,
}

VIEW = re.compile(  # operators that allocate no memory: their results are in their first argument
    r"aten\.(?:alias|as_strided|detach|diagonal|expand|permute|select|slice|split|split_with_sizes|squeeze|t|transpose|"
    r"unbind|_?unsafe_view|unsqueeze|view|view_as_complex|view_as_real)\.\w+"
)


@lru_cache(64)  # of a few dtypes, and of each value
def element_bytes(dtype: str) -> int:
    """The bytes of one element of a dtype, given by name. Dtypes smaller than a byte count as one byte.

    >>> [element_bytes(name) for name in ("torch.float32", "torch.bool", "torch.float8_e4m3fn", "torch.complex64")]
    [4, 1, 1, 8]
    """
    bits = re.search(r"\d{1,9}", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1


def told(nbytes: int) -> str:
    """An amount of memory as the workbench writes it.

    >>> told(0), told(1023), told(1536), told(17_196_646), told(139_520)
    ('0 B', '1023 B', '1.50 KiB', '16.4 MiB', '136.3 KiB')
    """
    size, units = float(nbytes), ["TiB", "GiB", "MiB", "KiB"]
    if nbytes < 1024:
        return f"{nbytes} B"
    while (size := size / 1024) >= 1024 and len(units) > 1:
        units.pop()
    digits = 2 if size < 10 else 1
    rounded = math.floor(size * 10**digits + 0.5) / 10**digits  # halves up, as in a browser
    return f"{rounded:.{digits}f} {units[-1]}"


def kept(sizes: Sequence[int | None], inputs: int) -> str:
    """A sentence on what is saved for the backward. `sizes`: the bytes of each value that needs memory, None for a
    symbolic size. `inputs`: the number of saved values in memory that the caller holds anyway.

    >>> kept([64, 64], 1), kept([], 2), kept([8, None], 0)
    ('2 values kept for the backward, 128 B, and 1 input', '2 inputs kept for the backward', '2 values kept for the backward, 8 B and 1 of symbolic size')
    """  # noqa: E501
    if not sizes:
        return f"{counted(inputs, 'input') if inputs else 'nothing'} kept for the backward"
    known = [size for size in sizes if size is not None]
    symbolic = f" and {len(sizes) - len(known)} of symbolic size" if len(known) < len(sizes) else ""
    also = f", and {counted(inputs, 'input')}" if inputs else ""
    return f"{counted(len(sizes), 'value')} kept for the backward, {told(sum(known))}{symbolic}{also}"


def counted(count: int, noun: str) -> str:
    """
    >>> counted(1, "input"), counted(3000, "input")
    ('1 input', '3,000 inputs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def graph_bytes(graph: GraphSnapshot, values: Sequence[ValueRecord], strings: Sequence[str]) -> int:
    """Bytes of all values that the graph's operators make, counting each storage once, and the inputs' storages not
    at all. NONE if a size is symbolic.
    """
    largest: dict[int, int] = {}
    given = {
        values[number].storage for op, number in zip(graph.op, graph.value, strict=True) if op == "p" and number >= 0
    }
    for number in tensors(_made(graph), values):
        value = values[number]
        if value.storage >= 0 and value.storage in given:
            continue
        nbytes = value_bytes(value, strings[value.dtype])
        if nbytes is None:
            return NONE
        key = value.storage if value.storage >= 0 else ~number  # storage unknown: count the value by itself
        largest[key] = max(largest.get(key, 0), nbytes)
    return sum(largest.values())


def made_bytes(graph: GraphSnapshot, values: Sequence[ValueRecord], strings: Sequence[str]) -> list[int | None]:
    """The bytes that each node allocates, None if a size is symbolic. Inputs and views allocate nothing. The items of a
    tuple count for the node that computes the tuple.
    """
    storages: set[int] = set()
    seen: set[int] = set()

    def made(number: int) -> int | None:
        new = [other for other in tensors([number] if number >= 0 else [], values) if other not in seen]
        sizes: list[int | None] = []
        for other in new:
            seen.add(other)
            value = values[other]
            if value.storage not in storages:
                sizes.append(value_bytes(value, strings[value.dtype]))
            if value.storage >= 0:
                storages.add(value.storage)
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    for op, number in zip(graph.op, graph.value, strict=True):
        if op == "p":
            made(number)
    return [0 if op in "po" else made(number) for op, number in zip(graph.op, graph.value, strict=True)]


def value_bytes(value: ValueRecord, dtype: str) -> int | None:
    """The bytes of a tensor's elements; None if its size is symbolic."""
    known = [size for size in value.shape if isinstance(size, int)]
    return math.prod(known) * element_bytes(dtype) if len(known) == len(value.shape) else None


def storage_bytes(
    graph: GraphSnapshot, known: Sequence[int], values: Sequence[ValueRecord], strings: Sequence[str]
) -> dict[int, int | None]:
    """Bytes of the storage groups of the values `known` and of the values that the graph's operators make.

    A storage ends where the last element of its values ends. None if a size is symbolic.
    """
    found: dict[int, int | None] = {}
    for number in tensors([*known, *_made(graph)], values):
        value = values[number]
        if value.storage >= 0:
            before, end = found.get(value.storage, 0), reach(value.offset, value.shape, value.stride)
            nbytes = None if end is None else end * element_bytes(strings[value.dtype])
            found[value.storage] = None if before is None or nbytes is None else max(before, nbytes)
    return found


def reach(offset: int | str, shape: Sequence[int | str], stride: Sequence[int | str]) -> int | None:
    """Elements from the beginning of a storage to the end of a tensor in it; None if that is symbolic or unknown.

    >>> reach(2, [3, 4], [4, 1]), reach(0, [0], [1]), reach(0, ["s0"], [1])
    (14, 0, None)
    """
    if len(shape) != len(stride):
        return None
    if type(offset) is not int:
        return None
    last = offset
    for size, step in zip(shape, stride, strict=True):
        if type(size) is not int or type(step) is not int:
            return None
        if size == 0:
            return 0
        last += (size - 1) * step
    return last + 1


def evaluated(size: int | str, symbols: Mapping[str, int]) -> int:
    """A size; a symbolic one for these values of its symbols.

    Raises ValueError if a symbol has no value, or the text is no arithmetic.

    >>> evaluated("2*s0 + s1//4", {"s0": 3, "s1": 9}), evaluated("Max(1, s0**2)", {"s0": 4})
    (8, 16)
    """
    if isinstance(size, int):
        return size
    try:
        return int(_value(ast.parse(size[:LONGEST], mode="eval").body, symbols))
    except (SyntaxError, KeyError, TypeError, ZeroDivisionError, OverflowError, RecursionError):
        names = ", ".join(sorted(set(re.findall(r"\b(?:s|u|zuf|z)\d+", size[:LONGEST])) - symbols.keys()))
        missing = f"give the value of {names}, as in sizes={{'{names.split(', ')[0]}': 4}}" if names else "unreadable"
        raise ValueError(f"the size {size[:LONGEST]!r} is not known: {missing}") from None


def _value(node: ast.AST, symbols: Mapping[str, int]) -> Any:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return symbols[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, symbols)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, symbols), _value(right, symbols))
        case ast.Call(func=ast.Name(id=name), args=args):
            return _FUNCTIONS[name](*(_value(arg, symbols) for arg in args))
    raise TypeError


def _made(graph: GraphSnapshot) -> list[int]:
    """The values that the graph's operators make."""
    return [number for op, number in zip(graph.op, graph.value, strict=True) if op not in "po" and number >= 0]


def tensors(numbers: Sequence[int], values: Sequence[ValueRecord]) -> Iterator[int]:
    """The tensors among the values, and those inside tuples, each once."""
    pending, seen = list(numbers), set[int]()  # a tuple may contain a value twice, and may itself occur twice
    while pending:
        number = pending.pop()
        if number not in seen:
            seen.add(number)
            pending += (part for part in values[number].parts if part >= 0)  # -1: it is None
            if values[number].kind == "tensor":
                yield number
