"""Programs of which CUDA graphs are skipped. Torch's own functions decide and log it, which needs no GPU: a tensor on
the meta device stands for one on the GPU."""

from __future__ import annotations

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._inductor import cudagraph_utils

from aotviz.explain.cures import cuda_graph_cures as cures
from tests.cures.programs import Calls, Effect, compiled, program, watched


def skips(calls: Calls, cured: bool) -> Effect:
    recording, result = watched(calls, cured)
    found = [point for point in recording.explain().points if point.kind == "CUDA graph"]
    return Effect(len(found), "CUDA graphs skipped", recording, result)


def asks_for_cuda_graphs(graph: torch.fx.GraphModule, inputs: object) -> torch.fx.GraphModule:
    """A compiler that skips CUDA graphs of what writes its inputs or computes on the CPU, in torch's words."""
    written = [
        number
        for number, node in enumerate(graph.graph.find_nodes(op="placeholder"))
        if any(user.target is torch.ops.aten.copy_.default and user.args[0] is node for user in node.users)
    ]
    values = {node: node.meta.get("val") for node in graph.graph.nodes}
    devices = {value.device: node for node, value in values.items() if isinstance(value, torch.Tensor)}
    said = cudagraph_utils.check_multiple_devices_or_any_cpu_nodes(devices) if len(devices) > 1 else None
    if written:
        infos = cudagraph_utils.get_placeholder_info(graph.graph)
        said = cudagraph_utils.get_mutation_stack_trace(infos, written)
    if said:
        cudagraph_utils.log_cudagraph_skip_and_bump_counter(said)
    return graph


BACKEND = aot_autograd(fw_compiler=asks_for_cuda_graphs, keep_inference_input_mutations=True)


@program(
    "an input that is written under CUDA graphs",
    cures.WRITTEN_INPUT,
    "Return the new value",
    ("flashinfer-ai/flashinfer#403",),
    skips,
)
def a_written_input(cured: bool) -> object:
    def writes(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    def returns(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.add(1)
        return x * 2, x

    x = torch.ones(3)
    if cured:
        doubled, x = compiled(returns, backend=BACKEND)(x)
    else:
        doubled = compiled(writes, backend=BACKEND)(x)
    return doubled, x


@program(
    "a tensor on the CPU under CUDA graphs", cures.CPU_TENSOR, "`device=x.device`", ("Comfy-Org/ComfyUI#6866",), skips
)
def a_cpu_tensor(cured: bool) -> object:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * torch.full((), 2.0, device=x.device if cured else None)

    return compiled(scaled, backend=BACKEND)(torch.ones(3, device="meta")).shape


@program(
    "CUDA graphs on a machine without CUDA",
    cures.CPU_ONLY,
    "leave CUDA graphs out",
    ("pytorch/pytorch#103290",),
    skips,
)
def all_on_the_cpu(cured: bool) -> object:
    def product(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    options = {"triton.cudagraphs": not cured}
    return torch.compile(product, options=options)(torch.ones(3, 3))
