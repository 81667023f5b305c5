"""Parts of the pipeline are selected by role: a stage that does nothing, in any slot of any list, changes nothing.
Recordings have one more stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import aotviz
from aotviz import pipeline
from aotviz.frontends.export import aot_export_joint_simple, aot_export_module
from aotviz.ir.forms import Form
from aotviz.lowerings import run_graph
from aotviz.pipeline import Role, Stage
from aotviz.whole_backward import backward_stages
from aotviz.whole_backward.compiled_parts import CompiledParts

WHOLE = backward_stages.stages(CompiledParts(*[lambda *_: None] * 2))  # type: ignore[list-item]
LISTS = {  # INFERENCE is made from TRAINING
    "training": pipeline.TRAINING,
    "export": pipeline.EXPORT,
    "backward": pipeline.BACKWARD,
    "gradient": pipeline.GRADIENT,
    "whole backward": WHOLE,
}


def slots() -> Iterator[tuple[str, int, Role]]:
    """(list, position, role) of each slot, with the role of either neighbour."""
    for name, stages in LISTS.items():
        for position in range(len(stages) + 1):
            for role in sorted({stage.role for stage in stages[max(0, position - 1) : position + 1]}):
                yield name, position, role


def add(monkeypatch: pytest.MonkeyPatch, name: str, position: int, added: Stage) -> None:
    """Put a stage into a list, and into those that are made from it."""

    def longer(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        return (*stages[:position], added, *stages[position:])

    if name == "whole backward":
        original = backward_stages.stages
        monkeypatch.setattr(backward_stages, "stages", lambda parts: longer(original(parts)))
        return
    monkeypatch.setattr(pipeline, name.upper(), longer(LISTS[name]))
    if name == "training":
        monkeypatch.setattr(pipeline, "INFERENCE", pipeline.without_gradients(pipeline.TRAINING))
        first = pipeline.part(pipeline.EXPORT, Role.GRAPH, Role.LINK)
        rules = next(stage for stage in pipeline.EXPORT if stage.name == "export rules")
        monkeypatch.setattr(pipeline, "EXPORT", (*pipeline.prepare(), rules, *first))


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x * w).sin() * x.detach()


class Module(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), 2.0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return ((x * self.weight).sum(),)


def inputs(training: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(3.0), torch.full((3,), 2.0, requires_grad=training)


def close(found: Any, x: torch.Tensor, w: torch.Tensor) -> None:
    """Assert that `found` is what eager computes, and, if it can be differentiated, its first and second derivative."""
    expected = program(x, w)
    torch.testing.assert_close(found, expected)
    if w.requires_grad:
        pairs = []
        for result in (found, expected):
            (first,) = torch.autograd.grad(result.sum(), w, create_graph=True)
            pairs.append((first, torch.autograd.grad(first.sum(), w)[0]))
        torch.testing.assert_close(*pairs)


def names(recording: Any) -> list[list[str]]:
    return [[stage.name for stage in one.stages] for one in recording.data.compilations]


def dynamo(training: bool, folder: Path) -> list[Any]:
    """A miss, then a hit, with all late work."""
    seen: list[Any] = []
    for _ in range(2):
        torch._dynamo.reset()
        compiled = aotviz.compile(program, backend="eager", cache=folder)
        args = inputs(training)
        found = compiled(*args)
        torch.testing.assert_close(found, program(*args))
        if training:
            found.sum().backward()
            expected = inputs()
            program(*expected).sum().backward()
            torch.testing.assert_close(args[1].grad, expected[1].grad)
        close(compiled(*args), *args)
        seen += [names(compiled.recording), list(compiled.recording.cache_lookups.outcome)]
    return seen


def traced(folder: Path) -> list[Any]:
    seen: list[Any] = []
    for _ in range(2):
        compiled: Any = aotviz.aot_function(program, run_graph, cache=folder)
        args = inputs()
        close(compiled(*args), *args)
        seen += [names(compiled.recording), list(compiled.recording.cache_lookups.outcome)]
    return seen


def exported() -> list[Any]:
    x, w = inputs()
    joint = aot_export_joint_simple(lambda x, w: (program(x, w),), (x, w), trace_joint=True)
    module, signature = aot_export_module(Module(), (x,), trace_joint=True, output_loss_index=0)
    aotviz.trace_stages(program, *inputs()).resume()(*inputs())
    return [joint.code, module.code, str(signature)]


def step(x: torch.Tensor, w: torch.Tensor) -> None:
    program(x, w).sum().backward()


def whole() -> list[Any]:
    torch._dynamo.reset()
    aotviz.compiled_autograd.reset()
    compiled = aotviz.compile(step, backend="eager", compiled_autograd=True)
    args, expected = inputs(), inputs()
    compiled(*args)
    step(*expected)
    torch.testing.assert_close(args[1].grad, expected[1].grad)
    return [names(compiled.recording)]


def everything(name: str, folder: Path) -> list[Any]:
    """What all ways into the pipeline give that pass through the list."""
    if name == "whole backward":
        return whole()
    found = [*dynamo(True, folder / "training"), *traced(folder / "traced")]
    if name == "training":
        found += dynamo(False, folder / "inference")
    return [*found, *exported()] if name in ("training", "export") else found


_USUAL: dict[str, list[Any]] = {}


@pytest.mark.every(5)
@pytest.mark.parametrize(("name", "position", "role"), list(slots()))
def test_a_stage_that_does_nothing_changes_nothing(
    name: str, position: int, role: Role, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if name not in _USUAL:
        _USUAL[name] = everything(name, tmp_path / "usual")
    runs = []

    def nothing(form: Form) -> Form:
        runs.append(form)
        return replace(form, evidence=())

    add(monkeypatch, name, position, Stage("added", nothing, role))
    found = everything(name, tmp_path / "with one more")
    assert runs
    assert _without("added", found) == _USUAL[name]
    assert (found != _USUAL[name]) == (name != "export"), "recordings have it; an export has no recording"


def _without(stage: str, found: Any) -> Any:
    return [_without(stage, one) for one in found if one != stage] if isinstance(found, list) else found


def test_without_gradients_no_stage_of_a_joint_graph_runs() -> None:
    assert {Role.JOINT_PASS, Role.PARTITION} <= {stage.role for stage in pipeline.TRAINING}
    assert not {Role.JOINT_PASS, Role.PARTITION} & {stage.role for stage in pipeline.INFERENCE}
    assert [stage for stage in pipeline.INFERENCE if stage not in pipeline.TRAINING] == [pipeline.CLOSE]


@pytest.mark.parametrize("name", LISTS)
def test_the_stages_of_a_list_are_in_the_order_of_their_roles(name: str) -> None:
    roles = [stage.role for stage in LISTS[name]]
    assert roles == sorted(roles)
