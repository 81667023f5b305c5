"""Inputs that are one tensor twice, or share elements."""

from __future__ import annotations

import torch

from .registering import call, grown, leaf, plain, program


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
