"""Functions and modules of torch's own that are compiled by themselves share Dynamo's wrapper: what is told of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import aotviz
from aotviz.explain.cures import break_cures, guard_cures
from aotviz.reading.recording import Recording
from tests.releases import guards_requires_grad


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.active = "a"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * len(self.active)


def compiled(fn: Any, **options: Any) -> Callable[..., Any]:
    return torch.compile(fn, **{"backend": "eager"} | options)


def watched(calls: Callable[[], object]) -> Recording:
    torch._dynamo.reset()
    with aotviz.watch() as recording:
        calls()
    return recording


def test_an_attribute_of_a_layer_goes_by_the_name_of_the_compiled_module_and_has_its_line() -> None:
    def calls() -> None:
        model = nn.Sequential(nn.Identity(), Named())
        serve = compiled(model)
        for name in ("a", "bb", "ccc"):
            model[1].active = name
            serve(torch.ones(2))

    said = watched(calls).explain()
    assert said.title.startswith("3 compilations of 1 function, 2 of them recompiles")
    assert said.sentences[0].startswith("`serve[1].active` caused both recompiles")
    assert said.source.endswith("return x * len(self.active)")


def test_a_module_that_its_line_does_not_name_is_said_to_be_of_its_class() -> None:
    def calls() -> None:
        steps, x = [compiled(nn.Dropout(0.1).eval())], torch.ones(2)
        steps[0](x)
        steps[0]._orig_mod.p = 0.2
        steps[0](x)

    said = watched(calls).explain().sentences[0]
    assert "because `model.p` was 0.1 and is now 0.2" in said
    assert "`model` is the compiled `Dropout`" in said


def test_modules_of_other_sizes_that_other_lines_call_are_functions() -> None:
    def calls() -> None:
        encode, decode = compiled(nn.Sequential(nn.Linear(3, 4))), compiled(nn.Sequential(nn.Linear(4, 3)))
        x = encode(torch.ones(2, 3))
        decode(x.detach())

    recording = watched(calls)
    assert recording.explain().title.startswith("2 compilations of 2 functions;")
    assert recording.overview().healthy


def test_a_module_that_one_line_calls_with_more_layers_is_compiled_again() -> None:
    def calls() -> None:
        model = nn.Sequential(nn.ReLU())
        step = compiled(model)
        for _ in range(2):
            step(torch.ones(2))
            model.append(nn.ReLU())

    assert "because `step` had 1 module and now has more or fewer" in watched(calls).explain().sentences[0]


def test_functions_of_torch_beyond_the_limit_are_told_with_their_common_limit() -> None:
    def calls() -> None:
        for activation in (F.relu, F.gelu, F.silu):
            compiled(activation)(torch.ones(2))

    with torch._dynamo.config.patch(recompile_limit=2):
        (point,) = (one for one in watched(calls).explain().points if one.kind == "recompile")
    assert "all of them share one limit" in point.text
    assert guard_cures.SHARED_LIMIT in point.fix.cures
    assert point.place.startswith(__file__)


@pytest.mark.parametrize("captured", [False, True])
def test_a_backward_inside_is_meant_where_compiled_autograd_captures_it(captured: bool) -> None:
    weight = torch.ones(3, requires_grad=True)

    def train(x: torch.Tensor) -> torch.Tensor:
        loss = (weight * x).sum()
        loss.backward()
        return loss

    with torch._dynamo.config.patch(compiled_autograd=captured):
        recording = watched(lambda: compiled(train)(torch.ones(3)))
    advised = any(break_cures.BACKWARD in point.fix.cures for point in recording.explain().points)
    assert advised is not captured
    assert recording.overview().healthy is captured
    assert any("ends at `backward()`, as is meant" in text for text in recording.explain().sentences) is captured


@guards_requires_grad
def test_what_each_length_needs_is_said_once_and_a_program_that_is_kept_is_not_promised_at_the_limit() -> None:
    def calls() -> None:
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)).requires_grad_(False)
        step = compiled(model)
        for layer in reversed(model):
            layer.requires_grad_(True)
            step(torch.ones(2, 2))

    with torch._dynamo.config.patch(recompile_limit=2):
        points = [one for one in watched(calls).explain().points if one.kind == "recompile"]
    assert all("is kept" not in point.fix for point in points)
    assert "reached the recompile limit" in points[0].text
