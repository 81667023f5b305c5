"""Two ranks of one job (run by torchrun). Rank 1 gets one batch of another size and runs one collective more."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Linear(4, 4)


@torch.compile
def step(x):
    return model(x).relu().sum()


@torch.compile
def reduce_loss(x, twice):
    x = x * 2
    dist.all_reduce(x)
    if twice:
        dist.all_reduce(x)
    return x + 1


@torch.compile
def alike(x):
    return x * 3


step(torch.ones(4, 4)).backward()
step(torch.ones(5 if rank else 4, 4)).backward()
alike(torch.ones(3))
reduce_loss(torch.ones(3), rank == 1)
if rank == 0:
    dist.all_reduce(torch.ones(3))  # the partner of rank 1's second one
dist.barrier()
dist.destroy_process_group()
