"""Find the numbers in a record that refer to texts, by the types of its fields, so that no list is kept by hand.

Fields of type `Text` (events.py), lists and mappings of them, and nested records are found at any depth. files.py
checks all of these numbers, and merging.py changes all of them. The graphs and values of a compilation have their
own encoding (`["L", {"r": 3}]`), which files.py and merging.py handle themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import replace

from aotviz.recording.events import GraphSnapshot, Text, ValueRecord

R = TypeVar("R", bound=msgspec.Struct)
APART = (GraphSnapshot, ValueRecord)


def of(record: msgspec.Struct) -> Iterator[int]:
    """Every number in the record that refers to a text.

    >>> from aotviz.recording.events import RecompileReason
    >>> list(of(RecompileReason("0/0", guard=3, code=1, place=-1, stack=-1, raw=2)))
    [3, 1, -1, -1, 2]
    """
    for field, form in _plan(type(record)):
        yield from _numbers(getattr(record, field), form)


def changed(record: R, new: Sequence[int]) -> R:
    """The record with every text number `i` changed to `new[i]`. `new` ends with NONE, so that `new[NONE]` is NONE."""
    fields = {field: _changed(getattr(record, field), form, new) for field, form in _plan(type(record))}
    return replace(record, **fields) if fields else record


@cache
def _plan(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    """(field, form) of the fields that contain text numbers: "text", "record", or ("list" or "dict", inner form)."""
    hints = get_type_hints(kind, include_extras=True)
    forms = ((field, _form(hints[field])) for field in kind.__struct_fields__)
    return tuple((field, form) for field, form in forms if form is not None)


def _form(hint: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint == Text:
        return "text"
    if origin is Annotated:
        return _form(arguments[0])
    if origin in (list, dict):
        inner = _form(arguments[-1])
        return None if inner is None else (origin.__name__, inner)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint not in APART:
        return "record" if _plan(hint) else None
    return None


def _numbers(value: Any, form: Any) -> Iterator[int]:
    if form == "text":
        yield value
    elif form == "record":
        yield from of(value)
    elif form[1] == "text":
        yield from value if form[0] == "list" else value.values()
    else:
        for part in value if form[0] == "list" else value.values():
            yield from _numbers(part, form[1])


def _changed(value: Any, form: Any, new: Sequence[int]) -> Any:
    if form == "text":
        return new[value]
    if form == "record":
        return changed(value, new)
    if form[0] == "list":
        return [_changed(part, form[1], new) for part in value]
    return {key: _changed(part, form[1], new) for key, part in value.items()}
