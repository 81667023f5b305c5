"""A cure that is a setting of torch is tried by repeating the calls with it, and what changed is said."""

from __future__ import annotations

import pytest
import torch

import aotviz
from aotviz.explain.trials import CureNeedsEdit


def test_sizes_that_vary_become_symbols() -> None:
    step = torch.compile(lambda x: x * 2, backend="eager")

    def calls() -> list[torch.Tensor]:
        return [step(torch.ones(rows)) for rows in (2, 3, 4)]

    torch._dynamo.reset()
    with aotviz.watch() as recording:
        calls()
    assert len(recording.recompiles()) == 1
    trial = recording.try_cure(0, calls)
    assert (trial.before.recompiles, trial.after.recompiles) == (1, 0)
    assert (trial.before.compilations, trial.after.compilations) == (2, 1)
    assert (trial.equal, trial.cured) == (True, True)
    assert "- recompiles: 1 before, 0 after" in str(trial)
    assert torch._dynamo.config.assume_static_by_default


def test_a_function_that_aotviz_compiled_is_tried_in_the_same_way() -> None:
    def masked(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0] * 2

    torch._dynamo.reset()
    step = aotviz.compile(masked, backend="eager")
    with aotviz.watch() as recording:
        step(torch.ones(3))
    trial = recording.try_cure(recording.explain().points[0], lambda: step(torch.ones(3)))
    assert (trial.before.graph_breaks > 0, trial.after.graph_breaks) == (True, 0)
    assert trial.equal


class Layer(torch.nn.Module):
    def __init__(self, index: int, cache: list[bool]) -> None:
        super().__init__()
        self.index, self.cache = index, cache

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (self.index + (2 if self.cache[0] else 3))


def test_a_cure_that_lifts_one_of_two_guards_is_said_not_to_suffice() -> None:
    """As in the blocks of a model with a key-value cache: each index comes with another value of the cache."""

    def calls() -> None:
        for index in range(4):
            layer = Layer(index, [index % 2 == 0])
            layer.compile(backend="eager", dynamic=False)
            layer(torch.ones(2))

    torch._dynamo.reset()
    with aotviz.watch() as recording:
        calls()
    points = recording.explain().points
    number = next(i for i, point in enumerate(points) if "allow_unspec_int_on_nn_module" in point.fix)
    trial = recording.try_cure(number, calls)
    assert trial.after.recompiles > 0
    assert trial.equal is None
    assert "the calls returned none" in str(trial)


def test_what_needs_an_edit_is_named_and_nothing_is_run() -> None:
    step = torch.compile(lambda x: x * 2, backend="eager")
    torch._dynamo.reset()
    with aotviz.watch() as recording:
        for kind in (torch.float32, torch.float64):
            step(torch.ones(2, dtype=kind))

    def calls() -> None:
        raise AssertionError("not to be run")

    with pytest.raises(CureNeedsEdit, match=r"a change of the code: .*float32"):
        recording.try_cure(0, calls)


def test_the_same_random_numbers_are_drawn_in_both_runs() -> None:
    step = torch.compile(lambda x: torch.rand(3) * x.sum().item(), backend="eager")
    torch._dynamo.reset()
    with aotviz.watch() as recording:
        step(torch.ones(3))
    state = torch.get_rng_state()
    trial = recording.try_cure(0, lambda: step(torch.ones(3)))
    assert trial.equal
    assert torch.equal(torch.get_rng_state(), state)
