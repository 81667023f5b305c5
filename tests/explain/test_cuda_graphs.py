"""Why CUDA graphs were skipped, from records that torch's own functions write. They need no GPU to decide."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._inductor import compile_fx, cudagraph_utils
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from aotviz.explain import cuda_graphs
from aotviz.explain.explanation import Point
from tests.explain.logs import logged


def asks_for_cuda_graphs(graph: torch.fx.GraphModule, inputs: object) -> object:
    """A compiler that skips CUDA graphs of what writes its inputs, in torch's words."""
    written = [
        number
        for number, node in enumerate(graph.graph.find_nodes(op="placeholder"))
        if any(user.target is torch.ops.aten.copy_.default and user.args[0] is node for user in node.users)
    ]
    if written:
        infos = cudagraph_utils.get_placeholder_info(graph.graph)
        cudagraph_utils.log_cudagraph_skip_and_bump_counter(cudagraph_utils.get_mutation_stack_trace(infos, written))
    return graph


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


def returns(x):
    x = x.add(1)
    return x * 2, x


def test_a_written_input_is_told_with_its_line_and_the_cure_lifts_it(tmp_path: Path) -> None:
    backend = aot_autograd(fw_compiler=asks_for_cuda_graphs, keep_inference_input_mutations=True)
    (point,) = skipped(writes, tmp_path, backend)
    assert "No CUDA graph was made of `writes` because it writes 1 of its inputs" in point.text
    assert point.code == "x.add_(1)"
    assert point.place.endswith(line(writes, "x.add_(1)"))
    assert "`x = x.add(1)`, not `x.add_(1)`" in point.fix
    assert not skipped(returns, tmp_path, backend)


def test_a_tensor_on_the_cpu_is_told_by_the_backend_that_makes_cuda_graphs(tmp_path: Path) -> None:
    def double(x):
        return x * 2

    (point,) = skipped(double, tmp_path, "cudagraphs")
    assert "is a tensor on the CPU" in point.text
    assert point.code == "return x * 2"
    assert not point.failed


def test_the_cure_for_a_cpu_tensor_leaves_torch_nothing_to_skip() -> None:
    def on_cpu(x):
        return x * torch.tensor(2.0)

    def on_gpu(x):
        return x * torch.full((), 2.0, device=x.device)

    found = []
    for function in (on_cpu, on_gpu):
        with FakeTensorMode(allow_non_fake_inputs=True) as mode, compile_fx.config.patch(graph_partition=False):
            with mode:
                x = torch.empty(3, device="cuda")
            graph = make_fx(function, tracing_mode="fake")(x)
            devices = {}
            for node in graph.graph.nodes:
                if isinstance(node.meta.get("val"), torch.Tensor):
                    devices.setdefault(node.meta["val"].device, node)
            found.append(cudagraph_utils.check_multiple_devices_or_any_cpu_nodes(devices))
    assert "cpu device" in found[0]
    assert found[1] is None


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
