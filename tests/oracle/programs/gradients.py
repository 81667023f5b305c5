"""Who gets a gradient."""

from __future__ import annotations

import torch

from ..compare import Setup
from .registering import call, leaf, plain, program


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
