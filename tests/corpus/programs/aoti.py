"""A model that AOTInductor compiles ahead of time, from an exported program."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).relu()


program = torch.export.export(Model().eval(), (torch.ones(2, 4),))
torch._inductor.aoti_compile_and_package(program, package_path="model.pt2")
