"""The error that this folder raises if it finds something that cannot be traced.

`ir/refusals.py` turns it into a refusal. The messages are in its list, which this folder must not import.
"""

from __future__ import annotations


class CannotTrace(NotImplementedError):
    """`reason` is a key of `RULES` in `ir/refusals.py`; the others are inserted into its message."""

    def __init__(self, reason: str, names: str = "", operator: str = "", instead: str = "") -> None:
        super().__init__(": ".join(filter(None, (reason, names, operator))))
        self.reason, self.names, self.operator, self.instead = reason, names, operator, instead
