"""What is kept beside what eager keeps: eager's part is compared with what eager's autograd packs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import aotviz


def attention(x: torch.Tensor) -> torch.Tensor:
    return (torch.softmax(x @ x.transpose(-1, -2) / 4, -1) @ x).tanh()


def blocks() -> nn.Module:
    return nn.Sequential(*(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0) for _ in range(2)))


def convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.ELU())


PROGRAMS: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "a chain": (lambda x: x.exp().sin().tanh().sum(), torch.ones(9, requires_grad=True)),
    "attention": (attention, torch.linspace(-1, 1, 48).reshape(2, 6, 4).requires_grad_()),
    "transformer": (blocks(), torch.linspace(-1, 1, 2 * 5 * 16).reshape(2, 5, 16)),
    "convolutions": (convolutions(), torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)),
    "shared": (lambda x: (y := x.tanh()).t() @ y, torch.ones(3, 4, requires_grad=True)),
}


def packed(fn: Callable[..., Any], x: torch.Tensor) -> int:
    """Bytes of the storages that eager's autograd keeps, beside those of the input, the parameters and the buffers."""
    held = [x, *fn.parameters(), *fn.buffers()] if isinstance(fn, nn.Module) else [x]
    own, kept = {one.untyped_storage().data_ptr() for one in held}, dict[int, torch.UntypedStorage]()

    def pack(one: torch.Tensor) -> torch.Tensor:
        kept[one.untyped_storage().data_ptr()] = one.untyped_storage()
        return one

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one):
        fn(x)
    return sum(storage.nbytes() for place, storage in kept.items() if place not in own)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("partition_fn", ["default", "min-cut"])
def test_eagers_bytes_are_those_that_autograd_packs(name: str, partition_fn: str, clean_dynamo: None) -> None:
    fn, x = PROGRAMS[name]
    compiled = aotviz.compile(fn, backend="eager", partition_fn=partition_fn, dynamic=False)
    compiled(x).sum().backward()
    here = compiled.recording[0]
    totals = here.beside_eager().totals
    assert totals.eager == packed(fn, x) > 0
    assert totals.program == here.saved_tensors.held_bytes.sum()
    assert totals.program == totals.eager - totals.recomputed + totals.added


def test_copies_of_parameters_in_another_dtype_are_told_with_equal_layers_in_one_sentence(clean_dynamo: None) -> None:
    net = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32, bias=False), nn.GELU()) for _ in range(4)))

    def f(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return net(x)

    compiled = aotviz.compile(f, backend="eager", partition_fn="default", dynamic=False)
    compiled(torch.randn(4, 32)).sum().backward()
    beside = compiled.recording[0].beside_eager()
    copies = [row for row in beside.rows if row.copy_of]
    assert [row.nbytes for row in copies] == [32 * 32 * 2] * 3  # no gradient reaches the input: the first is not read
    assert beside.sentences[1].startswith("It keeps 3 copies of `")
    assert beside.sentences[1].endswith(".weight` in bfloat16 for the backward, 6.00 KiB.")


def test_what_is_recomputed_is_eagers_alone(clean_dynamo: None) -> None:
    compiled = aotviz.compile(lambda x: x.sin().cos().sum(), backend="eager", partition_fn="min-cut")
    compiled(torch.ones(100, requires_grad=True)).backward()
    beside = compiled.recording[0].beside_eager()
    assert beside.table[["name", "nbytes", "program", "eager"]].values.tolist() == [["sin", 400, False, True]]
    assert "It keeps 400 B less" in str(beside)


def test_an_inference_keeps_nothing(clean_dynamo: None) -> None:
    compiled = aotviz.compile(lambda x: x.sin(), backend="eager")
    compiled(torch.ones(3))
    with pytest.raises(LookupError, match="keeps nothing for a backward: it is no training graph"):
        compiled.recording[0].beside_eager()
