"""What is passed and returned: containers, constants, what a function closes over."""

from __future__ import annotations

import torch

from ..compare import Setup
from .registering import Point, call, leaf, plain, program


@program("pytree")
def numbers_strings_and_none():
    def f(x, n, scale, mode, nothing):
        y = x * scale + n
        return y, n, mode, nothing, 3.5, None, True

    return call(f, leaf(3), 2, 0.5, "same", None)


@program("pytree")
def dictionaries_lists_and_tuples():
    def f(d, xs):
        return {"b": [d["a"] * 2, xs[0]], "a": (xs[1] + 1, {"deep": xs[0].t()})}

    return call(f, {"a": leaf(3)}, [leaf(2, 2, k=1), plain(3, k=2)])


@program("pytree")
def named_tuple_in_and_out():
    def f(p):
        return Point(p.x * 2, Point(p.y, p.y + 1))

    return call(f, Point(leaf(3), plain(3, k=1)))


@program("pytree")
def keyword_arguments():
    def f(x, *, w, bias=None):
        y = x * w
        return y if bias is None else y + bias

    return call(f, leaf(3), w=leaf(3, k=1), bias=leaf(3, k=2))


@program("pytree", "mutation")
def keyword_argument_is_mutated():
    def f(x, state):
        state["n"].add_(1)
        state["mean"].mul_(0.9).add_(x.detach(), alpha=0.1)
        return x * state["mean"]

    return call(f, leaf(3), state={"n": torch.tensor(0), "mean": plain(3, k=1)})


@program("pytree")
def empty_results():
    def f(x):
        return [], {"y": x * 2, "none": None}, ()

    return call(f, leaf(3))


@program("pytree")
def list_of_one():
    def f(x):
        return [x * 2]

    return call(f, leaf(3))


@program("pytree")
def nothing_is_returned():
    def f(x):
        x * 2

    return call(f, leaf(3))


@program("pytree")
def no_inputs_at_all():
    def f():
        return torch.ones(3) * 2, torch.arange(3)

    return call(f)


@program("pytree")
def constant_outputs_beside_tensors():
    def f(x):
        return torch.zeros(2), x.sin(), torch.tensor([1, 2])

    return call(f, leaf(3))


@program("pytree")
def one_input_is_unused():
    def f(x, y, z):
        return x * 2

    return call(f, leaf(3), leaf(3, k=1), plain(2))


@program("pytree", "is_input")
def structure_holding_inputs_and_results():
    def f(x, y):
        return {"in": x, "out": (x * y, [y])}

    return call(f, leaf(3), plain(3, k=1))


@program("sizes")
def size_is_returned():
    def f(x):
        return x.shape[0], x.size(), x * x.shape[0]

    return call(f, leaf(3, 2))


@program("closure")
def closed_over_parameter():
    w = leaf(3, k=1)

    def f(x):
        return x * w

    return Setup(f, (leaf(3),), watch={"w": w})


@program("closure", "mutation")
def closed_over_buffer_is_mutated():
    b = plain(3, k=1)

    def f(x):
        b.add_(1)
        return x * b

    return Setup(f, (leaf(3),), watch={"b": b})
