"""Programs over jagged tensors, given or built inside: what torch has right is neither wrong nor refused here."""

from __future__ import annotations

import pytest
import torch

from tests.oracle import jagged_expressions as jagged
from tests.oracle.expressions import DOORS, allowed, difference, made, names_in, run
from tests.tiers import in_turns

WAYS = [("torch.compile", False), ("aot_function", True), ("torch.compile", True), ("aot_function", False)]


def differs(expression, door, views):
    """How the results and gradients through a door differ from eager's."""
    torch._dynamo.reset()
    names = names_in(expression, jagged.inputs())
    fn = made(expression, names, jagged.SCOPE)
    eager = run(fn, jagged.inputs(), names, views)
    return difference(run(DOORS[door](fn), jagged.inputs(), names, views), eager)


@pytest.mark.parametrize(("expression", "way"), in_turns(jagged.PROGRAMS, WAYS, every=2))
def test_a_jagged_program_is_right_where_torch_is(expression, way):
    door, views = way
    found = differs(expression, door, views)
    assert allowed(door, found, lambda: differs(expression, "aot_eager", views)), found
