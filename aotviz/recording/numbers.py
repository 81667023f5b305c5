"""Find the numbers in a record that refer to texts, by the types of its fields, so that no list is kept by hand.

Fields of type `Text` (schema.py), lists and mappings of them, and nested records are found at any depth, and so are the
texts in the arguments of a graph's nodes. files.py checks these numbers, and merging.py changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import replace

from aotviz.recording.node_arguments import TEXT, references
from aotviz.recording.schema import GraphSnapshot, Text

R = TypeVar("R", bound=msgspec.Struct)
ARGUMENTS: dict[tuple[type, str], Any] = {
    (GraphSnapshot, "args"): ("list", "arguments"),
    (GraphSnapshot, "kwargs"): ("dict", "arguments"),
}


def of(record: msgspec.Struct) -> Iterator[int]:
    """Every number in the record that refers to a text.

    >>> from aotviz.recording.schema import RecompileReason
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
    """(field, form) of the fields that contain text numbers.

    A form is "text", "record", "arguments" (a list or mapping of them), or ("list", "dict" or "optional", the form
    inside).
    """
    hints = get_type_hints(kind, include_extras=True)
    forms = ((field, ARGUMENTS.get((kind, field)) or _form(hints[field])) for field in kind.__struct_fields__)
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
    if origin is UnionType and arguments[1:] == (type(None),):
        inner = _form(arguments[0])
        return None if inner is None else ("optional", inner)
    is_record = isinstance(hint, type) and issubclass(hint, msgspec.Struct)
    return "record" if is_record and _plan(hint) else None


def _numbers(value: Any, form: Any) -> Iterator[int]:
    if form == "text":
        yield value
    elif form == "record":
        yield from of(value)
    elif form == "arguments":
        for kind, number in references(value.values() if isinstance(value, dict) else value):
            if kind == TEXT:
                yield number
    elif form == ("list", "text"):  # the long columns of graphs
        yield from value
    elif form[0] == "optional":
        yield from () if value is None else _numbers(value, form[1])
    else:
        for part in value if form[0] == "list" else value.values():
            yield from _numbers(part, form[1])


def _changed(value: Any, form: Any, new: Sequence[int]) -> Any:
    if form == "text":
        return new[value]
    if form == "record":
        return changed(value, new)
    if form == "arguments":
        return _mapped(value, lambda part: _argument(part, new))
    if form == ("list", "text"):
        return [new[number] for number in value]
    if form[0] == "optional":
        return None if value is None else _changed(value, form[1], new)
    return _mapped(value, lambda part: _changed(part, form[1], new))


def _mapped(parts: Any, change: Callable[[Any], Any]) -> Any:
    """A list or mapping with each part changed."""
    return {key: change(part) for key, part in parts.items()} if isinstance(parts, dict) else list(map(change, parts))


def _argument(arg: Any, new: Sequence[int]) -> Any:
    """An encoded argument (see GraphSnapshot) with its texts renumbered; references to nodes do not change."""
    if isinstance(arg, list) and arg and arg[0] == "L":
        return ["L", *[_argument(part, new) for part in arg[1:]]]
    if isinstance(arg, dict):
        ((tag, content),) = arg.items()
        return {tag: new[content] if tag == "r" else _mapped(content, lambda part: _argument(part, new))}
    return arg
