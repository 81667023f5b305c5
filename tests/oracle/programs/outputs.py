"""Outputs that alias nothing, inputs, or intermediates."""

from __future__ import annotations

import torch

from .registering import call, grown, leaf, plain, program


@program("non_alias")
def plain_arithmetic():
    def f(x, y):
        return (x * y).sin(), x + 1

    return call(f, leaf(3, 4), leaf(3, 4, k=1))


@program("non_alias", "inference graph")
def nothing_requires_grad():
    def f(x, y):
        return x * y, (x - y).sum()

    return call(f, plain(3, 4), plain(3, 4, k=1))


@program("is_input")
def input_returned_as_it_is():
    def f(x, y):
        return x, x * y

    return call(f, leaf(3), leaf(3, k=1))


@program("is_input")
def non_leaf_input_returned():
    def f(x):
        return x, x * 2

    return call(f, grown(3))


@program("is_input")
def input_returned_twice():
    def f(x):
        return x, x, x.sin()

    return call(f, leaf(3))


@program("is_input", "inference graph")
def plain_input_returned():
    def f(x, y):
        return x, y + x

    return call(f, plain(3), plain(3, k=1))


@program("is_input")
def only_the_input_is_returned():
    def f(x):
        return x

    return call(f, leaf(3))


@program("alias_of_input")
def view_of_input():
    def f(x):
        return x.view(-1), x.t(), x.cos()

    return call(f, leaf(3, 4))


@program("alias_of_input")
def view_of_non_leaf_input():
    def f(x):
        return x[1:], x * 2

    return call(f, grown(3, 4))


@program("alias_of_input", "inference graph")
def view_of_plain_input():
    def f(x):
        return x.t(), x.unsqueeze(0), x + 1

    return call(f, plain(3, 4))


@program("alias_of_input")
def view_of_a_view_of_input():
    def f(x):
        y = x.t()
        return y[1:].unsqueeze(1), y

    return call(f, leaf(3, 4))


@program("alias_of_input")
def view_of_an_input_that_is_a_view():
    def f(x):
        return x.t(), x[0]

    base = leaf(4, 3)
    return call(f, base[1:])


@program("alias_of_input")
def as_strided_of_input():
    def f(x):
        return x.as_strided((2, 2), (1, 2), 1), x.sin()

    return call(f, leaf(6))


@program("alias_of_input")
def expanded_input():
    def f(x):
        return x.expand(4, 3), x * 2

    return call(f, leaf(3))


@program("alias_of_input")
def whole_input_viewed_in_its_own_shape():
    def f(x):
        return x.view(3, 4), x.view_as(x), x[:]

    return call(f, leaf(3, 4))


@program("alias_of_input", "detach")
def detached_input():
    def f(x):
        return x.detach(), x * 2

    return call(f, leaf(3))


@program("alias_of_input", "detach")
def detached_view_of_input():
    def f(x):
        return x.detach()[1:], x[1:].detach(), x * 2

    return call(f, leaf(3))


@program("alias_of_input", "no_grad")
def view_of_input_taken_under_no_grad():
    def f(x):
        with torch.no_grad():
            y = x.view(-1)
        return y, x * 2

    return call(f, leaf(3, 2))


@program("alias_of_input")
def data_of_input():
    def f(x):
        return x.data, x * 2

    return call(f, leaf(3))


@program("alias_of_intermediate_save_as_output")
def view_of_intermediate():
    def f(x):
        y = x * 2
        return y.view(-1)

    return call(f, leaf(3, 4))


@program("alias_of_intermediate_save_as_output", "alias_of_intermediate")
def two_views_of_one_intermediate():
    def f(x):
        y = x * 2
        return y.view(-1), y.t()

    return call(f, leaf(3, 4))


@program("alias_of_intermediate_base_is_user_output")
def intermediate_and_its_views():
    def f(x):
        y = x * 2
        return y.view(-1), y, y[0]

    return call(f, leaf(3, 4))


@program("alias_of_intermediate_base_is_user_output")
def intermediate_first_then_view():
    def f(x):
        y = x * 2
        return y, y.t()

    return call(f, leaf(3, 4))


@program("alias_of_intermediate", "inference graph")
def views_of_a_plain_intermediate():
    def f(x):
        y = x * 2
        return y.view(-1), y.t(), y

    return call(f, plain(3, 4))


@program("non_alias")
def intermediate_returned_twice():
    def f(x):
        y = x * 2
        return y, y

    return call(f, leaf(3))


@program("alias_of_intermediate")
def view_of_intermediate_returned_twice():
    def f(x):
        y = (x * 2).view(-1)
        return y, y

    return call(f, leaf(3, 2))


