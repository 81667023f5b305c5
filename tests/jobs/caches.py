"""Jobs that miss or bypass a cache, as their users report them; see recompiles.py for how a job is written."""

from __future__ import annotations

import torch
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass


def count_nodes(graph):
    graph.nodes_counted = len(list(graph.nodes))


class CountNodes(CustomGraphPass):
    def __call__(self, graph):
        count_nodes(graph)

    def uuid(self):
        return "count nodes, 1"


def pass_without_uuid(cured):
    config.post_grad_custom_post_pass = CountNodes() if cured else count_nodes

    @torch.compile
    def forward(x):
        return x @ x @ x

    for _ in range(2):
        torch._dynamo.reset()
        forward(torch.randn(8, 8))


def option_changed(cured):
    def forward(x):
        return x @ x @ x

    for size in (64, 64 if cured else 32):
        torch._dynamo.reset()
        with config.patch(max_fusion_size=size):
            torch.compile(forward)(torch.randn(8, 8))


def caches_disabled(cured):
    config.force_disable_caches = not cured

    @torch.compile
    def forward(x):
        return x @ x

    for _ in range(2):
        torch._dynamo.reset()
        forward(torch.randn(8, 8))


def constant_in_the_graph(cured):
    def run(seconds):
        torch._dynamo.reset()

        @torch.compile
        def forward(x, offset):  # here
            if cured:
                return torch.addmm(offset, x, x)
            return torch.addmm(x, x, x, beta=seconds)  # here

        forward(torch.randn(8, 8), torch.full((8, 8), seconds))

    run(1700000000.25)
    run(1700000451.5)


@torch.compiler.allow_in_graph
def opaque(x):
    return x @ x


def allowed_in_graph(cured):
    @torch.compile
    def forward(x):  # here
        return (x @ x if cured else opaque(x)) @ x  # here

    for _ in range(2):
        torch._dynamo.reset()
        forward(torch.randn(8, 8))
