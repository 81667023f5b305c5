"""Which half of a training program a recorded node runs in, and which operations belong to one autograd call."""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch

import aotviz


def nodes(function: Any, *args: torch.Tensor, stage: str, role: str) -> pd.DataFrame:
    """The graph of a stage of a function that was compiled, called and differentiated."""
    compiled = aotviz.compile(function, backend="eager")
    first, *_ = result if isinstance(result := compiled(*args), tuple) else (result,)
    first.sum().backward()
    return compiled.recording[0].graph(role, stage=stage).nodes.set_index("name")


def forward_of(table: pd.DataFrame, name: str) -> list[str]:
    """What the workbench calls "its forward"."""
    return table.index[~table.is_backward & (table.sequence_number == table.sequence_number[name])].tolist()


def test_nothing_in_a_forward_graph_runs_in_the_backward() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x * w).sigmoid()

    args = (torch.randn(4, 3), torch.randn(3, requires_grad=True))
    joint = nodes(program, *args, stage="trace", role="joint")
    assert joint.is_backward["detach_1"]  # so it was traced, and the partitioner moves it
    forward = nodes(program, *args, stage="partition", role="forward")
    assert "detach_1" in forward.index
    assert not forward.is_backward.any()
    assert nodes(program, *args, stage="partition", role="backward").is_backward.all()


def test_the_forward_of_a_backward_node_is_the_call_that_it_differentiates() -> None:
    def step(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # of README
        x.add_(1)
        return (x * w).sin(), x[:2]

    joint = nodes(step, torch.randn(4, 3), torch.randn(3, requires_grad=True), stage="joint", role="joint")
    assert "slice_1" in joint.index
    assert forward_of(joint, "cos") == ["sin"]
    assert forward_of(joint, "view") == ["mul"]
    assert (joint.sequence_number[joint.op == "placeholder"] == -1).all()


def test_what_is_computed_beside_a_call_is_no_part_of_it() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x @ w
        with torch.no_grad():
            mean = y.mean() * 2
        z = y.exp()
        return z, mean, z.argmax(), z.detach() + 1

    joint = nodes(program, torch.randn(4, 3), torch.randn(3, 3, requires_grad=True), stage="joint", role="joint")
    backward = joint[joint.is_backward & (joint.op == "call_function")]
    assert {tuple(forward_of(joint, name)) for name in backward.index} == {("mm",), ("exp",)}


def test_the_steps_of_a_decomposed_call_belong_together() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(x)

    compiled = aotviz.compile(
        program, backend="eager", decompositions=torch._decomp.get_decompositions([torch.ops.aten.silu])
    )
    compiled(torch.randn(3, requires_grad=True)).sum().backward()
    joint = compiled.recording[0].graph("joint").nodes.set_index("name")
    (number,) = set(joint.sequence_number[~joint.is_backward & (joint.op == "call_function")]) - {-1}
    assert (joint.sequence_number[~joint.is_backward & (joint.op == "call_function")] == number).sum() >= 2
