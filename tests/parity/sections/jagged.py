"""Jagged tensors, given or built inside."""

from __future__ import annotations

from collections.abc import Iterator

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
    programs = Programs(jagged.SCOPE, jagged.inputs)
    for views in (False, True):
        yield of_expression(programs, group, views, LOSS)


def of_expression(programs: Programs, expression: str, views: bool, loss: str) -> Case:
    key = f"{expression}#{'views' if views else 'leaves'}, {loss}"
    return Beside(key, lambda backend: programs.differs(expression, backend, views, loss)).case()


also = in_eager
