"""What a terminal would obey, or what misleads its reader, put into each text of a recording and of a log."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from aotviz.recording.schema import RecordingData

EVIL = "\x1b[2J\x1b]0;title\x07\x9b31m\x7f\r\u202e\u2066\u2028"
LINE = re.compile(r"([A-Z]\d{4} \S+ +\d+ \S+:\d+\] )(\{.*)")


def obeyed(text: str) -> str:
    """The characters that must not reach a terminal: all that cannot be printed, but line ends and tabs."""
    return "".join(sorted(c for c in set(text) if not c.isprintable() and c not in "\n\t"))


def recordings(data: RecordingData, each_string: bool = True) -> Iterator[tuple[str, bytes]]:
    """(where, msgpack) of the recording with EVIL at the end of one text: of each field, and of each of `strings`."""
    plain = json.loads(msgspec.json.encode(data))
    seen: set[str] = set()
    for path in _texts(plain):
        where = re.sub(r"\.\d+(?=\.|$)", ".*", path) if not (each_string and path.startswith("strings.")) else path
        if where not in seen:
            seen.add(where)
            yield path, msgspec.msgpack.encode(_numbered(_changed(plain, path.split("."))))


def logs(content: str) -> Iterator[tuple[str, str]]:
    """(where, log) of the log with EVIL at the end of one text: of each kind of record, in its head or its payload."""
    records = re.split(r"\n(?!\t)", content)
    seen: set[str] = set()
    for number, record in enumerate(records):
        first, _, payload = record.partition("\n")
        if (match := LINE.fullmatch(first)) is None:
            continue
        head = json.loads(match[2])
        kind = next(iter(head))
        kind += "/" + head["artifact"]["name"] if kind == "artifact" else ""
        text = "\n".join(line.removeprefix("\t") for line in payload.split("\n"))
        for where, changed in _of_a_record(head, text):
            where = f"{kind}: {re.sub(r'[.][0-9]+(?=[.]|$)', '.*', where)}"
            if where not in seen:
                seen.add(where)
                yield where, "\n".join([*records[:number], match[1] + changed, *records[number + 1 :]])


def shortened(content: str, each: int = 3) -> str:
    """The first records of each kind of a log."""
    kept, counts = [], Counter[str]()
    for record in re.split(r"\n(?!\t)", content):
        if (match := LINE.fullmatch(record.partition("\n")[0])) is not None:
            head = json.loads(match[2])
            kind = next(iter(head))
            kind += "/" + head["artifact"]["name"] if kind == "artifact" else ""
            counts[kind] += 1
            if counts[kind] <= (100 if kind == "str" else each):
                kept.append(record)
    return "\n".join(kept)


def _of_a_record(head: dict[str, Any], text: str) -> Iterator[tuple[str, str]]:
    for path in _texts(head):
        if path != "has_payload":
            yield path, _record(_changed(head, path.split(".")), text)
    if not text:
        return
    try:
        found = json.loads(text)
    except ValueError:
        found = None
        for at, where in ((len(text), "its end"), (len(text) // 2, "its middle")):
            evil = EVIL.replace("\r", "").replace("\u2028", "")
            yield f"text, {where}", _record(head, text[:at] + evil + text[at:])
    for path in _texts(found) if isinstance(found, (dict, list)) else ():
        yield f"payload {path}", _record(head, json.dumps(_changed(found, path.split("."))))


def _record(head: dict[str, Any], text: str) -> str:
    if not text:
        return json.dumps(head)
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    return json.dumps(head | {"has_payload": digest}) + "\n\t" + text.replace("\n", "\n\t")


def _texts(value: Any, path: str = "") -> Iterator[str]:
    """The path of each text and each key that is within `value`: "a.0.b", or "a.#b" for the key."""
    if isinstance(value, str):
        yield path.removeprefix(".")
    elif isinstance(value, (list, dict)):
        parts = enumerate(value) if isinstance(value, list) else value.items()
        for key, part in parts:
            if "." not in str(key):
                yield from _texts(part, f"{path}.{key}")
                if isinstance(value, dict) and path and not str(key).isdigit():
                    yield f"{path}.#{key}".removeprefix(".")


def _changed(value: Any, path: list[str]) -> Any:
    if not path:
        return value + EVIL
    first, *rest = path
    if isinstance(value, list):
        return [_changed(part, rest) if str(number) == first else part for number, part in enumerate(value)]
    if first.startswith("#"):
        return {key + EVIL if key == first[1:] else key: part for key, part in value.items()}
    return {key: _changed(part, rest) if key == first else part for key, part in value.items()}


def _numbered(value: Any) -> Any:
    """With numbers for the keys that JSON made texts of."""
    if isinstance(value, list):
        return list(map(_numbered, value))
    if isinstance(value, dict):
        return {int(key) if key.isdigit() else key: _numbered(part) for key, part in value.items()}
    return value
