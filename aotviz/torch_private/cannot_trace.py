"""What a trace finds out in the middle of torch: this folder raises it, and `ir/refusals.py` puts it into words.

The words belong to the one list of refusals, which stands above this folder and cannot be imported here.
"""

from __future__ import annotations


class CannotTrace(NotImplementedError):
    """`reason` is a name of the list in `ir/refusals.py`; the rest fills the blanks of its message."""

    def __init__(self, reason: str, names: str = "", operator: str = "", instead: str = "") -> None:
        super().__init__(": ".join(filter(None, (reason, names, operator))))
        self.reason, self.names, self.operator, self.instead = reason, names, operator, instead
