"""Symbolic sizes: marked, found, guarded on, and specialised; a size that depends on data."""

import torch
import torch._dynamo


def compiled(function, **options):
    return torch.compile(function, backend="aot_eager", **options)


def marked(x):
    return (x * x.shape[0]).sum()


def guarded(x, y):
    if x.shape[0] % 2 == 0 and x.shape[0] < 20:
        return x + y
    return x - y


def specialised(x):
    return x.reshape(6) if x.numel() == 6 else x.reshape(-1)[:6]


def from_data(mask, x):
    (where,) = torch.nonzero(mask, as_tuple=True)
    return x[where].sum()


def a_number(x):
    count = x.sum().item()
    torch._check(count > 0)
    return torch.zeros(int(count)) + 1


x = torch.ones(5, 3)
torch._dynamo.mark_dynamic(x, 0)
compiled(marked)(x)
function = compiled(guarded, dynamic=True)
for size in (4, 5, 8, 30):
    function(torch.ones(size), torch.ones(size))
function = compiled(specialised, dynamic=True)
for size in (6, 8, 10):
    function(torch.ones(size))
torch._dynamo.config.capture_dynamic_output_shape_ops = True
torch._dynamo.config.capture_scalar_outputs = True
compiled(from_data)(torch.tensor([True, False, True]), torch.ones(3))
compiled(a_number, fullgraph=True)(torch.tensor([1, 2]))
