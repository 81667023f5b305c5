"""How names and values of a program are spelled in generated source.

Note [Safe names]
A program's names are data. The name of a function may contain a brace, a quote or a line break, but it must never
become code. A name gets into a line of source in only two ways: as an identifier that `Source.fresh` or `Source.bind`
makes from it, or as a literal that `literal` makes. `attribute` and `keywords` use a name as an attribute or a keyword
if it is an identifier, and else as a literal. `spoken` makes a comment from a fact: the result has no character that
ends the line. tests/test_safe_names.py checks each line.
"""

from __future__ import annotations

import inspect
import keyword
import math
from collections.abc import Iterable
from typing import Any


def spoken(text: str) -> str:
    r"""A text as one printable line, for a comment or the name of a file.

    >>> spoken("a\nb")
    'a b'
    >>> spoken(chr(0))
    '\\x00'
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(text.split()))


def is_identifier(name: str) -> bool:
    """Whether a name can be used in source unchanged. Python normalizes many names that are not ASCII to others."""
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


def attribute(name: str) -> str:
    """The source that reads an attribute of any name, to be put after an expression.

    >>> attribute("scale"), attribute("a b")
    ('.scale', ".__getattribute__('a b')")
    """
    return f".{exact(name)}" if is_identifier(name) else f".__getattribute__({literal(name)})"


def keywords(arguments: Iterable[tuple[str, str]]) -> list[str]:
    """Keyword arguments of a call, from pairs of a name and an expression.

    >>> keywords([("dim", "0"), ("a b", "1")])
    ['dim=0', "**{'a b': 1}"]
    """
    return [
        f"{exact(name)}={value}" if is_identifier(name) else f"**{{{literal(name)}: {value}}}"
        for name, value in arguments
    ]


def exact(name: str) -> str:
    """The same characters as a plain `str`, because the `repr` of a subclass may show others."""
    return str.__str__(name)


def called(fn: Any) -> str:
    """The name of a function, or of the type of another callable."""
    return exact(str(getattr(fn, "__name__", type(fn).__name__)))


def positional(fn: Any) -> list[str]:
    """The names of the positional arguments of a function or a module; none for a builtin without a signature."""
    try:
        parameters = inspect.signature(getattr(fn, "forward", fn)).parameters.values()
    except (TypeError, ValueError):
        return []
    return [one.name for one in parameters if one.kind < one.VAR_POSITIONAL]


def literal(value: Any) -> str:
    """A value of a built-in type as source. For a subclass, this is the `__repr__` of the built-in type.

    Raises:
        TypeError: a value of another type has no literal.

    >>> literal({"a": (1, [None, "x"])})
    "{'a': (1, [None, 'x'])}"
    """
    if value is None or value is True or value is False:
        return str(value)
    if isinstance(value, str):
        return str.__repr__(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float) and math.isfinite(value):
        return float.__repr__(value)
    if isinstance(value, (tuple, list)):
        items = ", ".join(map(literal, value))
        if isinstance(value, list):
            return f"[{items}]"
        return f"({items},)" if len(value) == 1 else f"({items})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(key)}: {literal(item)}" for key, item in value.items()) + "}"
    raise TypeError(f"a {type(value).__name__} cannot be written as a Python literal")
