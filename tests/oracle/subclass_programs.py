"""Programs over tensors made of tensors, as plain text like `programs.py`.

`two(*shape)` makes a TwoTensor of fresh parts, `nest(*shape)` one whose parts are TwoTensors.
"""

from __future__ import annotations

import textwrap

import torch
from torch.testing._internal.two_tensor import TwoTensor

from .compare import Trial
from .strategy import from_source

PRELUDE = """
import torch
from tests.oracle.subclass_programs import TwoTensor, nest, two

"""

PROGRAMS: dict[str, Trial] = {}


def fresh(*shape: int, start: float = 0.1) -> torch.Tensor:
    """Values that differ from place to place."""
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32) * 0.37 + start).sin().reshape(shape)


def two(*shape: int, grad: bool = False, start: float = 0.1) -> TwoTensor:
    return TwoTensor(fresh(*shape, start=start), fresh(*shape, start=start + 1)).requires_grad_(grad)


def nest(*shape: int, grad: bool = False) -> TwoTensor:
    return TwoTensor(two(*shape), two(*shape, start=0.7)).requires_grad_(grad)


def program(name: str, source: str, dynamic: bool = False) -> None:
    PROGRAMS[name] = from_source(name, PRELUDE + textwrap.dedent(source), dynamic)


program("input_and_output", """
    def inputs():
        return two(2, 3, grad=True), two(2, 3)
    def f(t, u):
        return (t * u).sin()
""")  # fmt: skip
program("plain_and_subclass", """
    def inputs():
        return two(2, 3, grad=True), torch.ones(3, requires_grad=True)
    def f(t, x):
        y = t * x
        return y, x.exp(), y.sum()
""")  # fmt: skip
program("nested", """
    def inputs():
        return nest(2, 3, grad=True), two(2, 3)
    def f(t, u):
        return (t + u).cos(), t.t()
""")  # fmt: skip
program("inference", """
    def inputs():
        return two(2, 3), torch.ones(3)
    def f(t, x):
        return t * x, x + 1, t.a, t
""")  # fmt: skip
program("made_inside", """
    def inputs():
        return torch.ones(3), torch.zeros(3)
    def f(x, y):
        return TwoTensor(x + 1, y * 2) * 3
""")  # fmt: skip
program("made_inside_over_the_inputs", """
    def inputs():
        return torch.ones(3), torch.zeros(3)
    def f(x, y):
        return TwoTensor(x, y.view(3))
""")  # fmt: skip
program("view_of_input", """
    def inputs():
        return (two(2, 3, grad=True),)
    def f(t):
        return t.view(3, 2), t.t()[1:], t * 2
""")  # fmt: skip
program("views_of_an_intermediate", """
    def inputs():
        return (two(2, 3, grad=True),)
    def f(t):
        y = t * 2
        return y, y.view(-1), y.t()
""")  # fmt: skip
program("views_of_an_unreturned_intermediate", """
    def inputs():
        return (two(2, 3, grad=True),)
    def f(t):
        y = t * 2
        return y.view(-1), y.t()
""")  # fmt: skip
program("pieces_of_an_intermediate", """
    def inputs():
        return (two(2, 3, grad=True),)
    def f(t):
        return (t * 2).unbind(0)
""")  # fmt: skip
program("mutated", """
    def inputs():
        return two(2, 3), two(3)
    def f(t, u):
        t.mul_(u)
        return t + 1
""")  # fmt: skip
program("mutated_with_a_gradient", """
    def inputs():
        return two(2, 3, grad=True).clone(), two(3, grad=True)
    def f(t, u):
        t.mul_(u)
        return t + 1
""")  # fmt: skip
program("gains_a_gradient_by_mutation", """
    def inputs():
        return two(2, 3), two(3, grad=True)
    def f(t, u):
        t.mul_(u)
        return t + 1
""")  # fmt: skip
program("mutated_and_viewed", """
    def inputs():
        return (two(2, 3),)
    def f(t):
        t.add_(1)
        return t.view(-1), t
""")  # fmt: skip
program("parameter_written_under_no_grad", """
    def inputs():
        return two(2, 3, grad=True), two(2, 3)
    def f(t, u):
        y = t * u
        with torch.no_grad():
            t.mul_(2)
        return y
""")  # fmt: skip
program("mutated_view", """
    def inputs():
        return two(4, 3), two(3)
    def f(t, u):
        t[1:].mul_(u)
        return t.sum()
""")  # fmt: skip
program("transposed_in_place", """
    def inputs():
        return (two(2, 3),)
    def f(t):
        t.t_()
        return t * 2
""")  # fmt: skip
program("duplicates", """
    def inputs():
        t = two(2, 3, grad=True)
        return t, t
    def f(t, u):
        return t * u
""")  # fmt: skip
program("duplicates_mutated", """
    def inputs():
        t = two(2, 3)
        return t, t
    def f(t, u):
        t.add_(1)
        return t * u
""")  # fmt: skip
program("overlapping_views_mutated", """
    def inputs():
        t = two(4, 3)
        return t[:2], t[1:]
    def f(t, u):
        t.add_(1)
        return u * 2
""")  # fmt: skip
program("part_is_an_input_too", """
    def inputs():
        t = two(2, 3)
        return t, t.a
    def f(t, x):
        return t * x, x + 1
""")  # fmt: skip
program("part_is_an_input_too_and_is_mutated", """
    def inputs():
        t = two(2, 3)
        return t, t.a
    def f(t, x):
        x.add_(1)
        return t * 2
""")  # fmt: skip
program("two_subclasses_share_a_part", """
    def inputs():
        t, u = two(2, 3), two(2, 3)
        return t, TwoTensor(t.a, u.b)
    def f(t, u):
        t.mul_(2)
        return u + 1
""")  # fmt: skip
program("part_is_written", """
    def inputs():
        return (two(2, 3),)
    def f(t):
        t.a.mul_(2)
        return t + 1
""")  # fmt: skip
program("part_is_returned_as_a_view", """
    def inputs():
        return (two(2, 3),)
    def f(t):
        return t.a.view(-1), t.b[0]
""")  # fmt: skip
program("output_holds_a_mutated_input", """
    def inputs():
        return torch.ones(3), torch.zeros(3)
    def f(x, y):
        x.add_(1)
        return TwoTensor(x, y)
""")  # fmt: skip
program("output_and_its_part", """
    def inputs():
        return (two(2, 3),)
    def f(t):
        y = t * 2
        return y, y.a, y.b.view(-1)
""")  # fmt: skip
program("outputs_share_a_part", """
    def inputs():
        return (two(2, 3),)
    def f(t):
        y = t * 2
        return y, TwoTensor(y.a, y.b + 1)
""")  # fmt: skip
program("same_output_twice", """
    def inputs():
        return (two(2, 3, grad=True),)
    def f(t):
        y = t * 2
        return y, y
""")  # fmt: skip
program("detached_outputs", """
    def inputs():
        return (two(2, 3, grad=True),)
    def f(t):
        y = t * 2
        return y, y.detach(), t.detach()
""")  # fmt: skip
program("input_returned", """
    def inputs():
        return (two(2, 3, grad=True),)
    def f(t):
        return t, t * 2
""")  # fmt: skip
program("outputs_with_disjoint_inputs", """
    def inputs():
        return two(2, 3, grad=True), two(3, grad=True)
    def f(t, u):
        return t * 2, u * 3
""")  # fmt: skip
program("unused_input_that_requires_grad", """
    def inputs():
        return two(2, 3, grad=True), two(3, grad=True)
    def f(t, u):
        return t * 2
""")  # fmt: skip
program("expanded_output", """
    def inputs():
        return (two(3, grad=True),)
    def f(t):
        return (t * 2).expand(2, 3)
""")  # fmt: skip
program("transposed_output", """
    def inputs():
        return (two(2, 3, grad=True),)
    def f(t):
        return (t * 2).t()
""")  # fmt: skip
program("matmul", """
    def inputs():
        return two(2, 3, grad=True), two(3, 2, grad=True), torch.ones(2, requires_grad=True)
    def f(t, u, bias):
        return torch.addmm(bias, t, u).relu()
""")  # fmt: skip
program("written_intermediate", """
    def inputs():
        return (two(2, 3, grad=True),)
    def f(t):
        y = t * 2
        y.mul_(3)
        y[0].add_(1)
        return y
""")  # fmt: skip
program("under_no_grad", """
    def inputs():
        return (two(2, 3, grad=True),)
    def f(t):
        with torch.no_grad():
            y = t * 2
        return y, t * y
""")  # fmt: skip
program("dictionary", """
    def inputs():
        return ({"weight": two(2, 3, grad=True), "scale": torch.tensor(2.0)},)
    def f(d):
        return {"out": d["weight"] * d["scale"]}
""")  # fmt: skip
program("dynamic", """
    def inputs():
        return two(2, 3, grad=True), torch.ones(3, requires_grad=True)
    def f(t, x):
        y = t * x
        return y, y.view(-1).sum(), t.t()
""", dynamic=True)  # fmt: skip
program("dynamic_nested", """
    def inputs():
        return (nest(2, 3, grad=True),)
    def f(t):
        return t.t().cos() * t.shape[0]
""", dynamic=True)  # fmt: skip
program("dynamic_mutated", """
    def inputs():
        return two(2, 3), two(3)
    def f(t, u):
        t.mul_(u)
        return t.reshape(-1)
""", dynamic=True)  # fmt: skip
