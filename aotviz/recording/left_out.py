"""What a watch notes of an export: the attributes that `forward` sets and the exported program does not."""

from __future__ import annotations

import msgspec

RECORD = "aotviz_left_out_of_export"  # the name of an artifact in the log; its text is a list of `SetAttribute`


class SetAttribute(msgspec.Struct, frozen=True):
    """An attribute of a module that `forward` sets."""

    name: str  # "self.blocks[0].count"
    before: str
    now: str
    place: str  # "file:line" of the assignment; "" if it was not found
    code: str


def read(text: str) -> list[SetAttribute]:
    """
    >>> written = msgspec.json.encode([SetAttribute("self.n", "0", "1", "", "")])
    >>> read(written.decode())[0].now
    '1'
    """
    return msgspec.json.decode(text, type=list[SetAttribute])
