"""A table of small programs, each of which pins down one rule of aliasing, mutation or calling convention.

Every program is a function that builds fresh inputs and returns `call(f, *args, **kwargs)`.  A program that is called
several times (other sizes, other grad mode) lists further builders with `then`.  Values are fixed, so a program
is the same on every run.  Tags name the rule, and the kinds of OutputType (SYSTEM.md A1) that the program exercises.
"""

from __future__ import annotations

import inspect
import textwrap
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from .compare import Program, Setup

Point = namedtuple("Point", "x y")
PROGRAMS: dict[str, Program] = {}


def plain(*shape: int, k: float = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Fixed values between about -1 and 1.4, different for different k."""
    count = torch.Size(shape).numel()
    t = torch.linspace(-1.1 + 0.13 * k, 1.3 - 0.07 * k, count, dtype=torch.float64).reshape(shape)
    return t.to(dtype)


def leaf(*shape: int, k: float = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return plain(*shape, k=k, dtype=dtype).requires_grad_()


def grown(*shape: int, k: float = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Requires grad and is not a leaf, so it may be mutated with grad mode on."""
    return leaf(*shape, k=k, dtype=dtype) * 1.5


def call(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Setup:
    return Setup(fn, args, kwargs)


def program(*tags: str, dynamic: bool = False, then: tuple[Callable[[], Setup], ...] = ()) -> Callable[..., Any]:
    def register(build: Callable[[], Setup]) -> Callable[[], Setup]:
        source = textwrap.dedent(inspect.getsource(build))
        name = build.__name__
        assert name not in PROGRAMS, name
        PROGRAMS[name] = Program(name, (build, *then), source, dynamic, frozenset(tags))
        return build

    return register


# --- outputs that alias nothing, inputs, or intermediates -----------------------------------------------------------


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


# --- mutated inputs -----------------------------------------------------------------------------------------------


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


# --- metadata mutations --------------------------------------------------------------------------------------------


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


# --- duplicated and aliased inputs --------------------------------------------------------------------------------


@program("duplicate")
def leaf_is_passed_twice():
    def f(x, y):
        return x * y, x + y

    x = leaf(3)
    return call(f, x, x)


@program("duplicate")
def non_leaf_is_passed_twice_and_returned():
    def f(x, y):
        return y, x * y

    x = grown(3)
    return call(f, x, x)


@program("duplicate", "mutation")
def plain_duplicate_is_mutated():
    def f(x, y):
        x.mul_(2)
        return x + y

    x = plain(3)
    return call(f, x, x)


@program("duplicate", "mutation")
def non_leaf_duplicate_is_mutated():
    def f(x, y):
        x.mul_(2)
        y.add_(1)
        return x * y

    x = grown(3)
    return call(f, x, x)


@program("duplicate", "mutation")
def second_of_three_duplicates_is_mutated():
    def f(x, y, z, w):
        y.mul_(2)
        return x + y * z, w * x

    x = grown(3)
    return call(f, x, x, x, leaf(3, k=1))


@program("duplicate", "mutation", "no_grad")
def leaf_duplicate_is_mutated_under_no_grad():
    def f(x, y):
        with torch.no_grad():
            x.mul_(2)
        return x * y

    x = leaf(3)
    return call(f, x, x)


@program("duplicate", "metadata")
def duplicate_is_transposed_in_place():
    def f(x, y):
        x.t_()
        return y * 2

    x = plain(3, 2)
    return call(f, x, x)


@program("duplicate")
def duplicates_in_a_nested_structure():
    def f(d, xs):
        return {"sum": d["a"] + xs[1], "same": xs[0]}

    x = leaf(3)
    return call(f, {"a": x, "b": plain(3, k=1)}, [x, x])


@program("aliased inputs")
def two_views_of_one_base_are_read():
    def f(x, y):
        return x * y, x.t()

    base = leaf(3, 3) * 1
    return call(f, base, base.t())


@program("aliased inputs", "mutation")
def plain_view_beside_its_base_is_mutated():
    def f(x, base):
        x.mul_(2)
        return base + 1

    base = plain(3, 2)
    return call(f, base[0], base)


@program("aliased inputs", "mutation")
def plain_base_beside_its_view_is_mutated():
    def f(base, x):
        base.mul_(2)
        return x + 1

    base = plain(3, 2)
    return call(f, base, base[0])


@program("aliased inputs", "mutation")
def sibling_views_of_a_plain_base():
    def f(x, y):
        x.mul_(2)
        return x * y

    base = plain(4)
    return call(f, base[:3], base[1:])


@program("aliased inputs", "mutation")
def sibling_views_of_a_non_leaf_base():
    def f(x, y):
        x.mul_(2)
        return x * y

    base = grown(4)
    return call(f, base[:3], base[1:])


@program("aliased inputs", "mutation")
def both_siblings_are_mutated():
    def f(x, y):
        x.mul_(2)
        y.add_(1)
        return x * y

    base = grown(4)
    return call(f, base[:3], base[1:])


@program("aliased inputs", "mutation")
def non_leaf_base_and_view_mutated_both():
    def f(base, x, w):
        x.mul_(2)
        base.add_(w)
        return base * 2, x

    base = grown(2, 2)
    return call(f, base, base[0], leaf(2, k=1))


@program("aliased inputs", "false sharing", "mutation")
def disjoint_halves_of_one_storage():
    def f(x, y):
        x.mul_(2)
        return x + y

    storage = plain(6)
    return call(f, storage[:3], storage[3:])


@program("aliased inputs", "false sharing", "mutation")
def disjoint_detached_halves_of_one_storage():
    def f(x, y, w):
        x.mul_(2)
        y.add_(1)
        return (x + y) * w

    storage = plain(6)
    return call(f, storage[:3].detach(), storage[3:].detach(), leaf(3, k=1))


@program("aliased inputs", "false sharing", "mutation")
def disjoint_parameters_in_a_flat_buffer():
    def f(x, y):
        with torch.no_grad():
            x.mul_(2)
        return x * y

    flat = plain(6)
    return call(f, flat[:3].detach().requires_grad_(), flat[3:].detach().requires_grad_())


@program("aliased inputs", "mutation")
def interleaved_columns_of_one_storage():
    def f(x, y):
        x.mul_(2)
        return x + y

    storage = plain(3, 2)
    return call(f, storage[:, 0], storage[:, 1])


@program("aliased inputs", "mutation")
def views_by_as_strided_overlap():
    def f(x, y):
        x.mul_(2)
        return y.sin()

    storage = plain(6)
    return call(f, storage.as_strided((2, 2), (2, 1)), storage.as_strided((3,), (2,)))


@program("aliased inputs", "mutation", "detach")
def leaf_and_its_detached_alias():
    def f(x, y):
        y.mul_(2)
        return x * 3

    x = leaf(3)
    return call(f, x, x.detach())


@program("aliased inputs", "mutation", "detach")
def non_leaf_and_its_detached_alias():
    def f(x, y):
        x.mul_(2)
        return x.sin(), y

    x = grown(3)
    return call(f, x, x.detach())


@program("aliased inputs", "mutation", "no_grad")
def leaf_and_its_view():
    def f(x, v):
        with torch.no_grad():
            v.mul_(2)
        return x * 3, v

    x = leaf(3, 2)
    return call(f, x, x[0])


@program("aliased inputs", "metadata", "mutation")
def aliased_inputs_one_transposed_one_mutated():
    def f(x, y):
        x.t_()
        y.mul_(2)
        return x + 1

    base = plain(3, 2)
    return call(f, base.view(3, 2), base.view(-1))


@program("aliased inputs", "mutation", "is_input")
def mutated_sibling_views_are_returned():
    def f(x, y):
        x.mul_(2)
        return x, y, y.view(-1)

    base = grown(4)
    return call(f, base[:3], base[1:])


@program("aliased inputs", "mutation", "alias_of_input")
def view_of_a_sibling_is_returned():
    def f(x, y):
        x.mul_(2)
        return y[1:], x * 1

    base = plain(4)
    return call(f, base[:3], base[1:])


@program("aliased inputs", "mutation", "duplicate")
def duplicates_and_siblings_together():
    def f(x, y, z):
        x.mul_(2)
        z.add_(1)
        return x + y, z * 2

    base = grown(4)
    x = base[:3]
    return call(f, x, x, base[1:])


@program("aliased inputs", "mutation")
def two_independent_groups_of_aliases():
    def f(a, b, c, d):
        a.mul_(2)
        d.add_(1)
        return a + b, c * d

    p, q = plain(4), grown(4, k=1)
    return call(f, p[:3], p[1:], q[:3], q[1:])


@program("aliased inputs", "mutation", "dtype")
def real_view_of_a_complex_input():
    def f(z, r):
        r.mul_(2)
        return z + 1

    z = torch.complex(plain(3), plain(3, k=1))
    return call(f, z, torch.view_as_real(z))


@program("aliased inputs", "mutation", "multi-output view")
def unbound_rows_are_passed_and_one_mutated():
    def f(a, b):
        a.mul_(2)
        return a + b

    a, b = plain(2, 3).unbind(0)
    return call(f, a, b)


@program("mutation", "aliased inputs")
def single_view_of_a_base_is_mutated():
    def f(x):
        x.mul_(2)
        return x + 1

    base = grown(3, 2)
    return call(f, base[0])


@program("mutation", "strides")
def transposed_input_is_mutated():
    def f(x):
        x.mul_(2)
        return x + 1, x.clone()

    return call(f, plain(3, 2).t())


# --- the calling convention ---------------------------------------------------------------------------------------


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


# --- gradients: who gets one ---------------------------------------------------------------------------------------


@program("tangent")
def outputs_with_disjoint_inputs():
    def f(x, y):
        return x.sin(), y.cos()

    return call(f, leaf(3), leaf(3, k=1))


@program("tangent", "detach")
def some_outputs_without_gradient():
    def f(x, y):
        return x * y, (x * 2).detach(), y + 1

    return call(f, leaf(3), plain(3, k=1))


@program("tangent", "no_grad")
def output_computed_under_no_grad():
    def f(x):
        with torch.no_grad():
            y = x * 3
        return x * y, y

    return call(f, leaf(3))


@program("tangent", "integer")
def integer_and_boolean_outputs():
    def f(x):
        return x.argmax(), x > 0, x * 2, x.long()

    return call(f, leaf(4))


@program("tangent")
def one_input_gets_no_gradient():
    def f(x, y):
        return x * 2 + y.detach()

    return call(f, leaf(3), leaf(3, k=1))


@program("tangent")
def output_whose_gradient_is_zero():
    def f(x, y):
        return (x * 0).sum() + y.sum(), y * 2

    return call(f, leaf(3), leaf(3, k=1))


@program("tangent", "integer")
def top_values_and_their_indices():
    def f(x):
        v, i = x.topk(2)
        s, j = x.sort()
        return v, i, s * 2, j

    return call(f, leaf(5))


@program("tangent")
def dead_code_and_unused_results():
    def f(x, y):
        dead = (x * y).exp()
        dead.add_(1)
        return x * 2

    return call(f, leaf(3), leaf(3, k=1))


@program("tangent")
def gradient_taken_inside():
    def f(x):
        y = (x * x).sum()
        (g,) = torch.autograd.grad(y, x)
        return g * 2

    return call(f, leaf(3))


@program("tangent", "strides")
def gradient_of_a_transposed_result():
    def f(x, w):
        return (x @ w).t(), (x @ w).t().contiguous()

    return call(f, leaf(3, 4), leaf(4, 2, k=1))


@program("grad mode")
def grad_mode_is_switched_off_inside():
    def f(x):
        y = x * 2
        torch.set_grad_enabled(False)
        return y, y * 3

    return call(f, leaf(3))


@program("grad mode")
def grad_mode_is_switched_off_and_on():
    def f(x):
        torch.set_grad_enabled(False)
        y = x * 2
        torch.set_grad_enabled(True)
        return y, x * y

    return call(f, leaf(3))


@program("grad mode")
def enable_grad_inside_a_no_grad_call():
    def f(x):
        with torch.enable_grad():
            y = x * 2
        return y, x * 3

    return Setup(f, (leaf(3),), context=torch.no_grad)


@program("grad mode", "no_grad")
def called_under_no_grad():
    def f(x):
        return x * 2, x.t(), x

    return Setup(f, (leaf(3, 2),), context=torch.no_grad)


@program("grad mode", "no_grad", "mutation")
def leaf_is_mutated_in_a_no_grad_call():
    def f(x):
        x.mul_(2)
        return x + 1

    return Setup(f, (leaf(3, 2),), context=torch.no_grad)


def _square(x):
    return x * x, x[0]


@program("grad mode", "no_grad", then=(lambda: Setup(_square, (leaf(3, 2),), context=torch.no_grad),))
def trained_first_then_called_under_no_grad():
    return call(_square, leaf(3, 2))


@program("grad mode", "inference mode")
def called_in_inference_mode():
    def f(x):
        return x * 2, x.view(-1)

    return Setup(f, (plain(3, 2),), context=torch.inference_mode)


@program("grad mode", "inference mode", "mutation")
def mutated_in_inference_mode():
    def f(x):
        x.add_(1)
        return x * 2

    def inputs():
        with torch.inference_mode():
            return plain(3, 2) * 1

    return Setup(f, (inputs(),), context=torch.inference_mode)


@program("grad mode", "inference mode")
def inference_mode_inside():
    def f(x):
        with torch.inference_mode():
            y = x.detach() * 2
        return y.sum().item() > -100, x * 2

    return call(f, leaf(3))


@program("autocast")
def autocast_inside():
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
        return y.float(), y

    return call(f, leaf(3, 4), leaf(4, 2, k=1))


@program("autocast")
def called_under_autocast():
    def f(x, w):
        return x @ w

    return Setup(f, (leaf(3, 4), leaf(4, 2, k=1)), context=lambda: torch.autocast("cpu", dtype=torch.bfloat16))


# --- shapes and dtypes at the edge ----------------------------------------------------------------------------------


@program("shape")
def zero_dimensional_tensors():
    def f(x, y):
        return x * y, x.view(1), x

    return call(f, leaf(), leaf(k=1))


@program("shape", "mutation")
def zero_dimensional_input_is_mutated():
    def f(x, y):
        x.add_(y)
        return x * 2

    return call(f, grown(), leaf(k=1))


@program("shape")
def empty_tensors():
    def f(x, y):
        return x * 2, x.sum(), x.view(-1), torch.cat([x, y])

    return call(f, leaf(0, 3), leaf(2, 3, k=1))


@program("shape", "mutation")
def empty_input_is_mutated():
    def f(x, y):
        x.add_(1)
        return x, y * 2

    return call(f, plain(0, 3), leaf(2, k=1))


@program("shape", "aliased inputs", "mutation")
def empty_views_of_one_base():
    def f(x, y):
        x.add_(1)
        return x.sum() + y.sum()

    base = plain(4)
    return call(f, base[:0], base[2:])


@program("complex")
def complex_arithmetic():
    def f(z, w):
        return z * w, z.abs(), z.real, z.conj()

    z = torch.complex(plain(3), plain(3, k=1)).requires_grad_()
    return call(f, z, leaf(3, k=2))


@program("complex", "alias_of_input")
def real_view_of_complex_is_returned():
    def f(z):
        return torch.view_as_real(z), z.imag

    return call(f, torch.complex(plain(3), plain(3, k=1)).requires_grad_())


@program("complex", "mutation")
def imaginary_part_is_mutated():
    def f(z):
        z.imag.mul_(2)
        return z * 1

    return call(f, torch.complex(plain(3), plain(3, k=1)))


@program("complex")
def conjugate_inputs():
    def f(z):
        return z * 2, z.conj()

    return call(f, torch.complex(plain(3), plain(3, k=1)).requires_grad_().conj())


@program("dtype", "alias_of_input")
def bits_viewed_as_integers():
    def f(x):
        return x.view(torch.int32), x * 2

    return call(f, plain(4))


@program("dtype", "mutation")
def bits_mutated_as_integers():
    def f(x):
        x.view(torch.int32).add_(1)
        return x * 2

    return call(f, plain(4))


@program("dtype")
def half_and_double_together():
    def f(h, d):
        return h.double() * d, h.float()

    return call(f, leaf(3, dtype=torch.bfloat16), leaf(3, k=1, dtype=torch.float64))


@program("broadcast")
def expanded_input_is_read():
    def f(x, w):
        return x * w, x.sum(0)

    return call(f, leaf(3).expand(4, 3), leaf(4, 3, k=1))


@program("broadcast", "alias_of_input")
def expanded_input_is_returned():
    def f(x):
        return x, x[0]

    return call(f, plain(3).expand(4, 3))


@program("strides")
def channels_last_input():
    def f(x, w):
        return torch.conv2d(x, w), x * 2

    x = leaf(1, 2, 4, 4).contiguous(memory_format=torch.channels_last)
    return call(f, x, leaf(3, 2, 2, 2, k=1))


@program("strides")
def input_with_an_offset_and_gaps():
    def f(x):
        return x * 2, x.t(), x.contiguous()

    return call(f, leaf(4, 6)[1:, 1::2])


@program("strides", "alias_of_input")
def contiguous_may_be_the_input_itself():
    def f(x, y):
        return x.contiguous(), y.contiguous(), x.to(torch.float32), x.reshape(2, 3)

    return call(f, leaf(2, 3), leaf(2, 3, k=1).t())


# --- modules --------------------------------------------------------------------------------------------------------


def _module_call(module: nn.Module, *args: Any, loss: bool = False) -> Setup:
    """A module as a function of its parameters and buffers, the way aot_module lifts them."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}

    def f(tensors, *args):
        return functional_call(module, tensors, args)

    return Setup(f, (tensors, *args))


def _fixed(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        for k, p in enumerate(module.parameters()):
            p.copy_(plain(*p.shape, k=k))
    return module


@program("module", "mutation")
def batch_norm_in_training():
    return _module_call(_fixed(nn.BatchNorm1d(3)), leaf(4, 3))


@program("module", "inference graph")
def batch_norm_in_evaluation():
    return _module_call(_fixed(nn.BatchNorm1d(3)).eval(), plain(4, 3))


@program("module", "mutation")
def convolution_and_batch_norm():
    return _module_call(_fixed(nn.Sequential(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.ReLU())), plain(2, 2, 3, 3))


@program("module")
def perceptron():
    return _module_call(_fixed(nn.Sequential(nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2))), plain(2, 4))


@program("module", "duplicate")
def tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 3)
            self.b = nn.Linear(3, 3)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x).relu())

    return _module_call(_fixed(Tied()), leaf(2, 3))


@program("module")
def layer_norm_and_softmax():
    return _module_call(_fixed(nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.Softmax(-1))), leaf(2, 4))


@program("module")
def embedding_by_integer_index():
    return _module_call(_fixed(nn.Embedding(5, 3)), torch.tensor([[0, 2], [2, 4]]))


@program("module")
def attention_block():
    module = _fixed(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True))
    return _module_call(module, leaf(1, 3, 4))


# --- dynamic shapes -------------------------------------------------------------------------------------------------


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
