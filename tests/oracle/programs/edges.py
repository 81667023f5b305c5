"""Shapes and dtypes at the edge."""

from __future__ import annotations

import torch

from .registering import call, grown, leaf, plain, program


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


@program("complex")
def complex_number_in_a_product():
    def f(z):
        return (z * 1j).abs(), 2j / z.conj()

    return call(f, torch.complex(plain(3), plain(3, k=1)).requires_grad_())


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
