"""An ordinary training loop on Inductor, with a parameter updated in place and an evaluation beside it."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 8)
        self.outer = nn.Linear(8, 2)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen.add_(x.shape[0])
        return self.outer(self.inner(x).relu())


torch.manual_seed(0)
model = Model()
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
step = torch.compile(model)
for size in (8, 8, 6):
    loss = step(torch.ones(size, 4)).square().mean()
    loss.backward()
    optimiser.step()
    optimiser.zero_grad()
model.eval()
with torch.no_grad():
    step(torch.ones(8, 4))
