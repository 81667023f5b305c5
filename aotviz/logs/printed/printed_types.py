"""Parse the annotations of printed values, e.g. `"f32[s0, 3][3, 1]cpu"`: dtype, sizes, strides and device.

A tensor subclass is printed as `DTensor(f32[8][1]cuda:0, S(0))`; the result describes the tensor inside. Symbolic
numbers are printed as `Sym(s0)`. Some of torch's printers leave out strides and device; these are then unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from aotviz.recording.listing import SHORT

LONG = {short: long for long, short in SHORT.items()}
TENSOR = re.compile(r"(?P<dtype>\w+)\[(?P<shape>[^\[\]]*)\](?:\[(?P<stride>[^\[\]]*)\])?(?P<device>[a-z]\w*(?::\d+)?)?")
SUBCLASS = re.compile(r"(?P<name>[\w.]+)\((?P<inside>.*)\)", re.DOTALL)
RELATION = re.compile(r"[<>]=?|[!=]=|\b(?:Eq|Ne|Lt|Le|Gt|Ge|And|Or|Not)\(|\b(?:True|False)\b")
MOST_NESTED = 20  # subclasses in subclasses
FLOAT = re.compile(r"\bzu?f\d+\b|\bToFloat\(|\bFloat|\b(?:IntTrueDiv|OpaqueUnary)|\d\.\d")


@dataclass(frozen=True)
class Annotation:
    """One value's type. `kind` is that of a ValueRecord: "tensor", "symint", "symfloat", "symbool"."""

    kind: str
    dtype: str = ""  # e.g. "torch.float32"
    shape: tuple[int | str, ...] = ()  # elements
    stride: tuple[int | str, ...] = ()  # elements; also empty if it was not printed
    device: str = ""
    text: str = ""  # the expression of a symbolic number


@lru_cache(4096)  # a model's values have few different types
def annotation(text: str, nested: int = 0) -> Annotation | None:
    """The type in a printed annotation; None if the annotation does not describe a value. `nested` counts the
    subclasses around it.

    >>> annotation("f32[s0, 3][3, 1]cuda:0")
    Annotation(kind='tensor', dtype='torch.float32', shape=('s0', 3), stride=(3, 1), device='cuda:0', text='')
    >>> annotation("Sym(s0 >= 2)")
    Annotation(kind='symbool', dtype='', shape=(), stride=(), device='', text='s0 >= 2')
    """
    found = TENSOR.match(text)
    if found is not None:
        shape, stride = found["shape"], found["stride"]
        return Annotation(
            "tensor",
            LONG.get(found["dtype"], found["dtype"]),
            numbers(shape),
            numbers(stride or ""),
            found["device"] or "",
        )
    named = SUBCLASS.fullmatch(text)
    if named is None:
        return None
    if named["name"] == "Sym":
        inside = named["inside"]
        kind = "symbool" if RELATION.search(inside) else "symfloat" if FLOAT.search(inside) else "symint"
        return Annotation(kind, text=inside)
    return annotation(named["inside"], nested + 1) if nested < MOST_NESTED else None


def numbers(text: str) -> tuple[int | str, ...]:
    """The sizes in a bracket, split at commas, but not at commas inside a symbolic size.

    >>> numbers("4, Max(1, s0), 2*s1")
    (4, 'Max(1, s0)', '2*s1')
    """
    if not text:
        return ()
    if "(" not in text:
        return tuple(map(number, text.split(", ")))
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return tuple(map(number, [*parts, text[start:].strip()]))


def number(text: str) -> int | str:
    """A size in elements, or its expression."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 19 else text