@program("alias_of_intermediate", "detach")
def intermediate_and_its_detached_alias():
    def f(x):
        y = x * 2
        return y, y.detach()

    return call(f, leaf(3))


@program("alias_of_intermediate", "detach")
def only_the_detached_alias_of_an_intermediate():
    def f(x):
        y = x * 2
        return y.detach(), y.sum()

    return call(f, leaf(3))


@program("alias_of_intermediate", "detach")
def detached_views_of_an_intermediate():
    def f(x):
        y = (x * 2).detach()
        return y[0], y[1], x.sin()

    return call(f, leaf(3, 2))


@program("multi-output view", "alias_of_intermediate")
def intermediate_is_split():
    def f(x):
        return (x * 2).split(1)

    return call(f, leaf(3, 2))


@program("multi-output view", "alias_of_intermediate")
def intermediate_is_unbound_and_returned():
    def f(x):
        y = x * 2
        return (*y.unbind(0), y)

    return call(f, leaf(3, 2))


@program("multi-output view", "alias_of_intermediate")
def one_chunk_of_an_intermediate():
    def f(x):
        return (x * 2).chunk(2)[1]

    return call(f, leaf(4, 2))


@program("multi-output view", "alias_of_intermediate")
def view_of_a_chunk_of_an_intermediate():
    def f(x):
        a, b = (x * 2).chunk(2)
        return a.t(), b

    return call(f, leaf(4, 2))


@program("multi-output view", "alias_of_input")
def input_is_unbound():
    def f(x):
        return x.unbind(0)

    return call(f, leaf(3, 2))


@program("multi-output view", "alias_of_input")
def input_is_split_and_viewed():
    def f(x):
        a, b = x.split(2)
        return a.t(), b * 2

    return call(f, grown(4, 2))


@program("multi-output view", "alias_of_input")
def chunks_of_an_input_beside_other_results():
    def f(x):
        a, b = x.chunk(2)
        return a, b, a * b

    return call(f, leaf(4, 2))


@program("unsafe_view_alias")
def unsafe_view_of_intermediate():
    def f(x):
        return torch.ops.aten._unsafe_view(x * 2, [6])

    return call(f, leaf(3, 2))


@program("unsafe_view_alias")
def linear_over_three_dimensions():
    def f(x, w):
        return torch.matmul(x, w)

    return call(f, leaf(2, 3, 4), leaf(4, 2, k=1))


@program("unsafe_view_alias")
def products_of_batches():
    def f(x, y):
        return x @ y, (x @ y).transpose(0, 1)

    return call(f, leaf(2, 3, 4), leaf(2, 4, 5, k=1))


@program("unsafe_view_alias")
def reshape_that_copies():
    def f(x):
        return (x * 2).t().reshape(-1)

    return call(f, leaf(3, 2))


class ViewInForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view(-1)

    @staticmethod
    def backward(ctx, g):
        return g.view(3, 2) * 3


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x * x * g


class AddOneInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.add_(1)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


class TwoResultsOneWithoutGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        index = x.argsort()
        ctx.mark_non_differentiable(index)
        return x * 2, index

    @staticmethod
    def backward(ctx, g, _):
        return g * 2


class MutatesItsTangent(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g.mul_(2)


@program("custom_function_view")
def custom_function_returns_a_view_of_the_input():
    def f(x):
        return ViewInForward.apply(x)

    return call(f, leaf(3, 2))


@program("custom_function_view")
def custom_function_returns_a_view_of_an_intermediate():
    def f(x):
        y = x * 2
        return ViewInForward.apply(y)

    return call(f, leaf(3, 2))


@program("custom_function_view")
def custom_function_view_beside_its_base():
    def f(x):
        y = x * 2
        return ViewInForward.apply(y), y

    return call(f, leaf(3, 2))


@program("custom function")
def custom_function_with_saved_tensor():
    def f(x):
        return Cube.apply(x) + x

    return call(f, leaf(3))


@program("custom function", "mutation")
def custom_function_mutates_an_intermediate():
    def f(x):
        return AddOneInPlace.apply(x * 3)

    return call(f, leaf(3))


@program("custom function", "mutation")
def custom_function_mutates_an_input():
    def f(x):
        return AddOneInPlace.apply(x) * 2

    return call(f, grown(3))


@program("custom function", "integer")
def custom_function_with_a_non_differentiable_output():
    def f(x):
        return TwoResultsOneWithoutGradient.apply(x)

    return call(f, leaf(4))


@program("custom function", "mutation")
def custom_backward_mutates_its_tangent():
    def f(x):
        return MutatesItsTangent.apply(x) * 2

    return call(f, leaf(3))


@program("custom function", "mutation", "tangent")
def custom_backward_mutates_the_users_tangent():
    def f(x):
        return MutatesItsTangent.apply(x)

    return call(f, leaf(3))
