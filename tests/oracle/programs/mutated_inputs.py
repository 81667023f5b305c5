"""Inputs that are written."""

from __future__ import annotations

import torch

from .registering import call, grown, leaf, plain, program


@program("mutation", "inference graph")
def plain_input_is_mutated():
    def f(x):
        x.mul_(2)
        return x + 1

    return call(f, plain(3))


@program("mutation", "inference graph")
def plain_input_is_mutated_and_nothing_returned():
    def f(x):
        x.mul_(2)

    return call(f, plain(3))


@program("mutation", "inference graph")
def plain_input_is_mutated_several_times():
    def f(x, y):
        x.mul_(2).add_(y)
        y.copy_(x)
        x[0] = 7
        return x.sum()

    return call(f, plain(3), plain(3, k=1))


@program("mutation")
def plain_input_beside_a_parameter_is_mutated():
    def f(x, w):
        x.add_(1)
        return x * w

    return call(f, plain(3), leaf(3, k=1))


@program("mutation")
def non_leaf_input_is_mutated():
    def f(x):
        x.mul_(2)
        return x.sin()

    return call(f, grown(3))


@program("mutation")
def non_leaf_input_is_mutated_by_a_parameter():
    def f(x, w):
        x.mul_(w)
        return x.sin()

    return call(f, grown(3), leaf(3, k=1))


@program("mutation", "requires_grad appears")
def plain_input_gains_a_gradient_by_mutation():
    def f(x, w):
        x.mul_(w)
        return x.sin()

    return call(f, plain(3), leaf(3, k=1))


@program("mutation", "requires_grad appears")
def plain_input_overwritten_by_a_parameter():
    def f(x, w):
        x.copy_(w)
        return w * 2

    return call(f, plain(3), leaf(3, k=1))


@program("mutation", "no_grad")
def leaf_is_mutated_under_no_grad():
    def f(x):
        with torch.no_grad():
            x.mul_(2)
        return x * x

    return call(f, leaf(3))


@program("mutation", "no_grad")
def leaf_is_mutated_under_no_grad_and_only_summed():
    def f(x):
        with torch.no_grad():
            x.add_(1)
        return x.sum()

    return call(f, leaf(3))


@program("mutation", "no_grad")
def non_leaf_is_mutated_under_no_grad():
    def f(x):
        with torch.no_grad():
            x.mul_(2)
        return x.sin()

    return call(f, grown(3))


@program("mutation", "no_grad")
def mutated_with_and_without_grad_mode():
    def f(x):
        x.mul_(2)
        with torch.no_grad():
            x.add_(1)
        return x * 1.5

    return call(f, grown(3))


@program("mutation", "hidden from autograd")
def leaf_is_mutated_through_detach():
    def f(x):
        x.detach().mul_(2)
        return x * 3

    return call(f, leaf(3))


@program("mutation", "hidden from autograd")
def non_leaf_is_mutated_through_detach():
    def f(x):
        x.detach().mul_(2)
        return x.sin()

    return call(f, grown(3))


@program("mutation", "hidden from autograd")
def leaf_is_mutated_through_data():
    def f(x):
        x.data.mul_(2)
        return x * 3

    return call(f, leaf(3))


@program("mutation", "hidden from autograd")
def mutated_openly_and_through_detach():
    def f(x):
        x.detach().mul_(2)
        x.add_(1)
        return x.sin()

    return call(f, grown(3))


@program("mutation", "is_input")
def mutated_input_is_returned():
    def f(x):
        return x.mul_(2)

    return call(f, grown(3))


@program("mutation", "is_input", "inference graph")
def mutated_plain_input_is_returned():
    def f(x):
        x.add_(1)
        return x, x * 2

    return call(f, plain(3))


@program("mutation", "alias_of_input")
def view_of_mutated_input_is_returned():
    def f(x):
        x.mul_(2)
        return x.t(), x.view(-1)

    return call(f, grown(3, 2))


@program("mutation", "alias_of_input")
def view_taken_before_the_mutation_is_returned():
    def f(x):
        y = x[0]
        x.mul_(2)
        return y

    return call(f, grown(3, 2))


@program("mutation")
def input_is_mutated_through_a_view():
    def f(x):
        x[0].mul_(2)
        x.t()[1].add_(1)
        return x * 2

    return call(f, grown(3, 2))


@program("mutation", "inference graph")
def slice_of_a_plain_input_is_overwritten():
    def f(x, y):
        x[1:] = y
        return x.clone()

    return call(f, plain(3), plain(2, k=1))


