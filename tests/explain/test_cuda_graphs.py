"""Why CUDA graphs were skipped, from records that torch's own functions write. They need no GPU to decide."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aotviz.explain import cuda_graphs
from aotviz.explain.explanation import Point
from tests.cures import cuda_graphs as cuda_graph_programs
from tests.explain.logs import logged


def skipped(function: Callable[..., object], folder: Path, backend: object) -> list[Point]:
    def program() -> None:
        torch._dynamo.reset()
        torch.compile(function, backend=backend)(torch.ones(3))

    return [point for point in logged(program, folder).explain().points if point.kind == "CUDA graph"]


def line(function: Callable[..., object], code: str) -> str:
    lines, first = inspect.getsourcelines(function)
    return f":{first + next(n for n, one in enumerate(lines) if code in one)}"


def writes(x):
    x.add_(1)
    return x * 2


def test_a_written_input_is_told_with_its_line(tmp_path: Path) -> None:
    (point,) = skipped(writes, tmp_path, cuda_graph_programs.BACKEND)
    assert "No CUDA graph was made of `writes` because it writes 1 of its inputs" in point.text
    assert point.code == "x.add_(1)"
    assert point.place.endswith(line(writes, "x.add_(1)"))


def test_a_tensor_on_the_cpu_is_told_by_the_backend_that_makes_cuda_graphs(tmp_path: Path) -> None:
    def double(x):
        return x * 2

    (point,) = skipped(double, tmp_path, "cudagraphs")
    assert "is a tensor on the CPU" in point.text
    assert point.code == "return x * 2"
    assert not point.failed


@pytest.mark.parametrize("keys", [True, False])
@pytest.mark.parametrize("asked", [True, False])
def test_a_log_tells_that_cuda_graphs_were_asked_for_on_the_cpu(tmp_path: Path, asked: bool, keys: bool) -> None:
    def product(x):
        return x @ x

    def program() -> None:
        torch._dynamo.reset()
        with (
            torch._inductor.config.patch(fx_graph_cache=keys),
            torch._functorch.config.patch(enable_autograd_cache=keys),
        ):
            torch.compile(product, options={"triton.cudagraphs": asked})(torch.ones(3, 3))

    recording = logged(program, tmp_path)
    found = [point for point in recording.explain().points if point.kind == "CUDA graph"]
    assert [point.title for point in found] == asked * [
        "No CUDA graph was made of `product` because its inputs are all on the CPU, and a graph can contain only what "
        "runs on the GPU"
    ]
    assert recording.explain().sentences[0].startswith("No CUDA graph" if asked else "This log shows no fault")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("disabling cudagraphs due to incompatible op aten._local_scalar_dense.default", "cannot be part of a CUDA"),
        ("skipping cudagraphs due to multiple devices: device(type='cuda', index=0), device(type='cuda', index=1)",
         "it uses several devices: device(type='cuda', index=0), device(type='cuda', index=1)"),
        ("skipping cudagraphs due to ['non-Tensor inputs']", "one of its inputs is not a tensor"),
        ("skipping cudagraphs due to something new", "torch says: something new"),
    ],
)  # fmt: skip
def test_each_reason_is_said_in_words(said: str, words: str) -> None:
    assert words in cuda_graphs.read(said)[0]
