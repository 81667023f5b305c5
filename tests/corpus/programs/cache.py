"""AOTAutograd and FX graph cache: run twice on one cache folder. What changes is said by the first argument.

"first" fills the cache; "second" finds the same programs again, and misses where a shape, the config, the code, a
dtype or the grad mode is another; some calls bypass a cache by their nature.
"""

import sys

import torch
import torch._inductor.config as inductor
from torch import nn

second = sys.argv[1] == "second"


def scale(x):
    return x.sin() * 2


def shape_differs(x):
    return x.cos() * 3


def stride_differs(x):
    return x.tan() * 4


def dtype_differs(x):
    return x.exp() + 5


def config_differs(x):
    return x.tanh() + 6


def code_differs(x):
    if second:
        return x.relu() * 8
    return x.relu() * 7


def grad_differs(x):
    return x.sigmoid() * 9


class Callback(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 10

    @staticmethod
    def backward(context, gradient):
        return gradient * 10


def custom_function(x):
    return Callback.apply(x)


def run(function, *args, **options):
    return torch.compile(function, **options)(*args)


run(scale, torch.ones(4))
run(shape_differs, torch.ones(6 if second else 5))
run(stride_differs, torch.ones(3, 4).t() if second else torch.ones(4, 3))
run(dtype_differs, torch.ones(4, dtype=torch.float64 if second else torch.float32))
with inductor.patch(max_fusion_size=32 if second else 64):
    run(config_differs, torch.ones(4))
run(code_differs, torch.ones(4))
run(grad_differs, torch.ones(4, requires_grad=second))
run(custom_function, torch.ones(4, requires_grad=True))
model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
run(model, torch.ones(2, 4)).sum().backward()
