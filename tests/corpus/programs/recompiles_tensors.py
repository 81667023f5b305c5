"""One recompile for each fact about a tensor that a guard can hold it to."""

import torch


def compiled(function):
    return torch.compile(function, backend="eager")


def static(function):
    return torch.compile(function, backend="eager", dynamic=False)


@static
def each_size_anew(x):
    return x * 2


@compiled
def size_becomes_dynamic(x):
    if x.shape[0] > 6:
        return x * 3
    return x * 2


@compiled
def other_dtype(x, scale):
    return x * scale


@compiled
def other_rank(x):
    return x.sum(-1)


@static
def other_stride(x):
    return x + 1


@compiled
def requires_grad_or_not(weight):
    return weight * 4


@compiled
def grad_mode(x):
    return x * 5


@compiled
def device_moves(x):
    return x + 6


@compiled
def same_tensor_twice(x, y):
    return x + y


@static
def many_batch_sizes(batch, weight):
    return batch @ weight


for size in (2, 3, 4):
    each_size_anew(torch.ones(size))
for size in (4, 5, 6, 7, 8):
    size_becomes_dynamic(torch.ones(size))
for dtype in (torch.float32, torch.float64, torch.float16):
    other_dtype(torch.ones(3, dtype=dtype), 2)
for shape in ((4,), (3, 4), (2, 3, 4)):
    other_rank(torch.ones(shape))
other_stride(torch.ones(3, 4))
other_stride(torch.ones(4, 3).t())
requires_grad_or_not(torch.ones(3))
requires_grad_or_not(torch.ones(3, requires_grad=True))
grad_mode(torch.ones(3))
with torch.no_grad():
    grad_mode(torch.ones(3))
device_moves(torch.ones(3))
device_moves(torch.ones(3, device="meta"))
same_tensor_twice(torch.ones(3), torch.ones(3))
shared = torch.ones(3)
same_tensor_twice(shared, shared)
for size in range(2, 9):
    many_batch_sizes(torch.ones(size, 4), torch.ones(4, 4))
