"""Distributed data parallel in one process: small buckets make torch split the graph."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(600, 600) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x


wrapped = DistributedDataParallel(Model(), bucket_cap_mb=1.5)
step = torch.compile(wrapped, backend="aot_eager")
step(torch.ones(2, 600)).sum().backward()
dist.destroy_process_group()
