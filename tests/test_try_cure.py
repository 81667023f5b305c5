"""A cure that is a setting of torch is tried by repeating the calls with it, and what changed is said."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import torch

import aotviz
from aotviz.explain.trials import CallsNeeded, CureNeedsEdit


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


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step, self.linear = 0, torch.nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        self.seen += 1
        return self.linear(x) * self.step


def test_the_calls_of_a_module_are_repeated_without_passing_them_and_the_module_stays_as_it_is() -> None:
    module = Counter()
    step = torch.compile(module, backend="eager")
    torch._dynamo.reset()
    with aotviz.watch() as recording:
        for _ in range(4):
            step(torch.ones(2, 3))
    trial = recording.try_cure(0)
    assert (trial.before.recompiles, trial.after.recompiles) == (len(recording.recompiles()), 1)
    assert (trial.made, trial.equal) == (4, True)
    assert (module.step, module.seen.item()) == (4, 4)
    assert "4 calls repeated, with inputs of the recorded shapes and random values" in str(trial)


def test_a_function_of_aotviz_is_repeated_and_its_recording_does_not_grow() -> None:
    @aotviz.compile(backend="eager")
    def step(batch: dict[str, torch.Tensor], scale: int) -> torch.Tensor:
        return batch["x"][batch["x"] > 0] * scale

    torch._dynamo.reset()
    with torch.no_grad():
        step({"x": torch.ones(3)}, scale=3)
    before, program = len(step.recording), step.program
    trial = step.recording.try_cure(0)
    assert (trial.before.graph_breaks, trial.after.graph_breaks, trial.equal) == (1, 0, True)
    assert (len(step.recording), step.program) == (before, program)


def test_inputs_are_made_like_the_recorded_ones() -> None:
    seen: list[tuple[object, ...]] = []

    def facts(x: torch.Tensor) -> tuple[object, ...]:
        return x.shape, x.stride(), x.dtype, x.requires_grad, x.is_leaf, type(x), torch.is_grad_enabled()

    @torch.compiler.disable
    def look(*tensors: torch.Tensor) -> None:
        seen.append((*map(facts, tensors), tensors[0] is tensors[1], torch.is_autocast_enabled("cpu")))

    def step(*tensors: torch.Tensor) -> torch.Tensor:
        look(*tensors)
        return tensors[0] * tensors[0].sum().item()

    leaf = torch.ones(4, 3, requires_grad=True)
    inputs = [leaf, leaf, (leaf * 1).t(), torch.ones(1, 3).expand(4, 3), torch.nn.Parameter(torch.ones(2))]
    inputs += [torch.ones(4, dtype=torch.bool), torch.ones(2, dtype=torch.bfloat16), torch.tensor(3)]
    compiled = torch.compile(step, backend="eager")
    torch._dynamo.reset()
    with aotviz.watch() as recording, torch.autocast("cpu"):
        compiled(*inputs)
    point = next(one for one in recording.explain().points if "capture_scalar_outputs" in one.fix)
    assert recording.try_cure(point).equal
    assert len(seen) == 3
    assert seen[0] == seen[1] == seen[2]


def test_a_mark_on_an_input_is_repeated() -> None:
    step = torch.compile(lambda x: x * x.sum().item(), backend="eager")
    x = torch.ones(3)
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.reset()
    with aotviz.watch() as recording:
        step(x)
        step(torch.ones(5))
    trial = recording.try_cure(0)
    assert (trial.before.compilations, trial.after.compilations) == (len(recording), 1)


def test_an_error_of_dynamo_that_the_cure_removes_is_told() -> None:
    def loud(x: torch.Tensor) -> torch.Tensor:
        print("loud")
        return x * 2

    step = torch.compile(loud, backend="eager", fullgraph=True)
    torch._dynamo.reset()
    with aotviz.watch() as recording, pytest.raises(torch._dynamo.exc.Unsupported):
        step(torch.ones(3))
    trial = recording.try_cure(0)
    assert (trial.before.error, trial.after.error, trial.cured) == ("Unsupported", "", True)
    assert "- error: Unsupported before, none after" in str(trial)


def test_what_was_recorded_keeps_neither_tensors_nor_the_function_alive() -> None:
    model = Counter()
    step, x = torch.compile(model, backend="eager"), torch.ones(3, 3)
    torch._dynamo.reset()
    with aotviz.watch() as recording:
        for _ in range(2):
            step(x)
    alive = [weakref.ref(model), weakref.ref(x)]
    del step, x, model
    torch._dynamo.reset()
    gc.collect()
    assert [one() for one in alive] == [None, None]
    with pytest.raises(CallsNeeded, match=r"the compiled function no longer exists. Pass the calls: "):
        recording.try_cure(0)


class Config:
    scale = 2


def test_what_cannot_be_repeated_says_what_to_pass(tmp_path: Path) -> None:
    step = torch.compile(lambda x, config: x[x > 0] * config.scale, backend="eager")
    torch._dynamo.reset()
    with aotviz.watch() as recording:
        step(torch.ones(3), Config())
    with pytest.raises(CallsNeeded, match=r"inputs of class `Config` cannot be made .* Pass the calls: "):
        recording.try_cure(0)
    recording.save(tmp_path / "a.aotviz")
    with pytest.raises(CallsNeeded, match=r"from a file or a log"):
        aotviz.load(tmp_path / "a.aotviz").try_cure(0)
    assert recording.try_cure(0, lambda: step(torch.ones(3), Config())).cured


def test_a_fault_that_depends_on_something_outside_is_not_said_to_be_cured() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0] * 2 if OUTSIDE["is large"] else x * 2

    compiled = torch.compile(step, backend="eager")
    torch._dynamo.reset()
    OUTSIDE["is large"] = True
    with aotviz.watch() as recording:
        compiled(torch.ones(3))
    OUTSIDE["is large"] = False
    with pytest.raises(CallsNeeded, match=r"with made inputs, the fault is not there"):
        recording.try_cure(0)


OUTSIDE = {"is large": False}


@pytest.mark.parametrize(
    ("point", "error", "says"),
    [
        (9, IndexError, "no point 9: `explain\\(\\)` has"),
        (-1, IndexError, "no point -1"),
        ("0/1", TypeError, "'0/1'; it is a point"),
    ],
)
def test_a_point_that_is_not_there_is_named(point, error, says) -> None:
    with aotviz.watch() as recording:
        torch.compile(lambda x: x * 2, backend="eager")(torch.ones(3))
    with pytest.raises(error, match=says):
        recording.try_cure(point)


def test_the_path_of_an_earlier_recording_is_no_recording(tmp_path: Path) -> None:
    with aotviz.watch() as recording:
        torch.compile(lambda x: x * 2, backend="eager")(torch.ones(3))
    for asks in (recording.explain, recording.cache_misses):
        with pytest.raises(TypeError, match=r"is no recording; `aotviz\.load"):
            asks(earlier=str(tmp_path))


def test_what_is_compiled_already_is_not_verified_but_what_it_was_made_of() -> None:
    for compiled in (torch.compile(torch.sin, backend="eager"), torch.compile(torch.nn.Linear(3, 3), backend="eager")):
        with pytest.raises(TypeError, match=r"that `torch\.compile` was given"):
            aotviz.verify(compiled, torch.ones(2, 3))


def test_the_calls_of_all_blocks_that_share_code_are_repeated() -> None:
    class Block(torch.nn.Module):
        def __init__(self, width: int, other: int) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(width, other)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).relu()

    blocks = [torch.compile(Block(*widths), backend="eager") for widths in ((3, 4), (4, 5), (5, 6))]
    with aotviz.watch() as recording, torch.no_grad():
        x = torch.ones(2, 3)
        for block in blocks:
            x = block(x)
    trial = recording.try_cure(0)
    assert trial.made == 3
    assert (trial.before.compilations, trial.after.compilations) == (3, 2)
