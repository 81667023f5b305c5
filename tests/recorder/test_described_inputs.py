"""What torch logs of inputs and outputs becomes the tables of aliasing that our own compilations have."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import aotviz


def watched(fn: Any, *args: Any, backend: str = "aot_eager", **options: Any) -> Any:
    torch._dynamo.reset()
    with aotviz.watch() as recording:
        torch.compile(fn, backend=backend, **options)(*args)
    return recording[0]


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        self.seen += 1
        x.mul_(2)
        return self.inner(y), x.view(-1), y


def test_inputs_say_what_they_are_and_what_the_call_does_to_them() -> None:
    base = torch.ones(4, 3)
    found = watched(Counting(), base[:2], base[2:]).inputs.set_index("name")
    assert found.kind.to_dict() == {
        "x": "input",
        "y": "input",
        "inner.weight": "parameter",
        "inner.bias": "parameter",
        "seen": "buffer",
    }
    assert found.index[found.mutates_data].tolist() == ["seen", "x"]
    assert set(found.mutation[["seen", "x"]]) == {"MUTATED_IN_GRAPH"}
    assert found.index[found.requires_grad].tolist() == ["inner.weight", "inner.bias"]
    assert found.storage["x"] == found.storage["y"]
    assert found.storage.nunique() == 4
    assert found.reason["y"] == "shares its memory with x"


def test_a_view_names_its_base() -> None:
    base = torch.ones(4)
    found = watched(lambda base, part: base.sum() + part, base, base[1:]).inputs.set_index("name")
    assert found.reason["part"] == "a view of base"
    assert found["shape"]["part"] == (3,)


def test_outputs_say_what_they_alias() -> None:
    found = watched(Counting(), torch.ones(2, 3), torch.ones(2, 3)).outputs
    assert found.output_type.tolist() == ["non_alias", "alias_of_input", "is_input"]
    assert found.base.tolist() == ["", "x", "seen"], "Dynamo hands y back itself, and takes the buffer to set it again"
    assert found["shape"].tolist() == [(2, 3), (6,), ()]
    assert found.requires_grad.tolist() == [True, False, False]


def test_they_equal_what_our_own_pipeline_finds() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        return (x * w).sum(), x[0]

    def inputs() -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(2, 3), torch.ones(3, requires_grad=True)

    theirs = watched(f, *inputs())
    ours = aotviz.compile(f, backend="eager")
    ours(*inputs())
    own = ours.recording[0]
    columns = ["dtype", "shape", "requires_grad", "is_leaf", "mutates_data", "mutation", "storage"]
    assert theirs.inputs[columns].equals(own.inputs[columns])
    assert theirs.outputs.output_type.tolist() == own.outputs.output_type.tolist()
    assert theirs.outputs.dtype.tolist() == own.outputs.dtype.tolist()


def test_symbolic_sizes_are_inputs_too() -> None:
    found = watched(lambda x: x * x.shape[0], torch.ones(5, 2), dynamic=True).inputs
    assert "symint" in found.dtype.tolist()
    assert any(isinstance(size, str) for size in found.set_index("name")["shape"]["x"])


def test_without_aotautograd_nothing_is_said_of_mutation() -> None:
    found = watched(lambda x: x.add_(1), torch.ones(3), backend="eager")
    assert found.inputs.mutation.tolist() == ["NOT_MUTATED"]
    assert found.outputs.empty


def test_saved_tensors_are_read_off_the_forward_and_their_donation_off_the_log() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ((x @ w).exp() * w).sum()

    found = watched(f, torch.ones(3, 3), torch.ones(3, 3, requires_grad=True)).saved_tensors.set_index("name")
    assert found.donated.to_dict() == {"primals_2": False, "exp": True, "t": False}, "t is a view of an input"
    assert (found.saved_bytes == 36).all()
    assert "x @ w" in found.source["exp"]
    nothing = watched(f, torch.ones(3, 3), torch.ones(3, 3)).saved_tensors
    assert nothing.empty


def test_symbolic_sizes_that_are_saved_do_not_shift_what_is_donated() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.exp() * x.shape[0]).sum(0, keepdim=True).expand(x.shape[0], -1).sum()

    found = watched(f, torch.ones(5, 2, requires_grad=True), dynamic=True).saved_tensors.set_index("name")
    assert "symint" in set(found.kind)
    assert found.index[found.donated].tolist() == found.index[found.kind == "tensor"].tolist()
