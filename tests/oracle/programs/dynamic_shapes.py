"""Sizes that differ from call to call."""

from __future__ import annotations

from .registering import call, grown, leaf, program


def _dynamic_arithmetic(x):
    return x * x.shape[0], x.shape[0], x.sum(0)


@program("dynamic", dynamic=True, then=(lambda: call(_dynamic_arithmetic, leaf(5, 2)),))
def dynamic_arithmetic():
    return call(_dynamic_arithmetic, leaf(3, 4))


def _dynamic_views(x):
    y = x * 2
    return x.view(-1), y.t(), y, x[1:]


@program("dynamic", "alias_of_input", "alias_of_intermediate", dynamic=True,
         then=(lambda: call(_dynamic_views, leaf(5, 2)), lambda: call(_dynamic_views, leaf(4, 6))))  # fmt: skip
def dynamic_views():
    return call(_dynamic_views, leaf(3, 4))


def _dynamic_mutation(x, y):
    x.mul_(2)
    x[0].add_(y)
    return x.sum(1), x.t()


@program("dynamic", "mutation", dynamic=True, then=(lambda: call(_dynamic_mutation, grown(5, 6), leaf(6, k=1)),))
def dynamic_mutation():
    return call(_dynamic_mutation, grown(3, 4), leaf(4, k=1))


def _dynamic_siblings(x, y):
    x.mul_(2)
    return x * y, y


def _siblings_of(n):
    base = grown(n)
    return call(_dynamic_siblings, base[:-1], base[1:])


@program("dynamic", "aliased inputs", "mutation", dynamic=True, then=(lambda: _siblings_of(7),))
def dynamic_siblings():
    return _siblings_of(4)


def _dynamic_sizes(x, n):
    rows, columns = x.shape
    return rows * columns, rows + n, [columns], x.reshape(columns, rows), n


@program("dynamic", "sizes", dynamic=True, then=(lambda: call(_dynamic_sizes, leaf(5, 6), 9),))
def dynamic_sizes_are_returned_as_integers():
    return call(_dynamic_sizes, leaf(3, 4), 7)


def _dynamic_saved_size(x, w):
    return (x @ w).reshape(-1, x.shape[0] * 2).sin() / x.shape[0], x.expand(2, *x.shape)


@program("dynamic", dynamic=True, then=(lambda: call(_dynamic_saved_size, leaf(6, 3), leaf(3, 4, k=1)),))
def dynamic_size_is_needed_by_the_backward():
    return call(_dynamic_saved_size, leaf(4, 3), leaf(3, 4, k=1))
