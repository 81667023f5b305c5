"""Twenty recompiles. One guard is behind most of them and runs into the limit: its function falls back to eager."""

import torch
import torch._dynamo
from torch import nn

torch._dynamo.config.recompile_limit = 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps_done = 0
        self.linear = nn.Linear(4, 4)

    def forward(self, batch):
        self.steps_done += 1
        warm_up = min(1.0, self.steps_done / 100)
        return self.linear(batch) * warm_up


@torch.compile(backend="eager")
def evaluate(batch, weight, top):
    return (batch @ weight).topk(top).values


model = Model()
step = torch.compile(model, backend="eager")
for _ in range(20):
    step(torch.ones(2, 4))
weight = torch.ones(4, 4)
for size in (2, 3, 5):
    evaluate(torch.ones(size, 4), weight, 2)
evaluate(torch.ones(5, 4, dtype=torch.float64), weight.double(), 2)
for top in (1, 3):
    evaluate(torch.ones(5, 4), weight, top)
with torch.no_grad():
    evaluate(torch.ones(5, 4), weight, 2)
