"""What pages of docs/ use without defining it, a statement each: a reader's own model, data, training and compiler.

Where a page says `model(batch)`, its notebook first has a cell with these two lines, to be replaced by the reader's.
page_runs.py takes from here only what a block needs and what no block above it has defined. This file runs as it is, so
that it is checked as all Python is; nothing imports it.
"""

import torch

import aotviz

model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
fn_or_module = model
optimizer = torch.optim.AdamW(model.parameters())
batches = [torch.randn(4, 3) for _ in range(4)]
batch = torch.randn(4, 3)
x = torch.ones(4, 3, requires_grad=True)
w = torch.ones(3, 3, requires_grad=True)
args = (torch.ones(2, 3), torch.ones(3, 3, requires_grad=True))


def fn(x, w):
    return (x @ w).sin().sum()


def step(x, w):
    return (x @ w).sin()


compiled = aotviz.compile(lambda x: x.sin().exp(), backend="eager")


def my_compiler(graph, inputs):
    """A compiler with a fault: it computes cosines for sines."""
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default):
        node.target = torch.ops.aten.cos.default
    graph.recompile()
    return graph


mine = {}


class Counting(torch.nn.Module):
    """A model with a fault: it is compiled again for each number of steps."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.steps_done = 0

    def forward(self, x):
        self.steps_done += 1
        return self.linear(x) * self.steps_done


counting = torch.compile(Counting(), backend="aot_eager")


def train():
    for batch in batches:
        counting(batch).square().mean().backward()


def recorded():
    """Two compilations of a model, for two batch sizes."""
    compiled = aotviz.compile(model, backend="eager", dynamic=False)
    for size in (4, 8):
        compiled(torch.randn(size, 3)).sum().backward()
    return compiled.recording


recording = recorded()
compilation = recording[0]
