"""Programs over jagged tensors, given or built inside: what torch has right is neither wrong nor refused here."""

from __future__ import annotations

import pytest

from tests.oracle import jagged_expressions as jagged
from tests.oracle.expressions import Programs
from tests.tiers import in_turns

WAYS = [("aotviz_eager", False), ("aot_function", True), ("aotviz_eager", True), ("aot_function", False)]


@pytest.mark.parametrize(("expression", "way"), in_turns(jagged.PROGRAMS, WAYS, every=2))
def test_a_jagged_program_is_right_where_torch_is(expression, way):
    Programs(jagged.SCOPE, jagged.inputs).check(expression, *way, "sine of the parts")
