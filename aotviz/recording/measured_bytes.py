"""Planned memory beside measured memory, node by node.

The measurement is a list of the operators that ran, each with the storages that were alive when it returned, and when
the next one began (`recorder/live_storages.py`). The nodes of the plan that are operators are found in that list,
in order; what others made, such as autograd's own nodes or the wrapper, does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from aotviz.recording.listing import Node
from aotviz.recording.live_bytes import Moment, Timeline, given_bytes


class Made(NamedTuple):
    """A storage that an operator made."""

    nbytes: int
    by: int  # the number of the operator that made it
    device: str = ""


class Ran(NamedTuple):
    """An operator that ran."""

    operator: str
    alive: tuple[Made, ...]  # when it returned
    after: tuple[Made, ...]  # when the next one began
    of_graph: bool = True  # a graph called it, not the wrapper or autograd


class ComparedNode(NamedTuple):
    """A node of the plan, with the bytes that are alive while it runs and after it: planned, and measured."""

    phase: str
    node: str
    operator: str
    planned: tuple[int, int]
    measured: tuple[int, int]
    given: int  # planned bytes of inputs, parameters and tangents, which others make

    def __str__(self) -> str:
        plan = f"planned {self.planned[0]} and {self.planned[1]} bytes"
        found = f"measured {self.measured[0]} and {self.measured[1]}"
        return f"{self.phase} {self.node} ({self.operator}): {plan}, {found}"


def compared(memory: Timeline, ran: Sequence[Ran]) -> tuple[list[ComparedNode], list[str]]:
    """Each operator of the plan beside what was measured on its devices, and where they differ: a line for each node.
    Bytes of inputs, parameters and tangents are left out.

    If an operator of the plan did not run, that is the only line, and nothing can be put beside.
    """
    planned: list[tuple[Moment, int, int]] = []  # an operator, the bytes that are left after it, and those of others
    freed: Counter[int] = Counter()  # bytes of tangents, by the moment
    for holder in memory.all_holders:
        freed[holder.held_until] += holder.nbytes if holder.kind == "tangent" else 0
    for moment in memory.rows:
        others = given_bytes(moment)
        kept = moment.after - others + freed[moment.at]
        if _is_operator(moment.node):
            planned.append((moment, kept, others))
        elif planned:
            planned[-1] = (planned[-1][0], kept, planned[-1][2])  # its items are taken
    left, numbers = enumerate(ran), list[int]()
    for moment, _, _ in planned:
        number = next((number for number, one in left if one.of_graph and one.operator == moment.node.target), None)
        if number is None:
            return [], [f"{moment.phase} {moment.node.name}: {moment.node.target} did not run"]
        numbers.append(number)
    ours, found = set(numbers), []
    for number, (moment, kept, others) in zip(numbers, planned, strict=True):
        one, node = ran[number], moment.node
        alive, after = (
            sum(made.nbytes for made in some if made.by in ours and memory.device in ("", made.device))
            for some in (one.alive, one.after)
        )
        plan = moment.alive - others, kept
        found.append(ComparedNode(moment.phase, node.name, node.target, plan, (alive, after), others))
    return found, [str(one) for one in found if one.planned != one.measured]


def _is_operator(node: Node) -> bool:
    """Whether a mode that sees operators sees it. It does not see the reading of a size."""
    return not node.target.startswith("aten.sym_") and (
        node.target.count(".") == 2 or node.target.startswith("higher_order.")
    )
