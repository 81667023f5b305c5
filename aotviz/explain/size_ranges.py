"""Whether an operator split a size into ranges, of which each needs a program, or a branch of the program did.

Some operators choose between algorithms by a size: a convolution, for example, by the batch size. While tracing, the
operator asks whether the size is below a bound, and the answer becomes a guard. Torch logs where it was asked: within
the fake kernel of an operator, or at a jump of the traced function.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from aotviz.explain.rows import Facts
from aotviz.recording.schema import ShapeRecord
from aotviz.recording.spoken import spoken

BOUND = re.compile(r"(?P<symbol>s\d{1,9}) (?P<than><|<=|>|>=) (?P<bound>\d{1,18})")
OF_KERNEL = "/torch/_subclasses/fake_tensor.py"  # operators are run there while tracing
NUMBER = re.compile(r"\b\d{1,18}\b")


@dataclass(frozen=True)
class Split:
    """A bound that an operator compared a size with."""

    size: str  # "ids.shape[0]"
    least: int  # of the upper range
    record: ShapeRecord

    @property
    def words(self) -> str:
        return (
            f"an operator in this line has one algorithm for `{self.size}` below {self.least} and another from there on"
        )


def by_operator(facts: Facts, program: int, condition: str) -> Split | None:
    """The comparison by an operator to which a guard on sizes of a program is due: "2 <= ids.shape[0] <= 15"."""
    rows = facts.about(program, facts.data.shapes) if program >= 0 else ()
    sizes = {facts.text(row.expression): spoken(facts.text(row.source)) for row in rows if row.kind == "create_symbol"}
    for row in rows:
        asked = BOUND.fullmatch(facts.text(row.expression)) if row.kind.startswith("guard_added") else None
        size = sizes.get(asked["symbol"], "") if asked else ""
        if not asked or not size or size not in condition or OF_KERNEL not in facts.text(row.framework_stack):
            continue
        least = int(asked["bound"]) + (asked["than"] in ("<=", ">"))
        if {str(least), str(least - 1)} & {*NUMBER.findall(condition.replace(size, ""))}:
            return Split(size, least, row)
    return None
