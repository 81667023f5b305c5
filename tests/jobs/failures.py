"""Jobs that raise or that compile nothing, as their users report them; see recompiles.py for how a job is written."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def custom_op_without_fake(cured):
    @torch.library.custom_op("jobs_faked::swish" if cured else "jobs::swish", mutates_args=())
    def swish(x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)

    if cured:
        swish.register_fake(torch.empty_like)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def forward(x):
        return swish(x) + 1  # here

    forward(torch.randn(3))


def my_backend(graph, inputs):
    raise NotImplementedError("my_backend knows no relu")  # here


def backend_raises(cured):
    @torch.compile(backend="eager" if cured else my_backend)
    def forward(x):  # here
        return torch.relu(x)

    forward(torch.randn(3))


def renamed_pass(graph):
    raise KeyError("fused_matmul_v1")  # here


def inductor_pass_raises(cured):
    torch._inductor.config.post_grad_custom_post_pass = None if cured else renamed_pass

    @torch.compile
    def forward(x):  # here
        return x @ x + 1

    forward(torch.randn(4, 4))


def mark_dynamic_refused(cured):
    @torch.compile(backend="aot_eager")
    def forward(x):
        if cured:
            return x + 1
        if x.size(0) == 5:  # here
            return x * 2
        return x + 1

    x = torch.randn(5, 3)
    torch._dynamo.mark_dynamic(x, 0)
    forward(x)


class Thresholded(nn.Module):
    def __init__(self, cured):
        super().__init__()
        self.cured = cured

    def forward(self, x):
        count = x.sum().to(torch.int64)
        if self.cured:
            return torch.where(count > 3, x * 2, x - 1)
        if count.item() > 3:  # here
            return x * 2
        return x - 1


def export_branches_on_a_value(cured):
    torch.export.export(Thresholded(cured), (torch.rand(8),))


class Grouped(nn.Module):
    def __init__(self, cured):
        super().__init__()
        self.cured = cured

    def forward(self, x):
        if self.cured:
            return x.view(-1, 2, 3).sum(1)
        return x.view(4, 2, 3).sum(1)  # here


def export_fixes_the_batch(cured):
    shapes = {"x": {0: torch.export.Dim("batch")}}
    torch.export.export(Grouped(cured), (torch.randn(4, 6),), dynamic_shapes=shapes)


def shapes_do_not_match(cured):
    weight = torch.randn(4 if cured else 5, 2)

    @torch.compile(backend="aot_eager")
    def forward(x):
        return x @ weight  # here

    forward(torch.randn(3, 4))


def fullgraph_with_print(cured):
    @torch.compile(backend="aot_eager", fullgraph=True)
    def forward(x):
        if not cured:
            print("here")  # here
        return x + 1

    forward(torch.randn(3))


def limit_with_fullgraph(cured):
    @torch.compile(backend="aot_eager", fullgraph=True, dynamic=None if cured else False)
    def forward(x):  # here
        return x + 1

    for length in range(3, 15):
        forward(torch.randn(length))


def errors_suppressed(cured):
    torch._dynamo.config.suppress_errors = True

    @torch.compile(backend="eager" if cured else my_backend)
    def forward(x):  # here
        return torch.relu(x)

    forward(torch.randn(3))


def ddp_of_a_library_module(cured):
    from tests import one_rank

    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    if cured:
        model = torch.compile(model, backend="aot_eager")
    with one_rank.alone():
        wrapped = nn.parallel.DistributedDataParallel(model)
        trained = wrapped if cured else torch.compile(wrapped, backend="aot_eager")
        trained(torch.randn(2, 4)).sum().backward()


def device_mixed(cured):
    scale = torch.ones(3, device="cpu" if cured else "meta")

    @torch.compile(backend="aot_eager")
    def forward(x):
        return F.relu(x) * scale  # here

    forward(torch.randn(3))


def raises_itself(cured):
    @torch.compile(backend="aot_eager", fullgraph=True)
    def forward(x):
        if x.shape[-1] != 8:
            raise ValueError("forward wants 8 features")  # here
        return torch.relu(x)

    forward(torch.randn(3, 8 if cured else 6))
