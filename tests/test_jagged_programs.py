"""Programs over jagged tensors, given or built inside: what torch has right is neither wrong nor refused here."""

from __future__ import annotations

import pytest
import torch

from tests.oracle import jagged_expressions as jagged
from tests.oracle.expressions import Programs
from tests.tiers import in_turns

# Each program by each door, of leaves and of views; but by each door of one of these.
TURNS = [[("aotviz_eager", False), ("aot_function", True)], [("aot_function", False), ("aotviz_eager", True)]]
TABLE = [row for turn, ways in enumerate(TURNS) for row in in_turns(jagged.PROGRAMS[turn::2], ways, every=2)]


@pytest.mark.parametrize(("expression", "way"), TABLE)
def test_a_jagged_program_is_right_where_torch_is(expression, way):
    Programs(jagged.SCOPE, jagged.inputs).check(expression, *way, "sine of the parts")


def test_values_of_a_jagged_tensor_that_overlap_after_a_graph_break_run_in_eager(clean_dynamo):
    """They are views of a tensor with a jagged size, which is neither smaller nor larger than another size."""

    def fn(x, y):
        values = torch.nested.nested_tensor_from_jagged(x * 2, torch.tensor([0, 1, 2])).sin().values()
        expanded = values.expand(2, -1, -1)
        torch._dynamo.graph_break()
        values.detach().add_(y)
        return values, expanded * values

    inputs = torch.ones(2, 2), torch.ones(2, 2)
    torch.testing.assert_close(torch.compile(fn, backend="aotviz_eager")(*inputs), fn(*inputs))
