"""Compiled functions whose results may differ from eager's, and errors that no compiled function raised."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._inductor.config
from torch import nn

import aotviz
from aotviz.explain import unlike_eager
from aotviz.explain.answers import facts_of
from aotviz.reading.recording import Recording

CALLED = """\
class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[3]", L_average_: "f32[3]"):
         # File: /home/me/job.py:12 in step, code: update(average, x)
        update_default = torch.ops.stats.update.default(l_average_, l_x_);  update_default = None
        read = torch.ops.stats.twice.default(l_x_)
        sum_1: "f32[]" = read.sum();  read = None
        return (sum_1,)
"""


@pytest.fixture(autouse=True)
def _without_programs() -> None:
    torch._dynamo.reset()


def ended_with(call: Any, kind: type[Exception] = AssertionError) -> Recording:
    watch = aotviz.watch()
    with pytest.raises(kind), watch:
        call()
    return watch.recording


def test_only_a_custom_operator_whose_result_is_not_read_is_found() -> None:
    [(name, line)] = unlike_eager._unread_calls(CALLED)
    assert (name, line.line, line.code) == ("stats.update", 12, "update(average, x)")


def test_operators_of_torchs_are_not_custom_ones() -> None:
    for namespace in ("aten", "prims", "_c10d_functional", "higher_order", "rng_prims"):
        graph = CALLED.replace("stats", namespace)
        assert not list(unlike_eager._unread_calls(graph))


def noted(name: str, *writes: str) -> Any:
    def update(average: torch.Tensor, value: torch.Tensor) -> None:
        average.add_(value)

    made = torch.library.custom_op(f"unlike_eager::{name}", update, mutates_args=writes)
    made.register_fake(lambda average, value: None)
    return made


@pytest.mark.parametrize("declared", [False, True])
def test_a_call_that_is_left_out_is_told_before_a_program_fails(declared: bool) -> None:
    update = noted(f"update_{declared}", *(["average"] if declared else []))

    @torch.compile(backend="aot_eager")
    def step(x: torch.Tensor, average: torch.Tensor) -> torch.Tensor:
        update(average, x)
        return x.sum()

    average = torch.zeros(3)
    with aotviz.watch() as recording:
        step(torch.ones(3), average)
    assert bool(average.sum()) is declared  # what is said of it happened
    assert recording.overview().healthy is declared
    told = recording.explain().sentences[0]
    assert ("`unlike_eager::update_False` is left out of `step`" in told) is not declared


def noisy(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand_like(x)


@pytest.mark.parametrize("same", [False, True])
def test_random_numbers_are_the_reason_only_where_they_differ(same: bool) -> None:
    with torch._inductor.config.patch(fallback_random=same), aotviz.watch() as recording:
        results = []
        for function in (noisy, torch.compile(noisy)):
            torch.manual_seed(3)
            results.append(function(torch.ones(64)))
    assert torch.equal(*results) is same
    reasons = unlike_eager.reasons(facts_of(recording))
    assert [reason.line.code for reason in reasons] == ([] if same else ["return x + torch.rand_like(x)"])


def test_a_forward_that_draws_is_found_beside_its_backward() -> None:
    x = torch.ones(64, requires_grad=True)
    with aotviz.watch() as recording:
        torch.compile(lambda x: nn.functional.dropout(x.sin(), 0.5).cos())(x).sum().backward()
    [reason] = unlike_eager.reasons(facts_of(recording))
    assert "draws random numbers" in reason.text
    assert "dropout" in reason.line.code


def test_float32_without_random_numbers_has_no_reason() -> None:
    with aotviz.watch() as recording:
        torch.compile(lambda x: x.sin() * 2 + 1)(torch.ones(64))
    assert not unlike_eager.reasons(facts_of(recording))


@pytest.mark.parametrize("error", [AssertionError("three is not four"), KeyError("label")])
def test_an_error_that_compiling_does_not_explain_is_told_first_with_its_line(error: Exception) -> None:
    def fails() -> None:
        torch.compile(lambda x: x * 2, backend="eager")(torch.ones(3))
        raise error

    recording = ended_with(fails, type(error))
    point = recording.explain().points[0]
    assert point.text == f"The block ended with {type(error).__name__}: {error}. No compiled function raised it."
    assert point.code == "raise error"
    assert "Nothing went wrong" not in str(recording.explain())
    assert not recording.overview().healthy


def test_an_error_before_any_call_of_a_compiled_function_is_told_in_place_of_advice_to_call_one() -> None:
    def fails() -> None:
        tuple(nn.Linear(2, 2))  # type: ignore[arg-type]

    told = str(ended_with(fails, TypeError).explain())
    assert "The block ended with TypeError: 'Linear' object is not iterable." in told
    assert "Nothing was compiled while the watch was on" not in told


def test_a_checkpoint_of_a_compiled_module_is_the_first_sentence() -> None:
    def loads() -> None:
        saved = torch.compile(nn.Linear(2, 2), backend="eager").state_dict()
        nn.Linear(2, 2).load_state_dict(saved)

    overview = ended_with(loads, RuntimeError).overview()
    assert overview.headline.startswith("The names of a checkpoint do not match")
    assert "nn.Linear(2, 2).load_state_dict(saved)" in overview.causes.code[0]


def test_a_timeout_of_a_process_group_is_told_with_the_line_that_waits() -> None:
    def waits() -> None:
        raise RuntimeError("Timed out waiting 5000ms for recv operation to complete")

    explained = ended_with(waits, RuntimeError).explain()
    assert explained.sentences[0].startswith("This rank waited in a collective for longer than the timeout")
    assert "Timed out waiting 5000ms for recv operation to complete." in explained.sentences[0]
    assert "give the group a longer timeout" in explained.fix
