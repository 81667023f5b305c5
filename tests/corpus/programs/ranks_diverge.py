"""Four ranks of one job (run by torchrun), of which three diverge from rank 0.

Rank 1 runs its graphs in another order from the second on. Rank 2 runs one collective more in `reduce_loss`. Rank 3
gets 8 rows where the others get 4, so the outputs of `scale` have other shapes there.
"""

import torch
import torch._inductor.config
import torch._inductor.debug
import torch.distributed as dist

torch._inductor.config.log_tlparse = True
dist.init_process_group("gloo")
rank = dist.get_rank()


@torch.compile
def scale(x):
    return (x @ x.T).relu()


@torch.compile
def shift(x):
    return x.sin() + 1


@torch.compile
def square(x):
    return x * x + 2


@torch.compile
def reduce_loss(x, twice):
    x = x * 2
    dist.all_reduce(x)
    if twice:
        dist.all_reduce(x)
    return x + 1


with torch._inductor.debug.record_and_log_graph_execution_order():
    scale(torch.ones(8 if rank == 3 else 4, 4))
    for run in (square, shift) if rank == 1 else (shift, square):
        run(torch.ones(3))
reduce_loss(torch.ones(3), rank == 2)
if rank != 2:
    dist.all_reduce(torch.ones(3))  # the partner of rank 2's second one
dist.barrier()
dist.destroy_process_group()
