"""torch's own compiled autograd runs the same programs, and the page lists where it is not right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo import compiled_autograd

from tests.compiled_autograd.programs import PROGRAMS
from tests.compiled_autograd.test_backwards import equal

DIFFERS = {  # the programs in which torch's own does not equal eager; ours equals eager in all (test_backwards.py)
    "hooks_of_every_kind": "differs",
    "queued_callbacks": "raises",
    "batches_of_gradients": "raises",
    "hooks_that_return_something_wrong": "differs",
    "python_that_changes_gradients_before_they_are_accumulated": "differs",
    "a_layer_that_a_reentrant_checkpoint_shares": "differs",
    "a_backward_in_a_hook_adds_to_the_same_leaf": "differs",
    "gradients_that_become_sparse": "raises",
    "a_function_whose_backward_writes_to_its_ctx": "raises",
    "gradients_that_a_function_returns_wrongly": "differs",
    "the_node_that_runs_is_told_to_python": "raises",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_torchs_own_differs_only_where_the_page_says_so(name):
    torch.manual_seed(0)
    expected = PROGRAMS[name]()
    torch._dynamo.reset()
    compiled_autograd.reset()
    torch.manual_seed(0)
    try:
        with compiled_autograd._enable(torch.compile(backend="eager")):
            found = "equal" if equal(expected, PROGRAMS[name]()) else "differs"
    except (AssertionError, NotImplementedError):
        found = "raises"
    finally:
        torch._dynamo.reset()
        compiled_autograd.reset()
    assert found == DIFFERS.get(name, "equal")


class OfLayers(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def test_a_backward_hook_of_a_module_is_called_under_torchs_own() -> None:
    """Its graph has calls of a `BackwardHook`, which no compiled graph can take."""
    seen: list[torch.Tensor] = []
    torch.manual_seed(0)
    model: Any = OfLayers(nn.Linear(3, 3), nn.ReLU())
    model.layers[0].register_full_backward_hook(lambda module, taken, given: seen.append(given[0].clone()))
    x = torch.ones(2, 3)
    model(x).sum().backward()
    expected = [*seen, *(parameter.grad.clone() for parameter in model.parameters())]
    seen.clear()
    model.zero_grad()
    torch._dynamo.reset()
    with torch._dynamo.config.patch(compiled_autograd=True):
        step = torch.compile(model, backend="aotviz_eager")
        with compiled_autograd._enable(torch.compile(backend="aotviz_eager")):
            step(x).sum().backward()
    torch._dynamo.reset()
    compiled_autograd.reset()
    torch.testing.assert_close([*seen, *(parameter.grad for parameter in model.parameters())], expected)
