"""Compilations that fail: in the backend, in a fake tensor, in Dynamo, in a user's own code."""

import contextlib

import torch


def broken_backend(graph, inputs):
    raise RuntimeError("this backend cannot compile anything")


def on_broken_backend(x):
    return x + 1


def wrong_shapes(x, y):
    return x @ y


def unsupported(x):
    import sys

    sys._getframe()
    return x + 1


def data_dependent(x):
    return x + 1 if x.sum() > 0 else x - 1


def raises_itself(x):
    if x.shape[0] == 3:
        raise ValueError("three rows are not allowed")
    return x


for function, args, options in (
    (on_broken_backend, (torch.ones(3),), {"backend": broken_backend}),
    (wrong_shapes, (torch.ones(3, 4), torch.ones(3, 4)), {"backend": "eager"}),
    (unsupported, (torch.ones(3),), {"backend": "eager", "fullgraph": True}),
    (data_dependent, (torch.ones(3),), {"backend": "eager", "fullgraph": True}),
    (raises_itself, (torch.ones(3),), {"backend": "eager", "fullgraph": True}),
):
    with contextlib.suppress(Exception):
        torch.compile(function, **options)(*args)