@program("mutation", "alias_of_input")
def mutated_view_of_input_is_returned():
    def f(x):
        y = x.view(-1)
        y.add_(1)
        return y

    return call(f, grown(3, 2))


@program("mutation")
def input_is_zeroed():
    def f(x, w):
        x.zero_()
        return x + w

    return call(f, grown(3), leaf(3, k=1))


@program("mutation")
def input_is_filled_from_a_result():
    def f(x, w):
        y = w * 2
        x.copy_(y)
        return y

    return call(f, grown(3), leaf(3, k=1))


@program("mutation", "broadcast")
def input_is_overwritten_by_a_broadcast_value():
    def f(x, w):
        x.copy_(w)
        return x.sum()

    return call(f, grown(2, 3), leaf(3, k=1))


@program("mutation", "integer")
def integer_counter_is_bumped():
    def f(x, count):
        count.add_(1)
        return x * count

    return call(f, leaf(3), torch.tensor(4))


@program("mutation", "integer")
def boolean_mask_is_updated():
    def f(x, mask):
        mask.logical_not_()
        return x.masked_fill(mask, 0.5)

    return call(f, leaf(3), torch.tensor([True, False, True]))


@program("mutation", "dtype")
def float_input_receives_doubles():
    def f(x, y):
        x.copy_(y)
        return x + 1

    return call(f, plain(3), plain(3, k=1, dtype=torch.float64))


@program("mutation")
def mutation_that_changes_nothing():
    def f(x):
        x.mul_(1).add_(0)
        return x * 2

    return call(f, grown(3))


@program("mutation")
def mutation_that_is_undone():
    def f(x):
        y = x.clone()
        x.mul_(2)
        x.copy_(y)
        return x + 1

    return call(f, grown(3))


@program("mutation", "min-cut")
def value_is_read_before_the_mutation():
    def f(x, w):
        y = x * w
        with torch.no_grad():
            x.mul_(2)
        return y

    return call(f, plain(3), leaf(3, k=1))


@program("mutation", "min-cut")
def moving_average_is_read_then_updated():
    def f(x, ema, w):
        y = (x - ema) * w
        with torch.no_grad():
            ema.mul_(0.5).add_(x.mean(0))
        return y

    return call(f, plain(4, 3), plain(3, k=1), leaf(3, k=2))


@program("mutation", "min-cut")
def moving_average_with_a_nonlinear_use():
    def f(x, ema, w):
        y = torch.sigmoid((x - ema) * w) * ema.exp()
        with torch.no_grad():
            ema.mul_(0.5).add_(x.detach().mean(0), alpha=0.5)
        return y.sum()

    return call(f, leaf(4, 3), plain(3, k=1), leaf(3, k=2))


@program("mutation", "min-cut")
def parameter_takes_a_step_after_its_use():
    def f(x, w):
        y = (x * w).sin()
        with torch.no_grad():
            w.sub_(0.1 * x)
        return y.sum()

    return call(f, leaf(3), leaf(3, k=1))


@program("mutation")
def cache_is_written_at_a_position():
    def f(cache, x):
        cache[:, 1:2] = x
        return cache @ cache.t()

    return call(f, plain(3, 4), leaf(3, 1, k=1))


@program("mutation")
def scatter_into_an_input():
    def f(x, index, source):
        x.scatter_(0, index, source)
        x.index_add_(0, index, source)
        return x * 2

    return call(f, grown(4), torch.tensor([2, 0]), leaf(2, k=1))


@program("mutation", "foreach")
def foreach_updates_several_inputs():
    def f(a, b, g):
        with torch.no_grad():
            torch._foreach_add_([a, b], [g, g], alpha=-0.1)
        return (a * b).sum()

    return call(f, leaf(3), leaf(3, k=1), plain(3, k=2))


@program("mutation", "out=")
def result_is_written_with_out():
    def f(x, y, out):
        torch.add(x, y, out=out)
        return out * 2

    return call(f, plain(3), plain(3, k=1), plain(3, k=2))


@program("mutation", "no result")
def only_intermediates_are_mutated():
    def f(x):
        y = x * 2
        y.add_(1)
        y[0].mul_(3)
        return y

    return call(f, leaf(3, 2))


@program("mutation", "alias_of_intermediate")
def view_of_a_mutated_intermediate():
    def f(x):
        y = x * 2
        z = y.t()
        y.add_(1)
        z.mul_(3)
        return z, y

    return call(f, leaf(3, 2))


@program("mutation", "factory")
def fresh_tensor_is_filled_by_a_parameter():
    def f(x):
        out = torch.zeros(2, 3)
        out[0] = x
        out[1].copy_(x * 2)
        return out

    return call(f, leaf(3))
