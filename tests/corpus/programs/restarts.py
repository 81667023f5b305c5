"""Functions that Dynamo analyses several times before it has a graph, and one whose graph it gives up."""

import torch


def breaks(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


def many_breaks(x):
    for _ in range(3):
        x = x.sin()
        print(end="")
    return x.cos()


def grows(x, items):
    items.append(x)
    print(end="")
    return x + len(items)


torch.compile(breaks, backend="eager")(torch.ones(3))
torch.compile(many_breaks, backend="eager")(torch.ones(3))
torch.compile(grows, backend="eager")(torch.ones(3), [])
