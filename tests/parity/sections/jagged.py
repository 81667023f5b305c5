"""Jagged tensors, given or built inside."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tests.oracle import jagged_expressions as jagged
from tests.oracle.expressions import Programs

from ..beside import Beside, in_eager
from ..cases import Case

TITLE = "Jagged tensors"
ABOUT = """
The programs of `tests/oracle/jagged_expressions.py` under `torch.compile`, on leaves and on inputs that are not leaves:
results, gradients, what was written, and what shares memory. Backend "aotviz_eager" beside torch's "aot_eager", and
both beside eager. A program that raises an error in eager is equal if it raises one.
`python -m tests.parity --section jagged` writes this section.
"""
LOSS = "sine of the parts"


def groups() -> list[str]:
    return jagged.PROGRAMS


def cases(group: str) -> Iterator[Case]:
    return of_expression(Programs(jagged.SCOPE, jagged.inputs), group, [LOSS])


def of_expression(programs: Programs, expression: str, losses: list[str]) -> Iterator[Case]:
    """The cases of one program: each loss, on leaves and on other tensors."""
    for views, loss in product((False, True), losses):
        key = f"{expression}#{'views' if views else 'leaves'}, {loss}"
        yield Beside(key, lambda backend, at=(views, loss): programs.differs(expression, backend, *at)).case()


also = in_eager
