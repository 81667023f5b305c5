"""The whole backward as a graph, compiled twice because the second has other sizes."""

import torch
import torch._dynamo
from torch import nn

torch._dynamo.config.compiled_autograd = True
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))


@torch.compile(backend="aot_eager")
def train(x):
    model(x).sum().backward()


for size in (2, 2, 3):
    train(torch.ones(size, 4))
