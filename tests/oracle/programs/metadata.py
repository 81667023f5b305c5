"""Inputs whose shape or strides change in place."""

from __future__ import annotations

import torch

from .registering import call, grown, leaf, plain, program


@program("metadata")
def plain_input_is_transposed_in_place():
    def f(x):
        x.t_()
        return x * 2

    return call(f, plain(3, 2))


@program("metadata")
def non_leaf_is_transposed_in_place():
    def f(x):
        x.transpose_(0, 1)
        return x * 2

    return call(f, grown(3, 2))


@program("metadata")
def input_is_unsqueezed_in_place():
    def f(x):
        x.unsqueeze_(0)
        return x.sin()

    return call(f, plain(3, 2))


@program("metadata")
def input_is_squeezed_in_place():
    def f(x, w):
        x.squeeze_(0)
        return x * w

    return call(f, plain(1, 3), leaf(3, k=1))


@program("metadata", "mutation")
def input_is_transposed_and_mutated():
    def f(x):
        x.t_()
        x.mul_(2)
        return x + 1

    return call(f, plain(3, 2))


@program("metadata", "mutation")
def non_leaf_is_transposed_and_mutated():
    def f(x):
        x.mul_(2)
        x.t_()
        return x.sin()

    return call(f, grown(3, 2))


@program("metadata", "mutation")
def mutated_through_a_view_then_transposed():
    def f(x):
        x[0].mul_(2)
        x.t_()
        x[0].add_(1)
        return x * 1

    return call(f, grown(3, 2))


@program("metadata", "is_input")
def transposed_input_is_returned():
    def f(x):
        return x.t_()

    return call(f, grown(3, 2))


@program("metadata", "alias_of_input")
def view_of_a_transposed_input():
    def f(x):
        x.t_()
        return x[0], x

    return call(f, plain(3, 2))


@program("metadata")
def input_is_transposed_twice():
    def f(x):
        x.t_()
        x.t_()
        return x * 2

    return call(f, grown(3, 2))


@program("metadata")
def input_is_restrided_in_place():
    def f(x):
        x.as_strided_((2, 2), (1, 2))
        return x * 2

    return call(f, plain(6))


@program("metadata")
def input_is_resized_within_its_storage():
    def f(x):
        x.resize_(2, 2)
        return x * 2

    return call(f, plain(6))


@program("metadata")
def input_is_resized_beyond_its_storage():
    def f(x):
        x.resize_(12)
        x.fill_(1)
        return x * 2

    return call(f, plain(6))


@program("metadata", "no_grad")
def leaf_is_transposed_under_no_grad():
    def f(x):
        with torch.no_grad():
            x.t_()
        return x * 2

    return call(f, leaf(3, 2))


@program("metadata", "hidden from autograd")
def detached_alias_is_transposed_in_place():
    def f(x):
        y = x.detach()
        y.t_()
        return y * 2, x * 3

    return call(f, leaf(3, 2))


@program("metadata", "requires_grad appears")
def input_is_asked_for_gradients_inside():
    def f(x):
        y = x.detach()
        y.requires_grad_()
        return y * 2, x + 1

    return call(f, plain(3))


@program("metadata", "alias_of_intermediate")
def intermediate_is_transposed_in_place():
    def f(x):
        y = x * 2
        y.t_()
        return y, y[0]

    return call(f, leaf(3, 2))


@program("metadata", "alias_of_input")
def view_of_input_is_unsqueezed_in_place():
    def f(x):
        y = x.view(-1)
        y.unsqueeze_(0)
        return y

    return call(f, grown(3, 2))


@program("set_")
def input_is_set_to_another_input():
    def f(x, y):
        x.set_(y)
        return x * 2

    return call(f, plain(3), plain(3, k=1))


@program("set_")
def input_is_set_to_an_intermediate():
    def f(x, y):
        z = y * 2
        x.set_(z)
        return x + 1

    return call(f, plain(3), plain(3, k=1))


@program("set_", "mutation")
def input_is_set_then_mutated():
    def f(x, y):
        x.set_(y * 2)
        x.mul_(3)
        return x + 1

    return call(f, plain(3), plain(3, k=1))


@program("set_", "no_grad")
def parameter_is_set_under_no_grad():
    def f(x, y):
        with torch.no_grad():
            x.set_(y * 2)
        return (x * x).sum()

    return call(f, leaf(3), plain(3, k=1))


@program("set_", "hidden from autograd")
def data_is_assigned():
    def f(x, y):
        x.data = y * 2
        return x * x

    return call(f, leaf(3), plain(3, k=1))


@program("storage resize")
def storage_is_freed():
    def f(x):
        y = x * 2
        x.untyped_storage().resize_(0)
        return y

    return call(f, plain(3))


@program("storage resize")
def storage_is_grown_and_filled():
    def f(x, y):
        with torch.no_grad():
            x.untyped_storage().resize_(12)
            x.copy_(y)
        return x * 2

    def build_freed():
        x = plain(3)
        x.untyped_storage().resize_(0)
        return x

    return call(f, build_freed(), plain(3, k=1))
