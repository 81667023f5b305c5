"""Whether the fields of a dataclass have the types that it declares.

What an entry says becomes lines of a wrapper. A number that is really a text could be such a line, so a stored
dataclass is made only of what its fields declare. `Any` and protocols declare nothing: what lies there is checked where
it is used. Texts become code only as literals or identifiers: see Note [Safe names] in ir/spelling.py. The exceptions
are the texts of `FORMS`.
"""

from __future__ import annotations

import functools
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from typing import Any

Check = Callable[[Any], bool]

_TEXT = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
# To a part of a subclass, such as ".a.b" or ".a.size(0)", as `attribute` of ir/spelling.py writes it.
_PATH = re.compile(rf"(\.[A-Za-z_]\w*|\.(size|stride)\(\d+\)|\.__getattribute__\(({_TEXT})\))*", re.ASCII)
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Texts that become code as they are, by the names of their fields.
FORMS: Mapping[str, re.Pattern[str]] = {"path": _PATH, "kind": _WORD, "method": _WORD}


def named(kind: type, values: Sequence[Any]) -> dict[str, Any]:
    """The values of all fields of `kind`, by name: some fields are keywords alone.

    Raises:
        TypeError: a value is not what its field declares.
        ValueError: there are more or fewer than fields.
    """
    found = dict(zip((name for name, _ in _checks(kind)), values, strict=True))
    check(kind, found)
    return found


def check(kind: type, values: Mapping[str, Any]) -> None:
    """Raises TypeError if one of these values of some fields, by name, is not what its field declares."""
    for name, fits in _checks(kind):
        if name in values and fits is not None and not fits(values[name]):
            raise TypeError(f"{kind.__name__}.{name} cannot be {values[name]!r:.80}")


@functools.cache
def _checks(kind: type) -> tuple[tuple[str, Check | None], ...]:
    hints = typing.get_type_hints(kind)
    found = []
    for one in fields(kind):
        form = FORMS.get(one.name) if hints[one.name] is str else None
        found.append((one.name, _matches(form) if form is not None else of(hints[one.name])))
    return tuple(found)


def _matches(form: re.Pattern[str]) -> Check:
    return lambda value: type(value) is str and form.fullmatch(value) is not None


def of(hint: Any) -> Check | None:
    """What a value must fulfil to be what an annotation says; None if anything does."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or isinstance(hint, typing.TypeVar):
        return None
    if origin in (typing.Union, types.UnionType):
        options = [of(one) for one in arguments]
        if None in options:
            return None
        return lambda value: any(one(value) for one in options if one is not None)
    if origin is tuple:
        return _of_tuple(arguments)
    if origin in (list, frozenset, set):
        inner = of(arguments[0])
        return lambda value: type(value) is origin and (inner is None or all(map(inner, value)))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        keys, values = map(of, arguments)
        return lambda value: (
            isinstance(value, Mapping)
            and all((keys is None or keys(key)) and (values is None or values(one)) for key, one in value.items())
        )
    if origin is not None:  # such as a Callable, which no data is
        return callable
    if typing.Protocol in getattr(hint, "__bases__", ()):
        return None
    if hint is None or hint is type(None):
        return lambda value: value is None
    if hint is int:
        return lambda value: type(value) is int
    if isinstance(hint, type) and (hint in (bool, str, float) or issubclass(hint, Enum)):
        return lambda value: type(value) is hint
    return (lambda value: isinstance(value, hint)) if isinstance(hint, type) else None


def _of_tuple(arguments: tuple[Any, ...]) -> Check:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        inner = of(arguments[0])
        return lambda value: type(value) is tuple and (inner is None or all(map(inner, value)))
    items = [of(one) for one in arguments]
    return lambda value: (
        type(value) is tuple
        and len(value) == len(items)
        and all(one is None or one(item) for one, item in zip(items, value, strict=True))
    )
