"""The texts of a recording: harmless when they come in, and stored once.

Names and messages may be a stranger's, and end up in terminals and errors. So `clean` is where text enters, from a
program, a log or a file: it writes as an escape what a terminal would obey, or what would hide or reorder other text.
What is in a recording can then be printed by anybody. Texts made later from JSON or from a literal are cleaned again.

A joint graph and its forward and backward have the same node names, source lines and operators. If each text were
stored in every place, texts would be nine tenths of a recording. This module does not import torch.
"""

from __future__ import annotations

import json
import operator
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec.structs import replace

from aotviz.recording.schema import NONE

R = TypeVar("R", bound=msgspec.Struct)


def clean(text: str) -> str:
    r"""The text as a plain `str` in which every unprintable character but line ends and tabs is an escape.

    The escapes are those of JSON, so that JSON stays JSON. A lone surrogate, which UTF-8 cannot encode, is escaped too.

    >>> clean("\x1b[2J\u202e a\tb\r\n")
    '\\u001b[2J\\u202e a\tb\n'
    """
    text = text if type(text) is str else str.__str__(text)
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n")
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else json.dumps(c)[1:-1] for c in text)


def cleaned(record: R) -> R:
    """The record with all its texts clean, in nested records and in the arguments of nodes too."""
    old = {name: value for name in _with_text(type(record)) if (value := getattr(record, name))}
    fields = {name: new for name, value in old.items() if (new := _cleaned(value)) is not value}
    return replace(record, **fields) if fields else record


def parsed(text: str) -> Any:
    """The content of a JSON text, with clean texts. Raises ValueError, also if it is nested too deep."""
    try:
        return _cleaned(json.loads(text))
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _cleaned(value: Any) -> Any:
    """The value with clean texts; itself if they are."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        parts = list(map(_cleaned, value))
        return value if all(map(operator.is_, parts, value)) else parts
    if isinstance(value, dict):
        pairs = {_cleaned(key): _cleaned(part) for key, part in value.items()}
        same = all(map(operator.is_, pairs.values(), value.values())) and pairs.keys() == value.keys()
        return value if same else pairs
    return cleaned(value) if isinstance(value, msgspec.Struct) else value


@cache
def _with_text(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields of a kind of record that may contain a text."""
    return tuple(name for name, hint in get_type_hints(kind).items() if _may_have_text(hint))


@cache
def _may_have_text(hint: Any) -> bool:
    if hint in (str, Any):
        return True
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return bool(_with_text(hint))
    return any(map(_may_have_text, get_args(hint)))


class StringTable:
    """Texts in the order of their first use.

    >>> table = StringTable()
    >>> table.add("add"), table.add("mul"), table.add("add"), table.add(None)
    (0, 1, 0, -1)
    >>> table.texts
    ['add', 'mul']
    """

    def __init__(self, texts: list[str] | None = None) -> None:
        self.texts: list[str] = [] if texts is None else list(texts)
        self.numbers: dict[str, int] = {text: number for number, text in enumerate(self.texts)}
        self.characters = sum(map(len, self.texts))

    def add(self, text: str | None) -> int:
        """The text's number, which is new if the text is new; NONE if `text` is None."""
        if text is None:
            return NONE
        number = self.numbers.get(text)
        if number is None:
            number = self.numbers[text] = len(self.texts)
            self.texts.append(clean(text))
            self.characters += len(text)
        return number
